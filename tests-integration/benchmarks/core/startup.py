"""The import of fencekit, against that of redis-py, in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.figures import Figure, Scenario, Timings, at_most
from benchmarks.stand import Stand

__all__ = ["STARTUP"]

_ROUNDS = 15
_TIMED = "import time; a = time.perf_counter(); import {}; print(time.perf_counter() - a)"


def _measure(stand: Stand) -> Iterator[Figure]:
    timings = Timings(("redis", "fencekit"))
    with stand.pinned():
        for module in timings.rounds:
            _seconds(module)  # compiles what has not been compiled yet
        for _ in range(_ROUNDS):
            for module, rounds in timings.rounds.items():
                rounds.append(_seconds(module))
    ratio, note = 1 / timings.speed("fencekit", "redis"), timings.note("fencekit", "redis")
    yield Figure("time, of import redis", ratio, "×", at_most(1.3), note)


def _seconds(module: str) -> float:
    command = [sys.executable, "-c", _TIMED.format(module)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


STARTUP = (Scenario("import", "import fencekit in a fresh interpreter", _measure),)
