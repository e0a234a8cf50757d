"""Commands on Redis and time per task, against the bare task in the same worker.

The messages of a round are put beside the worker's queue first and moved in with one command, so
that sending them is not measured. A round ends when the last one is acknowledged.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.celery import tasks
from benchmarks.figures import Figure, Scenario, Timings, at_most
from benchmarks.stand import Stand
from harness.servers import Server
from harness.workers import Worker, close_app

__all__ = ["THROUGHPUT"]

ROUNDS: Final = 24
CYCLES: Final = 200
KINDS: Final = ("bare", "floor", "once", "locked")
_fresh = itertools.count()


def _measure(stand: Stand) -> Iterator[Figure]:
    server = stand.server
    tasks.app.conf.update(broker_url=server.url, result_backend=server.url)
    with Worker(server, app="benchmarks.celery.tasks", concurrency=2) as worker:
        worker.ready()
        for kind in KINDS:
            _round(server, kind, 50)
        counts = {kind: _count(stand, kind) for kind in KINDS}
        timings = Timings(KINDS)
        for index in range(ROUNDS):
            for kind in (*KINDS[index % len(KINDS) :], *KINDS[: index % len(KINDS)]):
                timings.rounds[kind].append(_round(server, kind, CYCLES) / CYCLES)
    close_app(tasks.app)
    more = {kind: counts[kind] - counts["bare"] for kind in KINDS}
    note = f"bare {counts['bare']:.1f}"
    yield Figure("commands more than the bare task", more["once"], "", at_most(3.05), note)
    yield Figure("the same with a lock", more["locked"], "", at_most(5.05), note)
    note = timings.note("bare", "once")
    yield Figure(
        "time of the bare task", 1 / timings.speed("once", "bare"), "×", at_most(1.15), note
    )
    note = timings.note("bare", "floor")
    yield Figure(
        "the same of two bare scripts by hand", 1 / timings.speed("floor", "bare"), "×", note=note
    )
    note = timings.note("bare", "locked")
    yield Figure("the same with a lock", 1 / timings.speed("locked", "bare"), "×", note=note)


def _send(kind: str, cycles: int) -> None:
    task: Any = tasks.app.tasks[kind]
    for _ in range(cycles):
        task.apply_async((f"{kind}-{next(_fresh)}",), queue="beside", ignore_result=False)


def _round(server: Server, kind: str, cycles: int) -> float:
    """Have the worker run so many messages; returns the seconds it took."""
    _send(kind, cycles)
    return _run(server)


def _run(server: Server) -> float:
    began = time.perf_counter()
    server.call("RENAME", "beside", "celery")
    while server.call("EXISTS", "celery", "unacked"):
        time.sleep(0.002)
    return time.perf_counter() - began


def _count(stand: Stand, kind: str) -> float:
    """Commands per task that the worker sent, those inside of scripts left out."""
    _send(kind, CYCLES)
    with stand.monitoring() as commands:
        _run(stand.server)
    return sum(b"unix:" not in line for line in commands) / CYCLES


THROUGHPUT = (
    Scenario("celery throughput", "a prefork worker with two processes; per task", _measure),
)
