"""Public reports of locks that were given back, or believed held, by somebody else than the holder.

How each bites: the lock of SET NX and DEL frees its successor's lease; redis-py's lock object keeps
one token for all tasks; a fork that has the parent's lock object gives the parent's lock back; a
write without a fence lands whoever was stopped in between; an acquire whose cancellation its
caller alone notices is renewed for ever.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis.asyncio

from fencekit import (
    AsyncDistributedLock,
    FencedOutError,
    HandleForked,
    LockNotAcquired,
    LockNotOwned,
)
from harness import clients
from harness.children import Child, hear, tell
from harness.clients import Colour
from harness.colours import Locks
from harness.faults import Delay
from harness.plain import PlainLock
from harness.proxy import Proxy
from harness.servers import Server
from harness.waiting import eventually

SHORT, LONG = timedelta(milliseconds=200), timedelta(seconds=30)


# lukas-krecan/ShedLock#2583: A's lease is over, B acquires, A releases


def test_lock_shedlock_2583(server: Server, make_locks: Callable[..., Locks]) -> None:
    a, b = make_locks(server.url), make_locks(server.url)
    late = a.acquire("job", ttl=SHORT)
    time.sleep(0.3)
    current = b.acquire("job", ttl=LONG)
    for _ in range(2):
        with pytest.raises(LockNotOwned):
            a.release(late)
    with pytest.raises(LockNotOwned):
        a.extend(late, ttl=LONG)
    assert b.is_held_by(current)
    with pytest.raises(LockNotAcquired):
        a.acquire("job", ttl=SHORT)
    b.release(current)


def test_lock_shedlock_2583_bites(server: Server, redis_client: Any) -> None:
    a, b = PlainLock(redis_client, "job", 200), PlainLock(redis_client, "job", 30_000)
    assert a.acquire()
    time.sleep(0.3)
    assert b.acquire()
    a.release()
    assert server.call("EXISTS", "job") == 0


# NoneGG/aredis#119: two tasks, or threads, share one lock object


def test_lock_aredis_119(server: Server, make_locks: Callable[..., Locks]) -> None:
    shared = make_locks(server.url)
    late = shared.start("acquire", "job", ttl=SHORT).result(5)
    time.sleep(0.3)
    current = shared.start("acquire", "job", ttl=LONG).result(5)
    with pytest.raises(LockNotOwned):
        shared.start("release", late).result(5)
    assert shared.is_held_by(current)
    shared.start("release", current).result(5)


async def test_lock_aredis_119_bites(server: Server, async_redis_client: Any) -> None:
    shared = async_redis_client.lock("job", timeout=0.2)
    await asyncio.create_task(shared.acquire(blocking=False))
    await asyncio.sleep(0.3)
    assert await asyncio.create_task(shared.acquire(blocking=False))
    await asyncio.create_task(shared.release())  # of the first
    assert server.call("EXISTS", "job") == 0


# fork: the child releases what the parent holds; two children of one parent acquire


def in_fork(work: Callable[[], Any]) -> Any:
    """Do something in a fork of this process and return what it returns, as JSON carries it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(work()).encode())
        except BaseException as error:  # noqa: BLE001 - the parent reads it
            os.write(writer, json.dumps(repr(error)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        result = json.loads(told.read())
    os.waitpid(child, 0)
    return result


def do(locks: Locks, method: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of the lock in a fork, where the loop's thread does not exist."""
    if locks.colour == "sync":
        return getattr(locks.lock, method)(*args, **kwargs)

    async def call() -> Any:
        return await getattr(locks.lock, method)(*args, **kwargs)

    return asyncio.run(call())


def refusals_in_child(locks: Locks, handle: Any) -> list[str]:
    said = []
    for method, kwargs in (("release", {}), ("extend", {"ttl": LONG})):
        try:
            do(locks, method, handle, **kwargs)
        except HandleForked as error:
            said.append(error.resource)
    return said


@pytest.mark.parametrize("renew", [False, True])
def test_lock_fork_child_releases(
    server: Server, make_locks: Callable[..., Locks], *, renew: bool
) -> None:
    locks = make_locks(server.url)
    handle = locks.acquire("job", ttl=timedelta(seconds=1), renew=renew)
    assert in_fork(lambda: refusals_in_child(locks, handle)) == ["job", "job"]
    assert locks.is_held_by(handle)
    if renew:
        time.sleep(1.5)
        assert locks.is_held_by(handle)
    locks.release(handle)
    assert locks.try_acquire("job", ttl=LONG) is not None


def test_lock_fork_children_acquire(server: Server, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(server.url)
    parent = locks.acquire("parent", ttl=LONG)  # connected, and known to the server

    def acquire() -> list[Any]:
        first = do(locks, "acquire", "job", ttl=LONG)
        second = do(locks, "try_acquire", "job", ttl=LONG)
        do(locks, "force_release", "job")
        return [first.owner_id, int(first.token), second]

    said = [in_fork(acquire) for _ in range(2)]
    assert all(second is None for _, _, second in said)
    assert len({parent.owner_id, *(owner for owner, _, _ in said)}) == 3
    assert said[0][1] < said[1][1]
    locks.release(parent)


def test_lock_fork_bites(server: Server, redis_client: Any) -> None:
    theirs = redis_client.lock("job", timeout=30)
    assert theirs.acquire()
    assert in_fork(theirs.release) is None
    assert server.call("EXISTS", "job") == 0


# sibson/redbeat#127: the holder is stopped past its lease, somebody else acquires, it goes on


def hold_and_write(url: str, colour: Colour) -> None:
    """Hold the lock, renewed, and write until fenced out; tell what `lost` said before."""
    with Locks(colour, url) as locks:
        handle = locks.acquire("job", ttl=timedelta(milliseconds=600), renew=True)
        tell("held", handle.token)
        number = 0
        while True:
            lost = handle.lost.is_set()
            try:
                locks.set_if_fresh(handle.token, "status", f"old {number}")
            except FencedOutError as error:
                tell("refused", lost, error.current)
                break
            number += 1
            time.sleep(0.01)
        try:
            locks.release(handle)
        except LockNotOwned:
            tell("not owned")
        hear()


def write_without_fence(url: str) -> None:
    with clients.opened(url) as client:
        assert PlainLock(client, "job", 600).acquire()
        tell("held")
        hear()
        client.set("status", "old")
        tell("written")


def test_lock_redbeat_127(server: Server, colour: Colour, make_locks: Callable[..., Locks]) -> None:
    with Child(hold_and_write, server.url, colour) as child:
        _, token = child.expect("held")
        locks = make_locks(server.url)
        eventually(lambda: server.call("GET", "status"))
        child.pause()
        time.sleep(0.1)  # whatever was under way has arrived
        current = locks.acquire("job", ttl=LONG, wait=timedelta(seconds=3))
        assert current.token > token
        locks.set_if_fresh(current.token, "status", "new")
        child.resume()
        assert child.expect("refused") == ["refused", True, current.token]
        child.expect("not owned")
    assert server.call("GET", "status") == b"new"
    assert locks.is_held_by(current)


def test_lock_redbeat_127_bites(server: Server, redis_client: Any) -> None:
    with Child(write_without_fence, server.url) as child:
        child.expect("held")
        child.pause()
        time.sleep(0.7)
        assert PlainLock(redis_client, "job", 30_000).acquire()
        redis_client.set("status", "new")
        child.resume()
        child.tell("go on")
        child.expect("written")
    assert server.call("GET", "status") == b"old"


# redisson/redisson#7272: acquire, cancel, release, a thousand times


async def churn(acquire: Callable[[str], Any], rounds: int) -> None:
    """Acquire, cancel at some time, and release what was granted all the same; 50 at a time."""
    dice = random.Random(7272)

    async def one(name: str, delay: float) -> None:
        task = asyncio.ensure_future(acquire(name))
        await asyncio.sleep(delay)
        task.cancel()
        try:
            handle = await task
        except (asyncio.CancelledError, LockNotAcquired):
            return
        await asyncio.sleep(delay)
        await handle.release()

    for first in range(0, rounds, 50):
        await asyncio.gather(
            *(one(f"job-{n % 17}", dice.random() * 0.02) for n in range(first, first + 50))
        )


def locks_left(server: Server) -> list[bytes]:
    found: list[bytes] = server.call("KEYS", "fencekit:*:lock")
    return found


async def test_lock_redisson_7272(server: Server, proxy: Proxy) -> None:
    async with clients.aopened(proxy.url) as client:
        lock = AsyncDistributedLock(client)
        proxy.add(Delay(0.008))
        ttl = timedelta(milliseconds=300)
        wait = timedelta(seconds=1)
        await churn(lambda name: lock.acquire(name, ttl=ttl, wait=wait, renew=True), 1000)
        await asyncio.sleep(2 * ttl.total_seconds())
        assert locks_left(server) == []
        await lock._driver.aclose()


async def test_lock_redisson_7272_bites(server: Server, proxy: Proxy) -> None:
    client: redis.asyncio.Redis
    async with clients.aopened(proxy.url) as client:
        lock = AsyncDistributedLock(client)
        proxy.add(Delay(0.008))
        ttl = timedelta(milliseconds=300)
        unnoticed: list[asyncio.Task[Any]] = []

        async def acquire(name: str) -> Any:
            unnoticed.append(asyncio.create_task(lock.try_acquire(name, ttl=ttl, renew=True)))
            return await asyncio.shield(unnoticed[-1])

        await churn(acquire, 50)
        await asyncio.sleep(2 * ttl.total_seconds())
        assert locks_left(server) != []
        await lock._driver.aclose()
