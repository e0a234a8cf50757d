"""A FIFO lock's cycles and hand-offs against the bare EVALSHA of the same client.

Hand-offs are those of tasks that contend all the time: each also takes a place in the queue anew.
Between two clients the turn is pushed from one to the other, entered on its proof of freshness, or,
where that is taken away, confirmed first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from benchmarks.core.cycles import LEASE_MS, abare
from benchmarks.figures import Figure, Scenario, arace, at_least, at_most
from benchmarks.stand import Stand
from fencekit.drivers.aio import AsyncDriver
from fencekit.fifo import FifoLock
from harness import clients
from harness.waiting import eventually_async

__all__ = ["TURNS"]

TASKS: Final = 50
WAITERS: Final = 1000
_SECONDS: Final = 6.0


def _cycle(stand: Stand) -> Iterator[Figure]:
    with stand.pinned():
        yield from asyncio.run(_cycles(stand))


async def _cycles(stand: Stand) -> list[Figure]:
    async with clients.aopened(stand.server.url) as client:
        lock = FifoLock(client, "ours")

        async def ours(cycles: int) -> None:
            for _ in range(cycles):
                await lock.release(await lock.acquire())

        async def built(cycles: int) -> None:
            for _ in range(cycles):
                async with FifoLock(client, "built").hold():
                    pass

        contenders = {"floor": abare(stand, client), "ours": ours, "built for each use": built}
        timings = await arace(contenders, rounds=40, cycles=80)
        note = timings.note(*contenders)
        speed = timings.speed("ours", "floor")
        anew = timings.speed("built for each use", "floor")
        await AsyncDriver.of(client).aclose()
        return [
            Figure("speed, of two bare EVALSHA", speed, "×", at_least(0.8), note),
            Figure("the same, `hold` of a new lock object each time", anew, "×"),
        ]


def _handoff(stand: Stand) -> Iterator[Figure]:
    with stand.pinned():
        yield from asyncio.run(_handoffs(stand))


async def _handoffs(stand: Stand) -> list[Figure]:
    async with (
        clients.aopened(stand.server.url) as client,
        clients.aopened(stand.server.url) as second,
        clients.aopened(stand.server.url) as third,
    ):
        one, two, three = (
            FifoLock(client, "one-process"),
            FifoLock(second, "two-processes"),
            FifoLock(third, "two-processes"),
        )

        async def floor(count: int) -> None:
            for _ in range(count):
                await client.evalsha(stand.set_sha, 1, "bare", "token", LEASE_MS)

        contenders: dict[str, Callable[[int], Awaitable[None]]] = {
            "one EVALSHA": floor,
            "one process": _contend(one),
            "two, fresh": _contend(two, three),
            "two, confirmed": _confirmed(two, three),
        }
        timings = await arace(contenders, rounds=20, cycles=4 * TASKS)
        figures = [
            Figure(
                f"hand-offs, of the bare EVALSHA rate: {name}",
                timings.speed(name, "one EVALSHA"),
                "×",
                target,
                timings.note(name, "one EVALSHA"),
            )
            for name, target in (
                ("one process", at_least(0.4, aim=0.6)),
                ("two, fresh", None),
                ("two, confirmed", None),
            )
        ]
        drained = await _drained(stand, one, floor)
        for user in (client, second, third):
            await AsyncDriver.of(user).aclose()
        return [*figures, *drained]


def _contend(*locks: FifoLock) -> Callable[[int], Awaitable[None]]:
    async def one(lock: FifoLock, times: int) -> None:
        for _ in range(times):
            async with lock.hold():
                pass

    async def run(count: int) -> None:
        each = max(count // TASKS, 1)
        await asyncio.gather(*(one(locks[i % len(locks)], each) for i in range(TASKS)))

    return run


def _confirmed(*locks: FifoLock) -> Callable[[int], Awaitable[None]]:
    """The same without the proof of freshness: whoever is offered the lock asks first."""
    contend = _contend(*locks)

    async def run(count: int) -> None:
        desks: list[Any] = [
            guest for lock in locks for guest in lock._driver.state().hub.guests.values()
        ]
        posts = [desk._post for desk in desks]
        for desk in desks:
            desk._post = None
        try:
            await contend(count)
        finally:
            for desk, post in zip(desks, posts, strict=True):
                desk._post = post

    return run


async def _drained(
    stand: Stand, lock: FifoLock, floor: Callable[[int], Awaitable[None]]
) -> list[Figure]:
    """A queue that is there already: what a hand-off costs by itself."""
    queue = f"fencekit:{{{lock.name}}}:queue"

    async def drain(count: int) -> None:
        del count
        lease, entered = waiting[0]
        await lock.release(lease)
        await asyncio.gather(*entered)

    async def wait() -> None:
        async with lock.hold():
            pass

    waiting: list[Any] = []
    ratios, rounds, crowd = [], 10, 500
    loop = asyncio.get_running_loop()
    for _ in range(rounds):
        lease = await lock.acquire()
        waiting[:] = [(lease, [asyncio.create_task(wait()) for _ in range(crowd)])]
        await eventually_async(lambda: stand.server.call("XLEN", queue) == crowd, 30)
        began = loop.time()
        await drain(crowd)
        took = loop.time() - began
        began = loop.time()
        await floor(crowd)
        ratios.append((loop.time() - began) / took)
    ratio = sorted(ratios)[rounds // 2]
    return [
        Figure(
            "hand-offs, of the bare EVALSHA rate: a queue of 500",
            ratio,
            "×",
            at_least(0.4, aim=0.6),
        )
    ]


def _idle(stand: Stand) -> Iterator[Figure]:
    yield from asyncio.run(_idlers(stand))


async def _idlers(stand: Stand) -> list[Figure]:
    async with clients.aopened(stand.server.url) as client:
        before = stand.connections()
        lock = FifoLock(client, "idle")
        lease = await lock.acquire()
        memory = stand.memory()
        tasks = [asyncio.create_task(lock.acquire()) for _ in range(WAITERS)]
        queue = "fencekit:{idle}:queue"
        await eventually_async(lambda: stand.server.call("XLEN", queue) == WAITERS, 30)
        used = (stand.memory() - memory) / WAITERS
        await asyncio.sleep(0.5)
        with stand.monitoring() as commands:
            await asyncio.sleep(_SECONDS)
        rate = len(commands) / _SECONDS
        connections = stand.connections() - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await lock.release(lease)
        await AsyncDriver.of(client).aclose()
        return [
            Figure("commands while idle", rate, "/s", at_most(5)),
            Figure("connections of the waiting process", connections, "", at_most(4)),
            Figure("server memory for each waiter", used, "B", at_most(400)),
        ]


TURNS = (
    Scenario("fifo-cycle", "uncontended acquire + release, one core", _cycle),
    Scenario("fifo-handoff", "50 tasks contend for one name, one core", _handoff),
    Scenario("fifo-idle", "1,000 tasks wait, and nothing happens", _idle),
)
