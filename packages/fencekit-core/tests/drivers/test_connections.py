"""Connections, threads and drivers: few of them, none left over.

How each bites: the pool as it was, whose waiting thread could miss the connection that was given
back, and whose slow path could find that the fast path had been quicker.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fencekit import AsyncDistributedLock, DistributedLock
from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.aio import _drivers as async_drivers
from fencekit.drivers.client import Client
from fencekit.drivers.pool import Turn, WirePool
from fencekit.drivers.sync import SyncDriver
from fencekit.drivers.sync import _drivers as sync_drivers
from fencekit.drivers.wire import Wire
from harness import clients
from harness.colours import Locks
from harness.fixtures import ServerPool
from harness.proxy import Proxy
from harness.servers import Server
from harness.waiting import eventually, eventually_async

SECOND = timedelta(seconds=1)
LONG = timedelta(seconds=30)


def client_count(server: Server) -> int:
    return len(server.call("CLIENT", "LIST").splitlines()) - 1


# Few


async def test_fifty_tasks_travel_on_one_connection(proxy: Proxy) -> None:
    async with clients.aopened(proxy.url) as client:
        lock = AsyncDistributedLock(client)

        async def work(n: int) -> None:
            for _ in range(5):
                handle = await lock.acquire(f"job-{n}", ttl=LONG)
                await handle.release()

        await asyncio.gather(*(work(n) for n in range(50)))
        assert len(proxy.connections) == 1
        await lock._driver.aclose()


def test_locks_of_one_client_share_a_driver(server: Server) -> None:
    with clients.opened(server.url) as client, clients.opened(server.url) as other:
        assert DistributedLock(client)._driver is DistributedLock(client, prefix="x")._driver
        assert DistributedLock(client)._driver is not DistributedLock(other)._driver


def test_the_clients_own_pool_is_not_used(server: Server) -> None:
    with clients.opened(server.url, max_connections=1) as client:
        lock = DistributedLock(client)
        borrowed = client.connection_pool.get_connection()
        lock.release(lock.acquire("job", ttl=LONG, renew=True))
        client.connection_pool.release(borrowed)
        lock._driver.close()


def test_a_rush_leaves_few_connections(proxy: Proxy) -> None:
    with Locks("sync", proxy.url) as locks:
        handle = locks.acquire("job", ttl=LONG)
        waiting = [locks.start("try_acquire", "job", ttl=LONG, wait=SECOND * 3) for _ in range(40)]
        eventually(lambda: proxy.counts["EVALSHA"] + proxy.counts["EVAL"] >= 81, timeout=5)
        eventually(lambda: len(proxy.open_connections) <= 3, timeout=3)
        assert [one.result(5) for one in waiting] == [None] * 40
        locks.release(handle)


# The pool's turns


class OldPool(WirePool):
    """As it was: looks first, then counts itself as waiting; and trusts what it saw."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._condition = threading.Condition(threading.Lock())
        self._waiting = 0

    def give(self, wire: Wire) -> None:
        self._idle.append(wire)
        if self._waiting:
            with self._condition:
                self._condition.notify()

    def _take_idle(self) -> Wire | Turn:
        try:
            return self._idle.pop()
        except IndexError:
            pass
        with self._condition:
            while True:
                if self._idle:
                    return self._idle.pop()
                if len(self._turns) < self._client.share:
                    turn = Turn()
                    self._turns.add(turn)
                    return turn
                self._waiting += 1
                try:
                    assert self._condition.wait(2), "slept beside an idle connection"
                finally:
                    self._waiting -= 1


class Meddled(deque[Wire]):
    """Idle connections, of which one is given back just after a look found none."""

    def __init__(self, meddle: Callable[[], None]) -> None:
        super().__init__()
        self.meddle, self.looks = meddle, 0

    def _looked(self) -> None:
        self.looks += 1
        if self.looks == 2:  # the first is the fast path's
            self.meddle()

    def pop(self) -> Wire:  # type: ignore[override]
        try:
            return super().pop()
        except IndexError:
            self._looked()
            raise

    def __bool__(self) -> bool:
        found = len(self) > 0
        if not found:
            self._looked()
        return found


