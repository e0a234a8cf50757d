"""The scripts of entries, fills and tags by themselves: what they answer, keep and tell.

Each was asked for by mutants of the scripts that nobody else noticed (`hatch run mutate`).
"""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from fencekit.cache import protocol
from fencekit.protocol.script import Script
from harness.clients import opened

ENTRY, TICKET, TAG, CHANNEL = "e", "{e}:fill", "t", "cache"
HEAD = b"\x01schema"
A, B = b"a" * 16, b"b" * 16


class Cache:
    """One entry, and somebody who listens."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._ears = client.pubsub(ignore_subscribe_messages=True)
        self._ears.subscribe(CHANNEL)
        while self._ears.get_message(timeout=1.0) is None and not self._ears.subscribed:
            pass

    def run(self, script: Script, keys: list[str], *args: Any) -> Any:
        return self.client.eval(script.source, len(keys), *keys, *args)

    def begin(self, attempt: bytes, seen: bytes = b"") -> Any:
        return self.run(protocol.BEGIN, [ENTRY, TICKET], attempt, seen, 60_000)

    def store(self, ticket: bytes, soft_ms: int = 0) -> Any:
        keys = [ENTRY, TICKET]
        return self.run(protocol.STORE, keys, ticket, HEAD, b"{}", soft_ms, 60_000, CHANNEL)

    def write(self, soft_ms: int = 0) -> Any:
        keys = [ENTRY, TICKET]
        return self.run(protocol.SET_ENTRY, keys, HEAD, b"{}", soft_ms, 60_000, CHANNEL)

    def abandon(self, attempt: bytes) -> Any:
        return self.run(protocol.ABANDON, [TICKET], attempt, CHANNEL)

    def invalidate(self, hold_ms: int = 0) -> Any:
        return self.run(protocol.INVALIDATE, [ENTRY, TICKET], hold_ms, CHANNEL)

    def tag(self, ttl_ms: int, random: bytes) -> Any:
        return self.run(protocol.READ_TAG, [TAG], ttl_ms, random)

    def heard(self) -> list[bytes]:
        found = []
        while (message := self._ears.get_message(timeout=0.05)) is not None:
            found.append(message["data"])
        return found

    def close(self) -> None:
        self._ears.close()


@pytest.fixture
def cache(redis_client: Any) -> Any:
    cache = Cache(redis_client)
    yield cache
    cache.close()


def test_a_ticket_is_one_attempts_and_carries_the_time(cache: Cache) -> None:
    before = time.time()
    number, ticket = cache.begin(A)
    attempt, _, at = ticket.partition(b":")
    assert (number, attempt) == (1, A)
    assert before - 5 < float(at) < time.time() + 5
    assert cache.begin(A) == [1, ticket]  # a second copy
    number, left = cache.begin(B)
    assert number == 0
    assert 59_000 < left <= 60_000
    # Another attempt that ends as this one does is another.
    assert cache.begin(b"b" + A[1:])[0] == 0


def test_only_the_attempt_that_has_a_ticket_gives_it_back(cache: Cache) -> None:
    assert cache.abandon(A) == [0]
    cache.begin(A)
    assert cache.abandon(B) == [0]
    assert cache.heard() == []
    assert cache.abandon(A) == [1]
    assert cache.heard() == [b"free"]
    assert cache.client.get(TICKET) is None


def test_what_is_stored_and_written_ends_the_fill_and_tells(cache: Cache) -> None:
    ticket = cache.begin(A)[1]
    assert cache.store(ticket) == [1]
    assert cache.store(ticket) == [0]
    assert cache.heard() == [b"changed"]
    cache.client.delete(ENTRY)
    cache.begin(A)
    assert cache.write() == [1]
    assert cache.write() == [1]
    assert cache.heard() == [b"changed"]
    assert cache.invalidate() == [1]
    assert cache.invalidate() == [0]


def _now_ms(cache: Cache) -> int:
    seconds, micros = cache.client.time()
    return int(seconds * 1000 + micros // 1000)


def _refreshed(cache: Cache) -> int:
    """When the entry says that it should be refreshed."""
    kept = cache.client.get(ENTRY)
    assert kept.startswith(HEAD)
    assert kept.endswith(b"{}")
    high, low = struct.unpack(">HI", kept[len(HEAD) : len(HEAD) + 6])
    return int((high << 32) + low)


@pytest.mark.parametrize("soft_ms", [0, 1, 30_000])
def test_an_entry_says_when_it_should_be_refreshed(cache: Cache, soft_ms: int) -> None:
    before = _now_ms(cache)
    cache.write(soft_ms)
    after = _now_ms(cache)
    soft = _refreshed(cache)
    assert soft == 0 if soft_ms == 0 else before <= soft - soft_ms <= after


def test_it_says_so_where_the_lower_half_of_that_time_begins_anew(cache: Cache) -> None:
    # Every fifty days, and for less than half a second: which is enough for what is done here.
    before = _now_ms(cache)
    soft_ms = (1 << 32) - before % (1 << 32)
    cache.write(soft_ms)
    after = _now_ms(cache)
    assert before <= _refreshed(cache) - soft_ms <= after


def test_a_hold_may_last_a_single_millisecond(cache: Cache) -> None:
    # In a transaction, for which the server's time stands still.
    with cache.client.pipeline(transaction=True) as pipe:
        pipe.eval(protocol.INVALIDATE.source, 2, ENTRY, TICKET, 1, CHANNEL)
        pipe.get(TICKET)
        assert pipe.execute() == [[0], b"hold"]


def test_a_hold_is_kept_as_long_as_the_longest_asked_for(cache: Cache) -> None:
    cache.invalidate(0)
    assert cache.client.get(TICKET) is None
    cache.invalidate(60_000)
    cache.invalidate(30_000)
    assert 59_000 < cache.client.pttl(TICKET) <= 60_000
    cache.invalidate(90_000)
    assert 89_000 < cache.client.pttl(TICKET) <= 90_000
    assert cache.begin(A) == [3]


def test_a_tag_lives_as_long_as_the_longest_entry_under_it(cache: Cache) -> None:
    before = time.time()
    nonce = cache.tag(60_000, b"r")
    random, _, at = nonce.partition(b":")
    assert random == b"r"
    assert before - 5 < float(at) < time.time() + 5
    assert cache.tag(30_000, b"s") == nonce
    assert 59_000 < cache.client.pttl(TAG) <= 60_000
    assert cache.tag(90_000, b"s") == nonce
    assert 89_000 < cache.client.pttl(TAG) <= 90_000


def test_a_channel_that_is_forbidden_keeps_nobody_from_writing(servers: Any) -> None:
    server = servers.clean(acl="~* +@all resetchannels &other")
    with opened(server.url) as client:
        keys = [ENTRY, TICKET]
        for script, args in (
            (protocol.ABANDON, (A, CHANNEL)),
            (protocol.SET_ENTRY, (HEAD, b"{}", 0, 60_000, CHANNEL)),
        ):
            client.set(TICKET, A + b":1.2")
            count = 1 if script is protocol.ABANDON else 2
            reply = client.eval(script.source, count, *keys[-count:], *args)
            assert reply == [1]
            assert client.get(TICKET) is None
