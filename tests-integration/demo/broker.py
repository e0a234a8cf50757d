"""Hand every delivery out until it is acknowledged: at least once, and often enough twice.

What SQS, RabbitMQ or Celery with ``acks_late`` do. A delivery comes again when the connection to
its worker breaks, when the worker asks for it, and when it is not acknowledged within the
*visibility timeout*, whether its worker still lives or not: nobody can tell.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from demo.deliveries import Delivery

__all__ = ["Broker"]


class Broker:
    """The queue between provider and workers.

    Attributes:
        handed_out: how often a delivery was given to a worker.
        timed_out: numbers of the deliveries that the visibility timeout brought back, to be
            emptied by who reads them.
    """

    def __init__(self, deliveries: Sequence[Delivery], visibility: float) -> None:
        """Queue the deliveries; each is the worker's for `visibility` seconds."""
        self._deliveries = deliveries
        self._visibility = visibility
        self._ready = deque(range(len(deliveries)))
        self._later: list[tuple[float, int]] = []
        self._out: dict[int, float] = {}
        self._settled: set[int] = set()
        self.handed_out = 0
        self.timed_out: list[int] = []

    @property
    def acknowledged(self) -> int:
        """How many deliveries are settled."""
        return len(self._settled)

    @property
    def done(self) -> bool:
        """Whether all are."""
        return self.acknowledged == len(self._deliveries)

    def is_settled(self, number: int) -> bool:
        """Whether a delivery need not come again."""
        return number in self._settled

    def take(self, now: float) -> Delivery | None:
        """Hand out the next delivery, or None when there is none just now."""
        self._bring_back(now)
        while self._ready:
            number = self._ready.popleft()
            if number not in self._settled and number not in self._out:
                self._out[number] = now + self._visibility
                self.handed_out += 1
                return self._deliveries[number]
        return None

    def acknowledge(self, number: int) -> bool:
        """Settle a delivery; returns whether it was not settled before."""
        first = number not in self._settled
        self._settled.add(number)
        self._out.pop(number, None)
        return first

    def defer(self, number: int, due: float) -> None:
        """Hand a delivery out again when it is due, unless it is settled by then."""
        self._out.pop(number, None)
        heapq.heappush(self._later, (due, number))

    def wakes_at(self) -> float | None:
        """When something may become ready by itself, or None."""
        times = [*self._out.values(), *(due for due, _ in self._later[:1])]
        return min(times, default=None)

    def _bring_back(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            self._ready.appendleft(heapq.heappop(self._later)[1])
        for number in [number for number, until in self._out.items() if until <= now]:
            del self._out[number]
            self._ready.appendleft(number)
            self.timed_out.append(number)
