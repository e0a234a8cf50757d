"""The scripts of `unique_task`: a place in the queue is one message's, and what answers mean."""

from __future__ import annotations

from typing import Any

from fencekit.celery import places
from fencekit.protocol.script import Script

KEY = "fencekit:{job}:unique"


def run(client: Any, script: Script, *args: Any) -> list[Any]:
    reply: list[Any] = client.eval(script.source, 1, KEY, *args)
    return reply


def test_a_place_is_taken_once_and_its_owner_gets_it_again(redis_client: Any) -> None:
    assert run(redis_client, places.TAKE, "a", 60_000) == [1, b"a"]
    assert run(redis_client, places.TAKE, "b", 90_000) == [0, b"a"]
    assert 59_000 < redis_client.pttl(KEY) <= 60_000
    assert run(redis_client, places.TAKE, "a", 90_000) == [1, b"a"]
    assert 89_000 < redis_client.pttl(KEY) <= 90_000


def test_only_its_owner_gives_it_back(redis_client: Any) -> None:
    run(redis_client, places.TAKE, "a", 60_000)
    assert run(redis_client, places.FREE, "b") == [0]
    assert redis_client.get(KEY) == b"a"
    assert run(redis_client, places.FREE, "a") == [1]
    assert run(redis_client, places.FREE, "a") == [0]
    assert redis_client.get(KEY) is None
