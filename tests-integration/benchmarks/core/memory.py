"""What names leave behind in the server, and what a lock takes while it is held."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from benchmarks.figures import Figure, Scenario, exactly
from benchmarks.stand import Stand
from fencekit import AsyncDistributedLock
from harness import clients

__all__ = ["MEMORY"]

NAMES: Final = 100_000
HELD: Final = 5_000
_RETENTION: Final = timedelta(seconds=1)
_LEASE: Final = timedelta(milliseconds=1000)
_PATIENCE: Final = 15.0
_TASKS: Final = 100


async def _pass_through(stand: Stand, first: int, count: int, retention: timedelta) -> int:
    """Acquire and release each of so many names; returns the token of the first."""
    async with clients.aopened(stand.server.url) as client:
        lock = AsyncDistributedLock(client, fence_retention=retention)
        numbers = iter(range(first, first + count))
        token = 0

        async def work() -> None:
            nonlocal token
            for number in numbers:
                handle = await lock.acquire(f"name-{number}", ttl=_LEASE)
                if number == first:
                    token = handle.token.value
                await handle.release()

        await asyncio.gather(*(work() for _ in range(_TASKS)))
        return token


async def _hold(stand: Stand) -> tuple[float, float]:
    """Bytes that a held lock takes on the server, and its handle in the client."""
    async with clients.aopened(stand.server.url) as client:
        lock = AsyncDistributedLock(client)
        await (await lock.acquire("warm", ttl=_LEASE)).release()
        before = stand.memory()
        tracemalloc.start()
        handles = [await lock.acquire(f"held-{i}", ttl=timedelta(minutes=1)) for i in range(HELD)]
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return (stand.memory() - before) / len(handles), used / len(handles)


def _left(stand: Stand) -> Iterator[Figure]:
    before = stand.memory()
    asyncio.run(_pass_through(stand, 0, 10_000, timedelta(days=30)))
    alive = (stand.memory() - before) / 10_000
    stand.clean()
    before = stand.memory()
    first = asyncio.run(_pass_through(stand, 0, NAMES, _RETENTION))
    began = time.monotonic()
    while (left := int(stand.server.call("DBSIZE"))) and time.monotonic() - began < _PATIENCE:
        time.sleep(0.1)
    waited, bytes_left = time.monotonic() - began, stand.memory() - before
    again = asyncio.run(_pass_through(stand, 0, 1, _RETENTION))
    yield Figure(f"keys left of {NAMES:,} names", left, "", exactly(0), f"after {waited:.1f} s")
    yield Figure("bytes left per name", bytes_left / NAMES, "B")
    yield Figure("a token after that is higher", int(again > first), "", exactly(1))
    yield Figure("bytes per name between its uses", alive, "B", note="its fence record")


def _held(stand: Stand) -> Iterator[Figure]:
    on_server, in_client = asyncio.run(_hold(stand))
    yield Figure("server memory per held lock", on_server, "B", note="with its fence record")
    yield Figure("client memory per held lock", in_client, "B", note="its handle and its names")


MEMORY = (
    Scenario("left-behind", "names used once, and what remains when their time is over", _left),
    Scenario("held", f"{HELD:,} locks held by one client", _held),
)
