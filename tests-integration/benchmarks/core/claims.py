"""Begin, complete and replay of an idempotency record, against three bare EVALSHA.

The floor of a record is the floor of a lock: one EVALSHA that sets a key, for each of the three.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from benchmarks.figures import Figure, Scenario, Timings, arace, at_least, exactly, race
from benchmarks.stand import Cost, Stand
from fencekit.idempotency import AsyncIdempotencyGuard, IdempotencyGuard
from harness import clients

__all__ = ["CLAIMS"]

KEEP: Final = timedelta(minutes=5)
KEEP_MS: Final = 300_000
RESULT: Final = {"id": "evt_1024", "status": "captured", "amount": 1999}
_TARGET: Final = at_least(0.80)
_COUNTED: Final = 500
_MONITORED: Final = 50


def _sync(stand: Stand) -> Iterator[Figure]:
    fresh = itertools.count()
    with stand.client() as client, stand.pinned():
        guard = IdempotencyGuard(client)

        def floor(cycles: int) -> None:
            for _ in range(cycles):
                key = f"bare:{next(fresh)}"
                for _ in range(3):
                    client.evalsha(stand.set_sha, 1, key, "value", KEEP_MS)

        def ours(cycles: int) -> None:
            for _ in range(cycles):
                key = f"key-{next(fresh)}"
                guard.begin(key, ttl=KEEP, renew=False).complete(RESULT)
                assert guard.begin(key, ttl=KEEP, renew=False).result == RESULT

        timings = race({"floor": floor, "ours": ours}, rounds=40, cycles=80)
        with stand.counting() as least:
            floor(_COUNTED)
        with stand.counting() as cost:
            ours(_COUNTED)
        with stand.monitoring() as commands:
            ours(_MONITORED)
        renewed = race(
            {"floor": floor, "ours": lambda cycles: _run(guard, fresh, cycles)},
            rounds=20,
            cycles=60,
        )
    yield from _figures(timings, cost, least, len(commands))
    note = renewed.note("ours", "floor")
    yield Figure("run twice, renewed by the keeper", renewed.speed("ours", "floor"), "×", note=note)


def _run(guard: IdempotencyGuard, fresh: Iterator[int], cycles: int) -> None:
    for _ in range(cycles):
        key = f"run-{next(fresh)}"
        for _ in range(2):
            guard.run(key, lambda: RESULT, ttl=KEEP)


def _figures(timings: Timings, cost: Cost, least: Cost, commands: int) -> Iterator[Figure]:
    note = timings.note("ours", "floor")
    speed = timings.speed("ours", "floor")
    yield Figure("begin + complete + replay, of three bare EVALSHA", speed, "×", _TARGET, note)
    yield Figure("commands for the three", commands / _MONITORED, "", exactly(3))
    note = f"floor {least.bytes_in / _COUNTED:.0f}"
    yield Figure("bytes in for the three", cost.bytes_in / _COUNTED, "B", note=note)
    note = f"floor {least.script_us / _COUNTED:.1f}"
    yield Figure("script time for the three", cost.script_us / _COUNTED, "µs", note=note)


async def _async_timings(stand: Stand) -> tuple[Timings, Cost, Cost, int]:
    fresh = itertools.count()
    async with clients.aopened(stand.server.url) as client:
        guard = AsyncIdempotencyGuard(client)

        async def floor(cycles: int) -> None:
            for _ in range(cycles):
                key = f"bare:{next(fresh)}"
                for _ in range(3):
                    await client.evalsha(stand.set_sha, 1, key, "value", KEEP_MS)

        async def ours(cycles: int) -> None:
            for _ in range(cycles):
                key = f"key-{next(fresh)}"
                claim = await guard.begin(key, ttl=KEEP, renew=False)
                await claim.complete(RESULT)
                assert (await guard.begin(key, ttl=KEEP, renew=False)).result == RESULT

        timings = await arace({"floor": floor, "ours": ours}, rounds=40, cycles=60)
        with stand.counting() as least:
            await floor(_COUNTED)
        with stand.counting() as cost:
            await ours(_COUNTED)
        with stand.monitoring() as commands:
            await ours(_MONITORED)
        return timings, cost, least, len(commands)


def _async(stand: Stand) -> Iterator[Figure]:
    with stand.pinned():
        measured = asyncio.run(_async_timings(stand))
    yield from _figures(*measured)


CLAIMS = (
    Scenario("claim-sync", "one idempotent job and its replay, one core", _sync),
    Scenario("claim-async", "one idempotent job and its replay, one core", _async),
)