def take_while_one_is_given_back(server: Server, kind: type[WirePool]) -> Wire:
    """Take from a pool whose only connection comes back just after we looked for it."""
    with clients.opened(server.url, max_connections=2) as client:
        pool = kind(SyncDriver.of(client).client)
        assert pool._client.share == 1
        wire = pool.take()

        def give_back() -> None:
            giving = threading.Thread(target=pool.give, args=(wire,))
            giving.start()
            giving.join(0.1)  # it may have to wait for us

        pool._idle = Meddled(give_back)
        try:
            return pool.take()
        finally:
            pool.drop(wire)


def test_no_thread_sleeps_beside_an_idle_connection(server: Server) -> None:
    assert isinstance(take_while_one_is_given_back(server, WirePool), Wire)


def test_no_thread_sleeps_beside_an_idle_connection_bites(server: Server) -> None:
    with pytest.raises(AssertionError, match="slept beside"):
        take_while_one_is_given_back(server, OldPool)


def test_many_threads_on_one_connection(server: Server) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with Locks("sync", server.url, client={"max_connections": 2}) as locks:

            def work(n: int) -> None:
                for _ in range(40):
                    locks.lock.release(locks.lock.acquire(f"job-{n}", ttl=LONG))

            for one in [locks.run(work, n) for n in range(12)]:
                one.result(30)
            assert client_count(server) == 1
    finally:
        sys.setswitchinterval(interval)


