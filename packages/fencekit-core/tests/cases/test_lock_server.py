"""Public reports of locks on servers that forget, lag, or tell another time, and of clients' kinds.

How each bites: a digest without its script is refused by a server that has forgotten it; a lock of
timestamps believes the clock of whoever looks; a WAIT on another pooled connection says yes for a
write that no replica has; a token counted by INCR starts again when its key is gone, and leaves
the key for ever; the asyncio client of one loop is of no use in the next.
"""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest
from redis.exceptions import NoScriptError

from fencekit import (
    AsyncDistributedLock,
    FencedOutError,
    LockNotAcquired,
    LockNotOwned,
    ReplicationError,
)
from harness import clients
from harness.children import Child, hear, tell
from harness.clients import Colour, Family
from harness.colours import Locks
from harness.plain import CountedLock, TimestampLock
from harness.servers import Server
from harness.topologies import Replication, primary_with_replicas
from harness.waiting import eventually

LEASE, LONG = timedelta(milliseconds=300), timedelta(seconds=30)


# Krukov/cashews#387: SCRIPT FLUSH, or a restart, between any two operations


def flush(server: Server) -> None:
    server.call("SCRIPT", "FLUSH")


def restart(server: Server) -> None:
    server.restart(keep_data=True)


@pytest.mark.parametrize("forget", [flush, restart])
def test_lock_cashews_387(
    fresh_server: Server, make_locks: Callable[..., Locks], forget: Callable[[Server], None]
) -> None:
    locks = make_locks(fresh_server.url)

    def between() -> None:
        forget(fresh_server)

    first = locks.acquire("job", ttl=LONG)
    between()
    locks.extend(first, ttl=LONG * 2)
    between()
    with pytest.raises(LockNotAcquired):
        locks.acquire("job", ttl=LONG)
    between()
    locks.set_if_fresh(first.token, "status", "running")
    between()
    waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
    eventually(lambda: b"fencekit:{job}:wake" in fresh_server.call("PUBSUB", "CHANNELS"))
    between()
    locks.release(first)
    second = waiting.result(5)
    assert second.token > first.token
    between()
    assert locks.call("force_release", "job")
    between()
    with pytest.raises(LockNotOwned):
        locks.release(second)
    between()
    with pytest.raises(FencedOutError):
        locks.set_if_fresh(second.token, "status", "late")
    between()
    assert locks.call("inspect", "job").token is None


def test_lock_cashews_387_bites(fresh_server: Server) -> None:
    with clients.opened(fresh_server.url) as client:
        digest = client.script_load("return 1")
        assert client.evalsha(digest, 0) == 1
        flush(fresh_server)
        with pytest.raises(NoScriptError):
            client.evalsha(digest, 0)


# redis/redis-py#694, #4031: decode_responses and RESP2 or 3 make no difference


def scenario(locks: Locks) -> list[object]:
    """Do a bit of everything and return what came of it, tokens counted from the first."""
    first = locks.acquire("job", ttl=LONG, owner_id="a")
    said: list[object] = [type(first.token).__name__, first.owner_id]
    try:
        locks.acquire("job", ttl=LONG, owner_id="b")
    except LockNotAcquired as error:
        said += [error.holder, 29_000 < error.retry_after_ms <= 30_000]
    info = locks.call("inspect", "job")
    said += [info.owner_id, info.token == first.token, info.last == first.token, info.lapsed]
    locks.set_if_fresh(first.token, "status", "läuft")
    locks.run(locks.gate.hset_if_fresh, first.token, "hash", {"a": 1, "b": b"\xff"}).result(5)
    waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG, owner_id="c")
    time.sleep(0.05)
    locks.release(first)
    second = waiting.result(5)
    said += [second.token > first.token, second.owner_id]
    locks.extend(second, ttl=LONG * 2)
    said += [locks.call("advance_fence", "job", at_least=second.token + 7) - second.token]
    said += [locks.run(locks.gate.current_max, "job").result(5) - second.token]
    try:
        locks.set_if_fresh(first.token, "status", "late")
    except FencedOutError as error:
        said += [error.current == second.token + 7, error.resource]
    said += [locks.call("force_release", "job"), locks.call("force_release", "job")]
    return said


EXPECTED = [
    *("FenceToken", "a", "a", True, "a", True, True, (), True, "c", 7, 7, True, "job"),
    *(True, False),
]


