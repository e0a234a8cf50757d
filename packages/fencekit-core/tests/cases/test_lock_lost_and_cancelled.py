"""Public reports of lost replies and cancelled calls, of locks.

How each bites: redis-py's own lock meets the same fault, or a lock of SET NX, or ours with the
rule taken out that answers the fault, and the same question is answered wrongly.

- redis-py's lock cannot repeat a release that failed or was cancelled: it has forgotten its token,
  or finds its key gone and says "not yours"; and a cancelled acquire of it leaves its key.
- A SET NX that is sent again finds its own first copy, and says "not acquired"; a
  compare-and-delete that is sent again finds nothing, and says "not yours".
- An acquire that the driver sends again after its cancellation is nobody's.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockError, LockNotOwnedError

from fencekit import AsyncDistributedLock, LockNotOwned, StoreError
from fencekit.drivers import delivery
from fencekit.drivers.loop_state import Parcel
from fencekit.keys import names
from fencekit.protocol import lock as protocol
from harness import clients
from harness.colours import Locks
from harness.faults import Cut, Delay, DropCommand, DropReply, named
from harness.plain import CheckedLock, PlainLock
from harness.proxy import Proxy
from harness.servers import Server
from harness.waiting import eventually, eventually_async

TTL = timedelta(seconds=30)
KEY = names("fencekit", "job").lock
SCRIPTS = named("EVALSHA", "EVAL")


class Interrupted(Exception):
    """What the alarm raises."""


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raise in the main thread, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_free(server: Server, key: str = KEY) -> bool:
    return bool(server.call("EXISTS", key) == 0)


# redis/redis-py#3847: a release is cancelled while its reply is under way


@pytest.mark.parametrize("after", [0.0, 0.1], ids=["at once", "later"])
async def test_lock_redis_py_3847(server: Server, proxy: Proxy, after: float) -> None:
    async with clients.aopened(proxy.url) as client:
        lock = AsyncDistributedLock(client)
        handle = await lock.acquire("job", ttl=TTL)
        proxy.add(Delay(0.3))
        release = asyncio.create_task(lock.release(handle))
        await asyncio.sleep(after)
        release.cancel()
        with pytest.raises(asyncio.CancelledError):
            await release
        await eventually_async(lambda: is_free(server), 1)
        await lock.release(handle)
        await lock._driver.aclose()


async def test_lock_redis_py_3847_bites(proxy: Proxy) -> None:
    async with clients.aopened(proxy.url) as client:
        lock = client.lock("job", timeout=30)
        await lock.acquire()
        await lock.release()  # the script is known from here on
        await lock.acquire()
        proxy.add(Delay(0.3))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(lock.release(), 0.1)
        with pytest.raises(LockError):
            await lock.release()


# redis/redis-py#4258: the transport fails before the release is sent


@pytest.mark.parametrize("refuse_for", [0.0, 0.6], ids=["once", "for a while"])
def test_lock_redis_py_4258(
    server: Server,
    proxy: Proxy,
    make_locks: Callable[..., Locks],
    monkeypatch: pytest.MonkeyPatch,
    refuse_for: float,
) -> None:
    locks = make_locks(proxy.url)
    handle = locks.acquire("job", ttl=TTL)
    if refuse_for:
        monkeypatch.setattr(delivery, "_BUDGET", 0.2)  # seconds, of eight
    proxy.cut(refuse_for)
    if refuse_for:
        with pytest.raises(StoreError):
            locks.release(handle)
        time.sleep(refuse_for)
    locks.release(handle)
    assert is_free(server)
    locks.release(handle)


def test_lock_redis_py_4258_bites(proxy: Proxy) -> None:
    with clients.opened(proxy.url) as client:
        lock = client.lock("job", timeout=30)
        lock.acquire()
        proxy.add(DropCommand(SCRIPTS))
        with pytest.raises(RedisConnectionError):
            lock.release()
        with pytest.raises(LockError, match="unlocked"):
            lock.release()


# redis-py, coredis: an acquire is cancelled while its reply is under way


@pytest.mark.parametrize("first", [True, False], ids=["connecting", "connected"])
async def test_lock_coredis_cancelled_acquire(server: Server, proxy: Proxy, *, first: bool) -> None:
    async with clients.aopened(proxy.url) as client:
        lock = AsyncDistributedLock(client)
        if not first:
            await lock.release(await lock.acquire("job", ttl=TTL))
        proxy.add(Delay(0.3, SCRIPTS))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(lock.acquire("job", ttl=TTL), 0.1)
        await asyncio.sleep(1)
        assert is_free(server)
        await lock._driver.aclose()


async def test_lock_coredis_cancelled_acquire_while_the_connection_breaks(
    server: Server, proxy: Proxy
) -> None:
    async with clients.aopened(proxy.url) as client:
        lock = AsyncDistributedLock(client)
        await lock.release(await lock.acquire("job", ttl=TTL))
        proxy.add(Delay(0.3, SCRIPTS))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(lock.acquire("job", ttl=TTL), 0.1)
        proxy.clear()
        proxy.cut(refuse_for=0.05)
        await asyncio.sleep(1)
        assert is_free(server)
        await lock._driver.aclose()


async def test_lock_coredis_cancelled_acquire_bites_when_it_is_sent_again(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Parcel, "abandon", lambda _: None)
    monkeypatch.setattr(delivery, "_TIDY_BUDGET", -1.0)  # the withdraw is not
    async with clients.aopened(proxy.url) as client:
        lock = AsyncDistributedLock(client)
        await lock.release(await lock.acquire("job", ttl=TTL))
        proxy.add(DropCommand(lambda c: protocol.ACQUIRE.sha.encode() in c.args))
        acquire = asyncio.create_task(lock.acquire("job", ttl=TTL))
        await asyncio.sleep(0)
        acquire.cancel()
        await asyncio.sleep(1)
        assert not is_free(server)
        await lock._driver.aclose()


async def test_lock_coredis_cancelled_acquire_bites(server: Server, proxy: Proxy) -> None:
    async with clients.aopened(proxy.url) as client:
        await client.ping()
        proxy.add(Delay(0.3))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.lock(KEY, timeout=30).acquire(), 0.1)
        await asyncio.sleep(1)
        assert not is_free(server)


def test_lock_coredis_interrupted_acquire(server: Server, proxy: Proxy) -> None:
    with Locks("sync", proxy.url) as locks:
        locks.release(locks.acquire("job", ttl=TTL))
        proxy.add(Delay(0.3, SCRIPTS))
        with pytest.raises(Interrupted), interrupted_after(0.1):
            locks.lock.acquire("job", ttl=TTL)
        assert is_free(server)


# simstudioai/sim#6864, redis/go-redis#2985: the reply of a granted acquire is lost


@pytest.mark.parametrize("times", [1, 2, 3])
def test_lock_sim_6864_go_redis_2985(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks], times: int
) -> None:
    locks = make_locks(proxy.url)
    locks.release(locks.acquire("other", ttl=TTL))
    for nth in range(1, times + 1):
        proxy.add(DropReply(SCRIPTS, nth=nth))
    handle = locks.acquire("job", ttl=TTL)
    assert server.call("GET", KEY).endswith(b":%d" % handle.token)
    assert server.call("HGET", names("fencekit", "job").fence, "last") == b"%d" % handle.token
    locks.release(handle)
    assert is_free(server)


def test_lock_sim_6864_go_redis_2985_bites(server: Server, proxy: Proxy) -> None:
    with clients.opened(proxy.url, retries=3) as client:
        proxy.add(DropReply(named("SET")))
        assert not PlainLock(client, KEY, 30_000).acquire()
        assert not is_free(server)


# The same for every operation: each reports its first, true outcome


def _release(locks: Locks, handle: Any) -> object:
    locks.release(handle)
    return None


def _release_lost(locks: Locks, handle: Any) -> object:
    locks.call("force_release", "job")
    with pytest.raises(LockNotOwned):
        locks.release(handle)
    return None


def _extend(locks: Locks, handle: Any) -> object:
    locks.extend(handle, ttl=TTL * 2)
    assert handle.remaining() > TTL * 1.9
    locks.release(handle)
    return None


def _force(locks: Locks, _: Any) -> object:
    return locks.call("force_release", "job")


def _advance(locks: Locks, handle: Any) -> object:
    return locks.call("advance_fence", "job", at_least=handle.token + 5) - handle.token


def _inspect(locks: Locks, handle: Any) -> object:
    return locks.is_held_by(handle)


def _write(locks: Locks, handle: Any) -> object:
    locks.set_if_fresh(handle.token, "status", "running")
    return None


@pytest.mark.parametrize(
    ("operation", "outcome"),
    [
        (_release, None),
        (_release_lost, None),
        (_extend, None),
        (_force, True),
        (_advance, 5),
        (_inspect, True),
        (_write, None),
    ],
)
def test_lock_lost_reply(
    proxy: Proxy,
    make_locks: Callable[..., Locks],
    operation: Callable[[Locks, Any], object],
    outcome: object,
) -> None:
    locks = make_locks(proxy.url)
    handle = locks.acquire("job", ttl=TTL)
    for nth in (1, 3, 5):  # EVALSHA, then the EVAL of a script not known yet, then the next
        proxy.add(DropReply(SCRIPTS, nth=nth))
    assert operation(locks, handle) == outcome


def test_lock_lost_reply_bites(proxy: Proxy) -> None:
    with clients.opened(proxy.url, retries=3) as client:
        lock = CheckedLock(client, KEY, 30_000)
        assert lock.acquire()
        proxy.add(DropReply(SCRIPTS))
        assert not lock.give_back()
        theirs = client.lock("job", timeout=30)
        theirs.acquire()
        theirs.release()  # the script is known from here on
        theirs.acquire()
        proxy.add(DropReply(named("EVALSHA")))
        with pytest.raises(LockNotOwnedError):
            theirs.release()


def test_lock_lost_reply_of_every_send_is_no_refusal(
    server: Server,
    proxy: Proxy,
    make_locks: Callable[..., Locks],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks = make_locks(proxy.url)
    locks.release(locks.acquire("other", ttl=TTL))
    monkeypatch.setattr(delivery, "_BUDGET", 0.2)
    proxy.add(Cut(SCRIPTS, refuse_for=0.0, nth=None))
    with pytest.raises(StoreError):
        locks.acquire("job", ttl=TTL)
    proxy.clear()
    eventually(lambda: is_free(server))
    locks.release(locks.acquire("job", ttl=TTL))
