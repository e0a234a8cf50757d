"""Commands on Redis and time per task, against the bare task in the same worker.

The messages of a round are put beside the worker's queue first and moved in with one command, so
that sending them is not measured. A round ends when the last one is acknowledged.

Four processes work on two cores, so whatever else runs there is measured too. A round is compared
with the bare task's of the same turn, and only where others left both alone: the kernel's count of
all that was computed, less what worker, server and this process did, is at most a tenth of what the
cores can do. Where too few such rounds are left, all of them count, and the note says so.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from benchmarks.celery import tasks
from benchmarks.celery.effort import Effort, Gauge
from benchmarks.figures import Figure, Scenario, at_most
from benchmarks.stand import Stand
from harness.servers import Server
from harness.workers import Worker, close_app

__all__ = ["THROUGHPUT"]

ROUNDS: Final = 40
CYCLES: Final = 120
# What others may take of a round, and how many pairs of such rounds are enough.
ALONE: Final = 0.1
ENOUGH: Final = 8
KINDS: Final = ("bare", "floor", "once", "apart", "locked")
_fresh = itertools.count()


def _measure(stand: Stand) -> Iterator[Figure]:
    server = stand.server
    tasks.app.conf.update(broker_url=server.url, result_backend=server.url)
    with Worker(server, app="benchmarks.celery.tasks", concurrency=2) as worker:
        worker.ready()
        gauge = Gauge(worker.process.pid, server.pid)
        for kind in KINDS:
            _round(gauge, server, kind, 50)
        counts = {kind: _count(stand, kind) for kind in KINDS}
        rounds: dict[str, list[Effort]] = {kind: [] for kind in KINDS}
        for index in range(ROUNDS):
            for kind in (*KINDS[index % len(KINDS) :], *KINDS[: index % len(KINDS)]):
                rounds[kind].append(_round(gauge, server, kind, CYCLES))
    close_app(tasks.app)
    more = {kind: counts[kind] - counts["bare"] for kind in KINDS}
    note = f"bare {counts['bare']:.1f}"
    yield Figure("commands more than the bare task", more["once"], "", at_most(3.05), note)
    yield Figure("the same with results in another database", more["apart"], "", None, note)
    yield Figure("the same with a lock", more["locked"], "", at_most(5.05), note)
    yield _time("time of the bare task", rounds, "once", bound=1.15)
    yield _time("the same of two bare scripts by hand", rounds, "floor")
    yield _time("the same with results in another database", rounds, "apart")
    yield _time("the same with a lock", rounds, "locked")
    for kind in ("once", "floor"):
        pairs = zip(rounds["bare"], rounds[kind], strict=True)
        value = median(ours.worker / bare.worker for bare, ours in pairs)
        yield Figure(f"processor time of the worker, {kind}", value, "×")


def _time(
    what: str, rounds: dict[str, list[Effort]], kind: str, *, bound: float | None = None
) -> Figure:
    pairs = list(zip(rounds["bare"], rounds[kind], strict=True))
    alone = [pair for pair in pairs if max(one.others for one in pair) <= ALONE]
    used = alone if len(alone) >= ENOUGH else pairs
    bare, ours = (median(one.seconds for one in side) / CYCLES for side in zip(*used, strict=True))
    note = f"bare {bare * 1e6:.0f} µs, {kind} {ours * 1e6:.0f} µs; {len(alone)} of {len(pairs)} "
    note += "rounds undisturbed" if used is alone else "rounds undisturbed: too few, all count"
    value = median(ours.seconds / bare.seconds for bare, ours in used)
    return Figure(what, value, "×", None if bound is None else at_most(bound), note)


def _send(kind: str, cycles: int) -> None:
    task: Any = tasks.app.tasks[kind]
    for _ in range(cycles):
        task.apply_async((f"{kind}-{next(_fresh)}",), queue="beside", ignore_result=False)


def _round(gauge: Gauge, server: Server, kind: str, cycles: int) -> Effort:
    """Have the worker run so many messages."""
    _send(kind, cycles)
    with gauge.measuring() as effort:
        _run(server)
    return effort


def _run(server: Server) -> None:
    server.call("RENAME", "beside", "celery")
    while server.call("EXISTS", "celery", "unacked"):
        # Far below a round; looking all the time would take a core from the worker.
        time.sleep(0.002)


def _count(stand: Stand, kind: str) -> float:
    """Commands per task that the worker sent, those inside of scripts left out."""
    _send(kind, CYCLES)
    with stand.monitoring() as commands:
        _run(stand.server)
    return sum(b"unix:" not in line for line in commands) / CYCLES


THROUGHPUT = (
    Scenario("celery throughput", "a prefork worker with two processes; per task", _measure),
)