@pytest.mark.parametrize("family", ["redis", "valkey"])
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("decode", [False, True], ids=["bytes", "str"])
def test_lock_redis_py_694_4031(
    server: Server,
    make_locks: Callable[..., Locks],
    family: Family,
    resp: Literal[2, 3],
    *,
    decode: bool,
) -> None:
    locks = make_locks(server.url, client={"family": family, "resp": resp, "decode": decode})
    assert scenario(locks) == EXPECTED
    assert server.call("GET", "status") == "läuft".encode()
    assert server.call("HGET", "hash", "b") == b"\xff"


def test_lock_redis_py_694_4031_bites(server: Server) -> None:
    server.call("SET", "holder", "a")
    said = []
    for decode in (False, True):
        with clients.opened(server.url, decode=decode) as client:
            said.append(client.get("holder"))
    assert said == [b"a", "a"]


# redisson/redisson#1104: one process's wall clock is six hours off

OFF = 6 * 3600


def with_another_clock(url: str, colour: Colour, off: float) -> None:
    """Wait for the lock, hold it, wait for its lease to end; all by a clock that is off."""
    shift_clock(off)
    with Locks(colour, url) as locks:
        handle = locks.acquire("job", ttl=timedelta(seconds=1), wait=timedelta(seconds=5))
        tell("held", handle.token, handle.remaining().total_seconds())
        locks.release(handle)
        tell("released")


def shift_clock(off: float) -> None:
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + off
    time.time_ns = lambda: real_ns() + int(off * 1e9)


def take_by_timestamp(url: str, off: float) -> None:
    shift_clock(off)
    with clients.opened(url) as client:
        tell("took it", TimestampLock(client, "job", 30).acquire())
        hear()


@pytest.mark.parametrize("off", [-OFF, OFF])
def test_lock_redisson_1104(
    server: Server, colour: Colour, make_locks: Callable[..., Locks], off: float
) -> None:
    locks = make_locks(server.url)
    first = locks.acquire("job", ttl=timedelta(milliseconds=500))
    with Child(with_another_clock, server.url, colour, off) as child:
        _, token, remaining = child.expect("held")
        assert token > first.token
        assert 0.5 < remaining <= 1
        with pytest.raises(LockNotOwned):
            locks.release(first)
        child.expect("released")
    third = locks.acquire("job", ttl=LONG)
    assert third.token > token
    locks.release(third)


def test_lock_redisson_1104_bites(server: Server, redis_client: Any) -> None:
    assert TimestampLock(redis_client, "job", 30).acquire()
    with Child(take_by_timestamp, server.url, OFF) as child:
        assert child.expect("took it") == ["took it", True]


# redisson/redisson#5256, #4706: a stalled replica, and a grant that wants one


@pytest.fixture(scope="module")
def replication() -> Any:
    with primary_with_replicas() as group:
        yield group


def test_lock_redisson_5256_4706(
    replication: Replication, make_locks: Callable[..., Locks]
) -> None:
    replica = replication.replicas[0]
    locks = make_locks(replication.url, min_replicas=1, replica_timeout=timedelta(milliseconds=300))
    locks.release(locks.acquire("job", ttl=LONG))
    replica.stall()
    try:
        for wait in (None, timedelta(seconds=2)):
            began = time.monotonic()
            with pytest.raises(ReplicationError) as caught:
                locks.acquire("job", ttl=LONG, wait=wait)
            assert (caught.value.wanted, caught.value.confirmed) == (1, 0)
            assert 0.25 < time.monotonic() - began < 1
            assert replication.primary.call("EXISTS", locks.lock.lock_key("job")) == 0
    finally:
        replica.resume()
    handle = locks.acquire("job", ttl=LONG, wait=LONG)
    assert replica.server.call("GET", locks.lock.lock_key("job")).endswith(b":%d" % handle.token)
    locks.release(handle)


def test_lock_redisson_5256_4706_bites(replication: Replication) -> None:
    replica = replication.replicas[0]
    with clients.opened(replication.url) as writer, clients.opened(replication.url) as other:
        replica.stall()
        try:
            assert writer.set("plain", "me", px=30_000, nx=True)
            assert other.wait(1, 300) == 1  # says the other connection, which wrote nothing
            assert replication.primary.call("EXISTS", "plain") == 1
            assert replica.server.call("EXISTS", "plain") == 0
        finally:
            replica.resume()


