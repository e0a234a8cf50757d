"""What the keeper sends besides renewals: the beat of each name, and single errands."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import random
from typing import TYPE_CHECKING, Any

from fencekit.drivers.keeper import Kept
from fencekit.errors import FenceKitError
from fencekit.protocol.operation import Answer, Operation
from fencekit.protocol.renewal import Due, Renewal

if TYPE_CHECKING:
    from fencekit.fifo.desk import Room

__all__ = ["Beat", "Errand"]

# Until an answer has come, or is known not to come, nothing else is sent, seconds.
_UNSETTLED = 5.0
# After a beat that was not answered.
_RETRY = 0.5
# Processes that wait for one expiry do not ask at the same instant.
_SPREAD = 0.01
_SHORTEST = 0.005


class _Rhythm(Renewal):
    """A schedule that knows when the next is due, and nothing that could be lost."""

    def __init__(self, at: float) -> None:
        super().__init__(lease=0.0, deadline=at)
        self.at = at
        self.flying_until = float("-inf")

    @property
    def lost_at(self) -> float:
        """Never."""
        return float("inf")

    def due(self, now: float) -> Due:
        """Whether to send now, and when to look again."""
        if now < self.flying_until:
            return Due(lost=False, renew=False, look_at=self.flying_until)
        return Due(lost=False, renew=now >= self.at, look_at=self.at)

    def late(self, now: float) -> bool:
        """A late beat costs nobody a lease."""
        del now
        return False


class _Sent(Kept):
    """Something that is not a lease, in the keeper's care."""

    __slots__ = ("_name", "_operation", "rhythm")

    def __init__(self, name: str, operation: Callable[[], Operation[Any]], at: float) -> None:
        self.rhythm = _Rhythm(at)
        self._name = name
        self._operation = operation
        super().__init__(self, self.rhythm)

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._name

    def renew_operation(self) -> Operation[Any]:
        """What is sent."""
        self.rhythm.flying_until = time.monotonic() + _UNSETTLED
        return self._operation()

    def confirmed(self, deadline: float) -> None:
        """There is no lease."""

    def lose(self) -> None:
        """There is no lease."""


class Beat(_Sent):
    """The beats of one name, each scheduled by the reply to the last."""

    __slots__ = ("_again", "_room")

    def __init__(self, room: Room, at: float) -> None:
        super().__init__(room.terms.names.name, room.beat_operation, at)
        self._room = room
        self._again = False

    def hurry(self) -> bool:
        """Have another follow at once the one that is under way; False if none is."""
        self._again = time.monotonic() < self.rhythm.flying_until
        return self._again

    def settle(self, operation: Operation[Any], outcome: Answer | FenceKitError | None) -> None:
        """Take in the reply, and schedule the next beat."""
        del operation
        if self.dropped:
            return
        with self._room.desk.lock:
            pause = min(_RETRY, self._room.pause)
            if isinstance(outcome, Answer):
                pause = self._room.beaten(outcome)
            spread = random() * _SPREAD  # noqa: S311 - jitter, not a secret
            again, self._again = self._again, False
            now = time.monotonic()
            self.rhythm.at = now if again else now + max(pause + spread, _SHORTEST)
            self.rhythm.flying_until = float("-inf")


class Errand(_Sent):
    """One command whose outcome nobody waits for."""

    __slots__ = ("_settled",)

    def __init__(
        self,
        name: str,
        operation: Operation[Any],
        settled: Callable[[Operation[Any], Answer | FenceKitError | None], None],
        at: float,
    ) -> None:
        super().__init__(name, lambda: operation, at)
        self._settled = settled

    def settle(self, operation: Operation[Any], outcome: Answer | FenceKitError | None) -> None:
        """Take in the reply; without one it is not tried again."""
        self.dropped = True
        self._settled(operation, outcome)