def test_an_interrupted_wait_for_a_turn_is_no_turn_taken(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clients.opened(server.url, max_connections=2) as client:
        pool = WirePool(SyncDriver.of(client).client)
        monkeypatch.setattr(pool, "_await", interrupted)
        wire = pool.take()
        with pytest.raises(KeyboardInterrupt):
            pool.take()
        pool.give(wire)
        assert pool.take() is wire
        pool.drop(wire)


def interrupted(_: object) -> bool:
    raise KeyboardInterrupt


# None left over


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what Linux shows")
class InterruptAt:
    """A profiler that raises at one of the places where the pool could be interrupted.

    Signals are looked for where functions begin and where calls end, as a profiler is told; never
    between a ``with`` of a lock and its body.
    """

    def __init__(self, place: int) -> None:
        self.left = place

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "c_call" or not frame.f_code.co_filename.endswith(
            ("drivers/pool.py", "drivers/wire.py", "threading.py")
        ):
            return
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def take_for_a_moment(pool: WirePool) -> None:
    pool.give(pool.take())


def test_an_interrupt_anywhere_leaves_the_turns_to_others(server: Server) -> None:
    """Found here: the lock of a condition, or a turn, stayed with a caller who had gone."""
    with clients.opened(server.url, max_connections=2) as client:
        place, interrupted_once = 0, True
        while interrupted_once:
            place += 1
            pool = WirePool(SyncDriver.of(client).client)
            held = [pool.take()]

            def give_and_wait(bell: Any, pool: WirePool = pool, held: list[Wire] = held) -> bool:
                if held:
                    pool.give(held.pop())
                return bool(bell.acquire(timeout=0.5))

            pool._await = give_and_wait  # type: ignore[method-assign]
            interrupted_once = False
            sys.setprofile(InterruptAt(place))
            try:
                take_for_a_moment(pool)
            except KeyboardInterrupt:
                interrupted_once = True
            finally:
                sys.setprofile(None)
            held.clear()
            other = threading.Thread(target=take_for_a_moment, args=(pool,), daemon=True)
            other.start()
            other.join(3)
            assert not other.is_alive(), f"interrupted at {place}"
            pool.close()
        assert place > 20


def test_a_connection_that_was_forgotten_is_not_missed(server: Server) -> None:
    """Found here: whoever is interrupted between taking one and using it, gives none back."""
    with clients.opened(server.url, max_connections=2) as client:
        pool = WirePool(SyncDriver.of(client).client)
        turns: list[Wire] = []
        kept = pool.take()
        waiting = threading.Thread(target=lambda: turns.append(pool.take()), daemon=True)
        waiting.start()
        eventually(lambda: pool._bells)
        del kept
        waiting.join(3)
        assert len(turns) == 1
        pool.drop(turns[0])


@pytest.mark.parametrize("where", ["looking", "asking"])
def test_an_interrupted_use_of_a_connection_is_no_connection_used(
    server: Server, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Found here: a question interrupted (Ctrl-C) kept its connection, and with one all stood."""

    def stop(_: Wire, count: int = 0) -> list[object]:
        del count
        raise KeyboardInterrupt

    with clients.opened(server.url, max_connections=2) as client:
        driver = SyncDriver.of(client)
        driver.call("PING")
        with monkeypatch.context() as broken:
            if where == "looking":
                broken.setattr(Wire, "fresh", property(stop))
            else:
                broken.setattr(Wire, "receive", stop)
            with pytest.raises(KeyboardInterrupt):
                driver.call("INFO", "memory")
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(driver.call("PING")), daemon=True)
        asking.start()
        asking.join(2)
        assert answers == [b"PONG"]


def test_a_driver_that_is_closed_leaves_nothing(
    server: Server, make_locks: Callable[..., Locks]
) -> None:
    others = set(threading.enumerate())  # those of drivers that earlier tests left to linger
    locks = make_locks(server.url)
    counts = []
    for _ in range(3):  # it can be used again
        handle = locks.acquire("job", ttl=SECOND, renew=True)
        waiting = locks.start("try_acquire", "job", ttl=SECOND, wait=SECOND * 0.1)
        time.sleep(0.4)
        assert waiting.result(5) is None
        locks.release(handle)
        if locks.colour == "sync":
            locks.driver.close()
        else:
            locks.run(locks.driver.aclose).result(5)
        eventually(lambda: client_count(server) == 0)
        names = [thread.name for thread in threading.enumerate() if thread not in others]
        assert not [name for name in names if name.startswith("fencekit")]
        gc.collect()
        counts.append(descriptors())
    assert counts[2] <= counts[0]


@pytest.mark.parametrize("used", [False, True])
def test_a_driver_goes_with_its_sync_client(server: Server, *, used: bool) -> None:
    client = clients.make(server.url)
    lock = DistributedLock(client)
    if used:
        lock.release(lock.acquire("job", ttl=LONG))
    driver, count = weakref.ref(lock._driver), len(sync_drivers)
    client.close()
    del lock, client
    gc.collect()
    assert driver() is None
    assert len(sync_drivers) < count
    eventually(lambda: client_count(server) == 0)


async def test_a_driver_goes_with_its_async_client(server: Server) -> None:
    count = len(async_drivers)
    drivers = [await use(server) for _ in range(3)]

    def nobody_is_left() -> bool:
        gc.collect()
        return client_count(server) == 0

    await eventually_async(nobody_is_left, 10, interval=0.05)
    assert [driver() for driver in drivers] == [None] * 3
    assert len(async_drivers) <= count


async def use(server: Server) -> weakref.ref[AsyncDriver]:
    client = clients.make(server.url, colour="async")
    lock = AsyncDistributedLock(client)
    handle = await lock.acquire("job", ttl=LONG, renew=True)
    await handle.release()
    await client.aclose()
    return weakref.ref(lock._driver)


# The warning of eviction


def test_eviction_is_warned_of_once(
    servers: ServerPool, make_locks: Callable[..., Locks], caplog: pytest.LogCaptureFixture
) -> None:
    server = servers.clean(args=("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
    locks = make_locks(server.url)
    for name in ("first", "second"):
        locks.release(locks.acquire(name, ttl=LONG))
    said = [record.getMessage() for record in caplog.records if record.name == "fencekit"]
    assert len(said) == 1
    assert "'first'" in said[0]
    assert "allkeys-lru" in said[0]
    assert "noeviction" in said[0]


def test_no_eviction_no_warning(
    server: Server, make_locks: Callable[..., Locks], caplog: pytest.LogCaptureFixture
) -> None:
    locks = make_locks(server.url)
    locks.release(locks.acquire("job", ttl=LONG))
    assert [record for record in caplog.records if record.name.startswith("fencekit")] == []
