"""The gate's write and a lock's extend: one command each, against one bare EVALSHA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.core.cycles import LEASE, LEASE_MS
from benchmarks.figures import Figure, Scenario, exactly, race
from benchmarks.stand import Stand
from fencekit import DistributedLock, FenceGate

__all__ = ["WRITES"]

_MONITORED = 50


def _measure(stand: Stand) -> Iterator[Figure]:
    with stand.client() as client, stand.pinned():
        lock, gate = DistributedLock(client), FenceGate(client)
        handle = lock.acquire("held", ttl=LEASE)

        def floor(cycles: int) -> None:
            for _ in range(cycles):
                client.evalsha(stand.set_sha, 1, "bare", "running", LEASE_MS)

        def plain(cycles: int) -> None:
            for _ in range(cycles):
                client.set("plain", "running")

        def write(cycles: int) -> None:
            for _ in range(cycles):
                gate.set_if_fresh(handle.token, "held:status", "running")

        def extend(cycles: int) -> None:
            for _ in range(cycles):
                handle.extend(LEASE)

        contenders: dict[str, Any] = {
            "floor": floor,
            "gate": write,
            "extend": extend,
            "plain SET": plain,
        }
        timings = race(contenders, rounds=32, cycles=150)
        with stand.monitoring() as writes:
            write(_MONITORED)
        with stand.monitoring() as extensions:
            extend(_MONITORED)
    note = timings.note("gate", "floor", "plain SET")
    yield Figure("gate write, of one bare EVALSHA", timings.speed("gate", "floor"), "×", note=note)
    yield Figure("gate write, of an unfenced SET", timings.speed("gate", "plain SET"), "×")
    yield Figure("commands per gate write", len(writes) / _MONITORED, "", exactly(1))
    note = timings.note("extend")
    yield Figure("extend, of one bare EVALSHA", timings.speed("extend", "floor"), "×", note=note)
    yield Figure("commands per extend", len(extensions) / _MONITORED, "", exactly(1))


WRITES = (Scenario("writes", "fenced writes and extends, sync, one core", _measure),)
