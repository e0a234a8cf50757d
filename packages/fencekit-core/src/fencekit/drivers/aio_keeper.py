"""The lease keeper of the async driver: one timer renews all leases of a client and loop."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from typing import TYPE_CHECKING

from fencekit.drivers.keeper import MOST_LITTER, Kept
from fencekit.errors import FenceKitError
from fencekit.protocol.operation import Answer, Operation
from fencekit.protocol.renewal import Renewable, Renewal

if TYPE_CHECKING:
    from fencekit.drivers.loop_state import LoopState

__all__ = ["AsyncLeaseKeeper"]

_log = logging.getLogger("fencekit.keeper")

# How long the timer of a lease that was let go may stay, seconds.
_TIDY = 1.0


class AsyncLeaseKeeper:
    """Renews leases at a third of each, and tells holders that have lost theirs.

    Renewals travel on a connection of their own, all that are due in one pipeline.
    """

    def __init__(self, state: LoopState) -> None:
        self._state = state
        self._loop = state.loop
        self._queue: list[tuple[float, int, Kept]] = []
        self._order = itertools.count()
        self._litter = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tidying: asyncio.TimerHandle | None = None

    def keep(self, renewable: Renewable, schedule: Renewal) -> Kept:
        """Take a lease into care."""
        kept = Kept(renewable, schedule)
        self.care(kept)
        return kept

    def care(self, kept: Kept) -> None:
        """Take into care what was made elsewhere."""
        self._push(kept, kept.schedule.due(self._loop.time()).look_at)
        self._wind()

    def drop(self, kept: Kept) -> None:
        """Let a lease go. A renewal under way can neither create a lock nor report it lost."""
        kept.dropped = True
        self._litter += 1
        if self._litter > MOST_LITTER and self._litter * 2 > len(self._queue):
            # Locks held for moments, with leases of hours, would pile up for as long.
            self._queue = [entry for entry in self._queue if self._counts(*entry[1:])]
            heapq.heapify(self._queue)
            self._litter = 0
        if self._tidying is None and self._queue and self._queue[0][2] is kept:
            # Its timer is of no use any more, but not stopped at once: where a lock goes from hand
            # to hand, each lease would set a timer of its own, only to have it stopped.
            self._tidying = self._loop.call_later(_TIDY, self._tidy)

    def close(self) -> None:
        """Stop; leases in care run out."""
        self._queue.clear()
        for timer in (self._timer, self._tidying):
            if timer is not None:
                timer.cancel()
        self._timer = self._tidying = None

    def _tidy(self) -> None:
        """Stop a timer that is of no use any more."""
        self._tidying = None
        self._wind()

    def _push(self, kept: Kept, look_at: float) -> None:
        """Queue a lease for its next look, in place of the look it was queued for before.

        Were both to count, each renewal would leave one look more than it found, and renewals
        would multiply until the loop does nothing else.
        """
        kept.turn = next(self._order)
        heapq.heappush(self._queue, (look_at, kept.turn, kept))

    def _wind(self) -> None:
        """Set the timer to the next lease that is due."""
        while self._queue and not self._counts(*self._queue[0][1:]):
            heapq.heappop(self._queue)
        if self._timer is not None:
            if self._queue and self._timer.when() <= self._queue[0][0]:
                return
            self._timer.cancel()
            self._timer = None
        if self._queue:
            self._timer = self._loop.call_at(self._queue[0][0], self._ring)

    def _counts(self, turn: int, kept: Kept) -> bool:
        return turn == kept.turn and not kept.dropped

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._queue and self._queue[0][0] <= now:
            _, turn, kept = heapq.heappop(self._queue)
            if self._counts(turn, kept):
                try:
                    self._look_after(kept, now)
                except Exception:  # noqa: BLE001 - one error never kills the keeper
                    _log.exception("lease keeper: unexpected error")
        self._wind()

    def _look_after(self, kept: Kept, now: float) -> None:
        todo = kept.schedule.due(now)
        if todo.lost:
            kept.dropped = True
            kept.renewable.lose()
            return
        if todo.renew:
            kept.note_lateness(now)
            operation = kept.renewal()
            # Until it is settled, only the loss of the lease is looked for.
            self._push(kept, todo.look_at)
            future = self._state.submit_once(operation)
            future.add_done_callback(lambda done: self._settle(kept, operation, done))
            return
        self._push(kept, todo.look_at)

    def _settle(
        self, kept: Kept, operation: Operation[int | None], done: asyncio.Future[Answer]
    ) -> None:
        outcome: Answer | FenceKitError | None = None
        try:
            outcome = done.result()
        except asyncio.CancelledError:
            pass
        except FenceKitError as error:
            outcome = error
        kept.settle(operation, outcome)
        if not kept.dropped:
            self._push(kept, kept.schedule.due(self._loop.time()).look_at)
            self._wind()
