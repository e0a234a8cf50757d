"""The scripts of the bare lock: one key, whose value is the attempt.

Each of these was asked for by a mutant of the scripts that nobody had noticed (`hatch run mutate`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fencekit.protocol import bare
from fencekit.protocol.script import Script
from harness.conditions import forbidden

ME, YOU = "a" * 32, "b" * 32
LEASE = 30_000


class Bare:
    """One key."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def acquire(self, attempt: str = ME, ttl_ms: int = LEASE) -> list[int]:
        return self._call(bare.ACQUIRE, attempt, ttl_ms)

    def extend(self, attempt: str = ME, ttl_ms: int = LEASE) -> list[int]:
        return self._call(bare.EXTEND, attempt, ttl_ms)

    def release(self, attempt: str = ME) -> list[int]:
        return self._call(bare.RELEASE, attempt, "channel")

    def _call(self, script: Script, *args: str | int) -> list[int]:
        answer: list[int] = self.client.eval(script.source, 1, "key", *args)
        return answer


@pytest.fixture
def lock(redis_client: Any) -> Bare:
    return Bare(redis_client)


@pytest.fixture
def heard(redis_client: Any) -> Iterator[Any]:
    with redis_client.pubsub() as listener:
        listener.subscribe("channel")
        assert listener.get_message(timeout=1.0)["type"] == "subscribe"
        yield listener


def test_a_free_key_is_taken_for_its_timeout(lock: Bare) -> None:
    assert lock.acquire() == [1]
    assert lock.client.get("key") == ME.encode()
    assert LEASE - 1_000 < lock.client.pttl("key") <= LEASE


def test_a_key_that_is_held_is_refused_with_what_is_left(lock: Bare) -> None:
    lock.acquire()
    refused, left = lock.acquire(YOU)
    assert refused == 0
    assert LEASE - 1_000 < left <= LEASE
    assert lock.client.get("key") == ME.encode()


def test_a_copy_of_ones_own_acquire_is_granted_again(lock: Bare) -> None:
    lock.acquire()
    lock.client.pexpire("key", 5_000)
    assert lock.acquire() == [1]
    assert lock.client.pttl("key") > LEASE - 1_000


def test_a_key_that_never_expires_is_refused_and_says_so(lock: Bare) -> None:
    lock.client.set("key", "somebody's")
    assert lock.acquire() == [0, -1]


def test_only_the_holder_extends(lock: Bare) -> None:
    assert lock.extend() == [0]
    lock.acquire()
    assert lock.extend(YOU, 90_000) == [0]
    assert lock.client.pttl("key") <= LEASE
    assert lock.extend(ME, 90_000) == [1]
    assert lock.client.pttl("key") > 89_000


def test_only_the_holder_releases_and_waiters_are_woken(lock: Bare, heard: Any) -> None:
    assert lock.release() == [0]
    lock.acquire()
    assert lock.release(YOU) == [0]
    assert lock.client.exists("key")
    assert heard.get_message(timeout=0.05) is None
    assert lock.release() == [1]
    assert not lock.client.exists("key")
    assert heard.get_message(timeout=1.0)["data"] == b"free"


def test_a_wake_that_is_forbidden_does_not_undo_the_release(lock: Bare) -> None:
    lock.acquire()
    with forbidden(lock.client, "publish"):
        assert lock.release() == [1]
    assert not lock.client.exists("key")
