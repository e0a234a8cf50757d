"""What a round took: seconds, processor time of the worker, and how much others computed meanwhile.

From Linux's ``/proc``; elsewhere others are not seen, and the worker's processor time is not known.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Effort", "Gauge"]

_PROC: Final = Path("/proc")
# user, nice, system, irq and softirq of the first line of /proc/stat, by their column.
_BUSY: Final = (1, 2, 3, 6, 7)


@dataclass
class Effort:
    """What a round took.

    Attributes:
        seconds: how long it lasted.
        worker: processor time of the worker and the children of its pool, seconds.
        others: what neither worker, server nor this process computed, as a part of all cores' time.
    """

    seconds: float = 0.0
    worker: float = math.nan
    others: float = 0.0


class Gauge:
    """Reads the clocks of a worker, its children, a server, and the whole machine."""

    def __init__(self, worker: int, server: int) -> None:
        self._known = _PROC.joinpath("stat").exists()
        self._worker = [worker, *(_children(worker) if self._known else ())]
        self._ours = [server, os.getpid()]

    @contextmanager
    def measuring(self) -> Iterator[Effort]:
        """Measure the block; what is yielded is filled in at its end."""
        effort = Effort()
        before, began = self._clocks(), time.perf_counter()
        yield effort
        effort.seconds = time.perf_counter() - began
        if self._known:
            worker, ours, machine = (
                now - then for now, then in zip(self._clocks(), before, strict=True)
            )
            effort.worker = worker
            capacity = effort.seconds * (os.cpu_count() or 1)
            effort.others = max(machine - worker - ours, 0.0) / capacity

    def _clocks(self) -> tuple[float, float, float]:
        if not self._known:
            return 0.0, 0.0, 0.0
        worker = sum(_computed(pid) for pid in self._worker)
        ours = sum(_computed(pid) for pid in self._ours)
        columns = _PROC.joinpath("stat").read_text().splitlines()[0].split()
        ticks = sum(int(columns[column]) for column in _BUSY)
        return worker, ours, ticks / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    return [int(child) for child in (_PROC / f"{pid}/task/{pid}/children").read_text().split()]


def _computed(pid: int) -> float:
    """Processor time of a process's threads, seconds."""
    threads = _PROC.joinpath(str(pid), "task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