# redisson/redisson#6510, and failover: the record of the tokens is lost


def grant(locks: Locks, count: int) -> list[int]:
    tokens = []
    for _ in range(count):
        handle = locks.acquire("job", ttl=LONG)
        tokens.append(handle.token.value)
        locks.release(handle)
    return tokens


def test_lock_redisson_6510(server: Server, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(server.url)
    before = grant(locks, 5)
    server.call("FLUSHALL")
    (after,) = grant(locks, 1)
    assert sorted({*before, after}) == [*before, after]


def test_lock_redisson_6510_failover(make_locks: Callable[..., Locks]) -> None:
    with primary_with_replicas() as group:
        before = grant(make_locks(group.url), 3)
        replica = group.replicas[0].server
        # What is lost is what comes now, and no release of what came before.
        eventually(
            lambda: int(replica.call("HGET", "fencekit:{job}:fence", "last") or 0) == before[-1]
        )
        eventually(lambda: replica.call("EXISTS", "fencekit:{job}:lock") == 0)
        group.replicas[0].stall()
        before += grant(make_locks(group.url), 5)
        promoted = group.replicas[0].promote()
        (after,) = grant(make_locks(promoted.url), 1)
        assert sorted({*before, after}) == [*before, after]


@pytest.mark.parametrize("names", [2000])
async def test_lock_redisson_6510_names_used_once_leave_nothing(server: Server, names: int) -> None:
    """The benchmarks of core do the same with a hundred thousand."""
    async with clients.aopened(server.url) as client:
        lock = AsyncDistributedLock(client, fence_retention=LEASE)
        # Some are given back, some are lost, some are withdrawn.
        handles = await asyncio.gather(*(lock.acquire(f"job-{n}", ttl=LEASE) for n in range(names)))
        await asyncio.gather(*(handle.release() for handle in handles[::2]), return_exceptions=True)
        cancelled = [asyncio.create_task(lock.acquire(f"gone-{n}", ttl=LEASE)) for n in range(100)]
        await asyncio.sleep(0)
        for task in cancelled:
            task.cancel()
        await asyncio.sleep(LEASE.total_seconds() * 2 + 0.1)  # leases, then records, run out
        left = server.call("KEYS", "*")
        # What was withdrawn keeps its late copies out for two minutes, and no longer.
        assert all(key.endswith(b":gone") for key in left)
        assert all(0 < server.call("PTTL", key) <= 120_000 for key in left)
        assert len(left) <= 100
        again = await lock.acquire("job-1", ttl=LEASE)
        assert again.token > max(handle.token for handle in handles)
        await again.release()
        await lock._driver.aclose()


def test_lock_redisson_6510_bites(server: Server, redis_client: Any) -> None:
    lock = CountedLock(redis_client, "job")
    before = [lock.grant() for _ in range(5)]
    assert server.call("PTTL", "job:token") == -1
    server.call("FLUSHALL")
    assert lock.grant() <= max(before)


# One lock object, two event loops


def test_lock_two_event_loops(server: Server) -> None:
    client = clients.make(server.url, colour="async")
    lock = AsyncDistributedLock(client)

    async def once() -> int:
        async with lock.hold("job", ttl=timedelta(seconds=1), renew=True) as handle:
            waiting = asyncio.create_task(lock.acquire("job", ttl=LONG, wait=LONG))
            await asyncio.sleep(0.5)
        await lock.release(await waiting)
        return handle.token.value

    tokens = [asyncio.run(once()) for _ in range(3)]
    assert tokens == sorted(set(tokens))


def test_lock_two_event_loops_handle_of_the_first(server: Server) -> None:
    client = clients.make(server.url, colour="async")
    lock = AsyncDistributedLock(client)
    handle = asyncio.run(lock.acquire("job", ttl=LONG, renew=True))
    asyncio.run(lock.extend(handle, ttl=LONG * 2))
    asyncio.run(lock.release(handle))
    assert server.call("EXISTS", lock.lock_key("job")) == 0


def test_lock_two_event_loops_bites(server: Server) -> None:
    client: Any = clients.make(server.url, colour="async")
    asyncio.run(client.ping())
    with pytest.raises(RuntimeError):
        asyncio.run(client.ping())
    # What it leaves open is complained of here, not in whichever test comes next.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del client
        gc.collect()
