"""From a release to the next holder, against a BLPOP of the same client.

Two processes: the releaser here, the waiter in a child; and two threads or two tasks of one
process. A polite releaser, which does not contend again. The clock runs from just before the
call of release, or of LPUSH, to the moment when the waiter's call has returned; CLOCK_MONOTONIC
is the same in all processes of a machine. Lock and list take turns. Nothing is pinned: a hand-off
is one core waking another.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from statistics import median
from typing import Any, Final

from benchmarks.figures import Figure, Scenario, at_most, percentile
from benchmarks.stand import Stand
from fencekit import AsyncDistributedLock, DistributedLock
from harness import clients
from harness.children import Child, hear, tell

__all__ = ["HANDOFFS"]

LOCK: Final = "relay"
LIST: Final = "relay-list"
_LEASE: Final = timedelta(seconds=30)
_WAIT: Final = timedelta(seconds=10)
# How long a waiter is given to be waiting before the lock is released.
_HEADSTART: Final = 0.005
_ROUNDS: Final = 300
_WARM_UP: Final = 20
_TARGET: Final = at_most(1.5)


def wait_sync(url: str) -> None:
    """In a child: take what it is told to, and tell when it was had."""
    with clients.opened(url) as client:
        lock = DistributedLock(client)
        tell("ready")
        while True:
            tell("had", _take(client, lock, *hear()))


def _take(client: Any, lock: DistributedLock, what: str) -> float:
    if what == "list":
        assert client.blpop([LIST], timeout=10) is not None
        return time.monotonic()
    handle = lock.acquire(LOCK, ttl=_LEASE, wait=_WAIT)
    had = time.monotonic()
    handle.release()
    return had


async def wait_async(url: str) -> None:
    """In a child: the async twin of `wait_sync`."""
    async with clients.aopened(url) as client:
        lock = AsyncDistributedLock(client)
        tell("ready")
        while True:
            # Blocks the loop between two rounds, where nothing else happens on it: a thread would
            # compete with it.
            (what,) = hear()
            tell("had", await _atake(client, lock, what))


async def _atake(client: Any, lock: AsyncDistributedLock, what: str) -> float:
    if what == "list":
        assert await client.blpop([LIST], timeout=10) is not None
        return time.monotonic()
    handle = await lock.acquire(LOCK, ttl=_LEASE, wait=_WAIT)
    had = time.monotonic()
    await handle.release()
    return had


class _Relay:
    """Seconds of the hand-offs of one scenario."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {"lock": [], "list": []}

    def turns(self) -> Iterator[str]:
        """What is handed over next, the first rounds unrecorded."""
        for index in range(_WARM_UP + _ROUNDS):
            if index == _WARM_UP:
                for values in self.seconds.values():
                    values.clear()
            yield from ("lock", "list") if index % 2 else ("list", "lock")

    def figures(self) -> Iterator[Figure]:
        """What became of it."""
        ours, floor = self.seconds["lock"], self.seconds["list"]
        note = f"{median(ours) * 1e6:.0f} µs, BLPOP {median(floor) * 1e6:.0f} µs"
        ratio = median(ours) / median(floor)
        yield Figure("median, of a BLPOP hand-off", ratio, "×", _TARGET, note)
        late, latest = percentile(ours, 99), percentile(floor, 99)
        note = f"{late * 1e6:.0f} µs, BLPOP {latest * 1e6:.0f} µs"
        yield Figure("99th percentile, of a BLPOP hand-off", late / latest, "×", note=note)


def _sync_processes(stand: Stand) -> Iterator[Figure]:
    relay = _Relay()
    with stand.client() as client, Child(wait_sync, stand.server.url) as child:
        lock = DistributedLock(client)
        child.expect("ready")
        for what in relay.turns():
            began = _hand_over(client, lock, what, lambda what=what: child.tell(what))
            relay.seconds[what].append(child.expect("had")[1] - began)
    yield from relay.figures()


def _hand_over(client: Any, lock: DistributedLock, what: str, invite: Any) -> float:
    """Have a waiter wait, give it what it waits for, and return when that began."""
    handle = lock.acquire(LOCK, ttl=_LEASE, wait=_WAIT)
    invite()
    time.sleep(_HEADSTART)
    if what == "lock":
        began = time.monotonic()
        handle.release()
        return began
    began = time.monotonic()
    client.lpush(LIST, "x")
    handle.release()
    return began


def _sync_threads(stand: Stand) -> Iterator[Figure]:
    relay = _Relay()
    wanted: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    had: queue.SimpleQueue[float] = queue.SimpleQueue()
    with stand.client() as client:
        lock = DistributedLock(client)

        def wait() -> None:
            while (what := wanted.get()) is not None:
                had.put(_take(client, lock, what))

        waiter = threading.Thread(target=wait)
        waiter.start()
        try:
            for what in relay.turns():
                began = _hand_over(client, lock, what, lambda what=what: wanted.put(what))
                relay.seconds[what].append(had.get(timeout=10) - began)
        finally:
            wanted.put(None)
            waiter.join()
    yield from relay.figures()


async def _ahand_over(client: Any, lock: AsyncDistributedLock, what: str, invite: Any) -> float:
    handle = await lock.acquire(LOCK, ttl=_LEASE, wait=_WAIT)
    invite()
    await asyncio.sleep(_HEADSTART)
    if what == "lock":
        began = time.monotonic()
        await handle.release()
        return began
    began = time.monotonic()
    await client.lpush(LIST, "x")
    await handle.release()
    return began


async def _arelay_processes(stand: Stand, relay: _Relay) -> None:
    async with clients.aopened(stand.server.url) as client:
        with Child(wait_async, stand.server.url) as child:
            lock = AsyncDistributedLock(client)
            child.expect("ready")
            for what in relay.turns():
                began = await _ahand_over(client, lock, what, lambda what=what: child.tell(what))
                relay.seconds[what].append(child.expect("had")[1] - began)


async def _arelay_tasks(stand: Stand, relay: _Relay) -> None:
    async with clients.aopened(stand.server.url) as client:
        lock = AsyncDistributedLock(client)
        for what in relay.turns():
            waiting: list[asyncio.Task[float]] = []

            def invite(what: str = what, waiting: list[asyncio.Task[float]] = waiting) -> None:
                waiting.append(asyncio.create_task(_atake(client, lock, what)))

            began = await _ahand_over(client, lock, what, invite)
            relay.seconds[what].append(await waiting[0] - began)


def _async_processes(stand: Stand) -> Iterator[Figure]:
    relay = _Relay()
    asyncio.run(_arelay_processes(stand, relay))
    yield from relay.figures()


def _async_tasks(stand: Stand) -> Iterator[Figure]:
    relay = _Relay()
    asyncio.run(_arelay_tasks(stand, relay))
    yield from relay.figures()


HANDOFFS = (
    Scenario("handoff-processes-sync", "two processes", _sync_processes),
    Scenario("handoff-threads", "two threads of one process", _sync_threads),
    Scenario("handoff-processes-async", "two processes", _async_processes),
    Scenario("handoff-tasks", "two tasks of one process", _async_tasks),
)
