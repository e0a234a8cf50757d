"""Who is killed or frozen, and exactly where.

The runner arms a fault by telling a worker where to halt. The worker says that it stands there, and
waits; so the signal strikes at that very place, on a fast machine as on a slow one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from random import Random

from demo.messages import Point

__all__ = ["Action", "Fault", "Faults"]


class Action(Enum):
    """What is done to the worker."""

    KILL = "SIGKILL"
    FREEZE = "SIGSTOP"


@dataclass(frozen=True)
class Fault:
    """Something that happens to a worker.

    Attributes:
        after: it is due when so many deliveries are acknowledged.
        action: what happens.
        point: where.
    """

    after: int
    action: Action
    point: Point


# Frozen before its write to the ledger; and with the ledger written, but nothing else.
_FREEZES = (Point.WORKED, Point.COMMITTED)
# Half of them between COMMIT and complete, where the record cannot know what the ledger knows.
_KILLS = (
    Point.COMMITTED,
    Point.CLAIMED,
    Point.COMMITTED,
    Point.WRITING,
    Point.COMMITTED,
    Point.COMPLETED,
    Point.COMMITTED,
    Point.WORKED,
)
_DELIVERIES_PER_FAULT = 125
_FEWEST = 10


class Faults:
    """The faults of one run, in the order in which they become due."""

    def __init__(self, deliveries: int, seed: int) -> None:
        """Plan them for a run of so many deliveries: all are due when three quarters are done.

        Each delivery must be able to end well, so there are at most half as many faults.
        """
        random = Random(seed)
        number = max(_FEWEST, deliveries // _DELIVERIES_PER_FAULT)
        places = itertools.cycle(_KILLS)
        faults = [(Action.KILL, next(places)) for _ in range(number - len(_FREEZES))]
        for share, point in zip((0.2, 0.6), _FREEZES, strict=True):
            faults.insert(round(number * share), (Action.FREEZE, point))
        del faults[deliveries // 2 :]
        step = 0.75 * deliveries / max(len(faults), 1)
        self._waiting = [
            Fault(round(step * (place + random.random())), action, point)
            for place, (action, point) in enumerate(faults)
        ]

    def arm(self, acknowledged: int, *, may_freeze: bool) -> Fault | None:
        """Return a fault that is due, or None."""
        for fault in self._waiting:
            if fault.after > acknowledged:
                break
            if may_freeze or fault.action is Action.KILL:
                self._waiting.remove(fault)
                return fault
        return None

    def disarm(self, fault: Fault) -> None:
        """Take back a fault whose worker never came to that place: it is due again at once."""
        self._waiting.insert(0, fault)
