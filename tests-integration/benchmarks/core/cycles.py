"""Acquire + release, against two bare EVALSHA of the same client and against redis-py's Lock.

Sync and async, one after the other, and 50 tasks at once. Every contender has a key of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, Final

from benchmarks.figures import Figure, Scenario, Timings, arace, at_least, exactly, race
from benchmarks.stand import Cost, Stand
from fencekit import AsyncDistributedLock, DistributedLock
from harness import clients

__all__ = ["CYCLES", "abare", "bare"]

LEASE: Final = timedelta(seconds=30)
LEASE_MS: Final = 30_000
TASKS: Final = 50
_TARGET: Final = at_least(0.85, aim=0.90)
_COUNTED: Final = 1000
_MONITORED: Final = 50


def bare(stand: Stand, client: Any, key: str = "bare") -> Callable[[int], None]:
    """The floor: what any lock on this client pays."""

    def run(cycles: int) -> None:
        for _ in range(cycles):
            client.evalsha(stand.set_sha, 1, key, "token", LEASE_MS)
            client.evalsha(stand.del_sha, 1, key)

    return run


def abare(stand: Stand, client: Any, key: str = "bare") -> Callable[[int], Awaitable[None]]:
    """The floor of an async client."""

    async def run(cycles: int) -> None:
        for _ in range(cycles):
            await client.evalsha(stand.set_sha, 1, key, "token", LEASE_MS)
            await client.evalsha(stand.del_sha, 1, key)

    return run


def _ours(lock: DistributedLock) -> Callable[[int], None]:
    def run(cycles: int) -> None:
        for _ in range(cycles):
            lock.release(lock.acquire("ours", ttl=LEASE))

    return run


def _theirs(client: Any) -> Callable[[int], None]:
    lock = client.lock("theirs", timeout=LEASE.total_seconds())

    def run(cycles: int) -> None:
        for _ in range(cycles):
            lock.acquire()
            lock.release()

    return run


def _sync(stand: Stand) -> Iterator[Figure]:
    with stand.client() as client, stand.pinned():
        ours, floor = _ours(DistributedLock(client)), bare(stand, client)
        contenders = {"floor": floor, "ours": ours, "redis-py Lock": _theirs(client)}
        timings = race(contenders, rounds=60, cycles=120)
        yield from _speeds(timings)
        with stand.counting() as least:
            floor(_COUNTED)
        with stand.counting() as cost:
            ours(_COUNTED)
        with stand.monitoring() as commands:
            ours(_MONITORED)
    yield from _costs(cost, least, len(commands))


def _speeds(timings: Timings) -> Iterator[Figure]:
    note = timings.note("ours", "floor", "redis-py Lock")
    yield Figure("speed, of two bare EVALSHA", timings.speed("ours", "floor"), "×", _TARGET, note)
    theirs = timings.speed("redis-py Lock", "floor")
    yield Figure("redis-py's Lock, of the same", theirs, "×")
    ahead = timings.speed("ours", "redis-py Lock")
    yield Figure("speed, of redis-py's Lock", ahead, "×", at_least(1.0))


def _costs(cost: Cost, least: Cost, commands: int) -> Iterator[Figure]:
    yield Figure("commands per cycle", commands / _MONITORED, "", exactly(2))
    note = f"floor {least.bytes_in / _COUNTED:.0f}"
    yield Figure("bytes in per cycle", cost.bytes_in / _COUNTED, "B", note=note)
    note = f"floor {least.script_us / _COUNTED:.1f}"
    yield Figure("script time per cycle", cost.script_us / _COUNTED, "µs", note=note)


async def _async_speeds(stand: Stand) -> tuple[Timings, Cost, Cost, int]:
    async with clients.aopened(stand.server.url) as client:
        lock = AsyncDistributedLock(client)
        redis_lock = client.lock("theirs", timeout=LEASE.total_seconds())
        floor = abare(stand, client)

        async def ours(cycles: int) -> None:
            for _ in range(cycles):
                await lock.release(await lock.acquire("ours", ttl=LEASE))

        async def theirs(cycles: int) -> None:
            for _ in range(cycles):
                await redis_lock.acquire()
                await redis_lock.release()

        contenders = {"floor": floor, "ours": ours, "redis-py Lock": theirs}
        timings = await arace(contenders, rounds=60, cycles=80)
        with stand.counting() as least:
            await floor(_COUNTED)
        with stand.counting() as cost:
            await ours(_COUNTED)
        with stand.monitoring() as commands:
            await ours(_MONITORED)
        return timings, cost, least, len(commands)


def _async(stand: Stand) -> Iterator[Figure]:
    with stand.pinned():
        timings, cost, least, commands = asyncio.run(_async_speeds(stand))
    yield from _speeds(timings)
    yield from _costs(cost, least, commands)


async def _crowd(stand: Stand) -> tuple[Timings, int]:
    # Each kind with a client of its own: the floor's pool grows to 50 connections.
    async with (
        clients.aopened(stand.server.url, client_name="ours") as client,
        clients.aopened(stand.server.url) as other,
    ):
        lock = AsyncDistributedLock(client)

        async def one_of_ours(name: str, cycles: int) -> None:
            for _ in range(cycles):
                await lock.release(await lock.acquire(name, ttl=LEASE))

        async def ours(cycles: int) -> None:
            each = cycles // TASKS
            await asyncio.gather(*(one_of_ours(f"ours-{i}", each) for i in range(TASKS)))

        async def floor(cycles: int) -> None:
            each = cycles // TASKS
            await asyncio.gather(*(abare(stand, other, f"bare-{i}")(each) for i in range(TASKS)))

        await ours(TASKS)
        connections = stand.connections("ours")
        timings = await arace({"floor": floor, "ours": ours}, rounds=30, cycles=20 * TASKS)
        return timings, connections


def _many_tasks(stand: Stand) -> Iterator[Figure]:
    with stand.pinned():
        timings, connections = asyncio.run(_crowd(stand))
    speed, note = timings.speed("ours", "floor"), timings.note("ours", "floor")
    yield Figure("speed, of the bare EVALSHA of 50 tasks", speed, "×", at_least(1.5), note)
    yield Figure("connections", connections, "", exactly(1))


CYCLES = (
    Scenario("lock-sync", "acquire + release, one after the other, one core", _sync),
    Scenario("lock-async", "acquire + release, one after the other, one core", _async),
    Scenario("lock-async-50", "50 tasks on one client, a name each, one core", _many_tasks),
)
