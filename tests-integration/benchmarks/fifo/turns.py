"""A FIFO lock's cycles and hand-offs against the bare EVALSHA of the same client.

Hand-offs a second, as a part of the rate of single ones. The target, 0.4 of the same client's rate
and 0.6 as an aim, comes from a prototype whose waiters were on one client, and holds for one: there
the reply to a release grants the next waiter the whole lease, so it is confirmed. Two clients stand
for two processes that take turns, which is the worst order they can have: each turn is pushed from
one to the other, and entered on its proof of freshness or, where that is taken away, when its
take-up is confirmed: two scripts and a message, where the bare rate has one script. Tasks that come
again at once take a new place each time, so they send two commands for each hand-off, too. For
these the aim is 0.4, and what is asked for is that they do not fall back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
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
_CROWD: Final = 500
_ROUNDS: Final = 9
_SECONDS: Final = 6.0
_FURTHER: Final = at_least(0.25, aim=0.4)


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
        clients.aopened(stand.server.url) as other,
    ):
        one = [FifoLock(client, "one")]
        two = [FifoLock(client, "two"), FifoLock(other, "two")]
        figures = [
            await _drained(stand, client, one, "one process"),
            await _drained(stand, client, two, "two processes in turn, fresh"),
            await _drained(stand, client, two, "the same, each take-up confirmed", confirm=True),
            await _contended(stand, client, one[0]),
        ]
        for user in (client, other):
            await AsyncDriver.of(user).aclose()
        return figures


async def _bare(stand: Stand, client: Any, count: int) -> None:
    for _ in range(count):
        await client.evalsha(stand.set_sha, 1, "bare", "token", LEASE_MS)


async def _drained(
    stand: Stand, client: Any, locks: list[FifoLock], what: str, *, confirm: bool = False
) -> Figure:
    """A queue that is there already: what a hand-off costs by itself."""
    target = at_least(0.4, aim=0.6) if len(locks) == 1 else _FURTHER
    loop, ratios = asyncio.get_running_loop(), []
    queue = f"fencekit:{{{locks[0].name}}}:queue"

    async def enter(lock: FifoLock) -> None:
        async with lock.hold():
            pass

    for _ in range(_ROUNDS):
        lease = await locks[0].acquire()
        tasks = []
        for number in range(_CROWD):
            tasks.append(asyncio.create_task(enter(locks[number % len(locks)])))
            while await client.xlen(queue) <= number:  # noqa: ASYNC110 - the server rings no bell
                await asyncio.sleep(0)  # in turn, as two connections are not by themselves
        with _unproven(locks) if confirm else nullcontext():
            began = loop.time()
            await locks[0].release(lease)
            await asyncio.gather(*tasks)
            took = loop.time() - began
        began = loop.time()
        await _bare(stand, client, _CROWD)
        ratios.append((loop.time() - began) / took)
    return Figure(f"{what}, a queue of {_CROWD}", median(ratios), "×", target)


@contextmanager
def _unproven(locks: list[FifoLock]) -> Iterator[None]:
    """Take away the proof of freshness: whoever is offered the lock asks first."""
    desks: list[Any] = [
        guest for lock in locks for guest in lock._driver.state().hub.guests.values()
    ]
    posts = [desk._post for desk in desks]
    for desk in desks:
        desk._post = None
    try:
        yield
    finally:
        for desk, post in zip(desks, posts, strict=True):
            desk._post = post


async def _contended(stand: Stand, client: Any, lock: FifoLock) -> Figure:
    """Tasks that come again at once: each hand-off then takes a new place in the queue, too."""

    async def one(times: int) -> None:
        for _ in range(times):
            async with lock.hold():
                pass

    async def ours(count: int) -> None:
        await asyncio.gather(*(one(max(count // TASKS, 1)) for _ in range(TASKS)))

    async def floor(count: int) -> None:
        await _bare(stand, client, count)

    timings = await arace({"one EVALSHA": floor, "ours": ours}, rounds=20, cycles=4 * TASKS)
    note = timings.note("ours", "one EVALSHA")
    return Figure(
        f"{TASKS} tasks that queue again at once",
        timings.speed("ours", "one EVALSHA"),
        "×",
        _FURTHER,
        note,
    )


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
    Scenario("fifo-handoff", "hand-offs a second, of the bare EVALSHA rate, one core", _handoff),
    Scenario("fifo-idle", "1,000 tasks wait, and nothing happens", _idle),
)
