"""The script that remembers whose result was published; red without the rule each test is about."""

from __future__ import annotations

from typing import Any

from fencekit.celery import published
from fencekit.celery.published import entry, is_published
from fencekit.keys import names

NAMES = names("fencekit", "job")


def publish(client: Any, task_id: str, most: int = 200) -> int:
    reply = client.eval(published.PUBLISHED.source, 1, NAMES.idem, task_id, most)
    return int(reply[0])


def test_ids_are_kept_once_each(redis_client: Any) -> None:
    redis_client.hset(NAMES.idem, "state", "done")
    assert [publish(redis_client, name) for name in ("a", "ab", "a", "b")] == [1, 1, 1, 1]
    kept = redis_client.hget(NAMES.idem, "published")
    assert kept == b"a ab b "
    assert is_published(kept, "ab")
    assert not is_published(kept, "c")


def test_an_id_of_several_words_is_one() -> None:
    kept = entry("daily report")
    assert is_published(kept, "daily report")
    assert not is_published(kept, "report")


def test_an_id_is_no_pattern(redis_client: Any) -> None:
    redis_client.hset(NAMES.idem, "state", "done")
    for name in ("ab", "a.", "a."):
        publish(redis_client, name)
    assert redis_client.hget(NAMES.idem, "published") == b"ab a. "


def test_the_oldest_go_first(redis_client: Any) -> None:
    redis_client.hset(NAMES.idem, "state", "done")
    for name in ("aaaa", "bbbb", "cccc"):
        publish(redis_client, name, most=10)
    assert redis_client.hget(NAMES.idem, "published") == b"bbbb cccc "


def test_only_done_work_is_published(redis_client: Any) -> None:
    assert publish(redis_client, "a") == 0
    redis_client.hset(NAMES.idem, "state", "running")
    assert publish(redis_client, "a") == 0
    assert redis_client.hget(NAMES.idem, "published") is None


def test_the_header_says_what_the_operation_sends() -> None:
    operation = published.publish_operation(NAMES, "a")
    script = operation.script
    assert [key.pattern for key in script.keys] == ["{name}:idem"]
    assert operation.keys == (NAMES.idem,)
    assert [arg.name for arg in script.args] == ["task_id", "most"]
    assert script.retry_safe
