"""The lease keeper of the sync driver: one thread renews all leases of a client, in pipelines."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from fencekit.errors import FenceKitError
from fencekit.protocol.operation import Answer, Operation
from fencekit.protocol.renewal import Renewable, Renewal

if TYPE_CHECKING:
    from fencekit.drivers.sync import SyncDriver

__all__ = ["Kept", "LeaseKeeper"]

_log = logging.getLogger("fencekit.keeper")

# A renewal that is not answered within this is tried again on a fresh connection, seconds.
TIMEOUT = 1.0
_SHORTEST_WAIT = 0.02
# How many leases that were let go may stay queued, if they are less than half of all.
MOST_LITTER = 64
# The thread ends when there has been nothing to keep for this long, seconds.
_LINGER = 10.0


class Kept:
    """One lease in the keeper's care.

    Attributes:
        renewable: what is renewed.
        schedule: when.
        dropped: it was let go; whatever still arrives for it is nobody's.
        turn: the one place in the async keeper's queue that counts.
        warned: its lateness was reported.
    """

    __slots__ = ("_asked_for", "dropped", "renewable", "schedule", "turn", "warned")

    def __init__(self, renewable: Renewable, schedule: Renewal) -> None:
        self.renewable = renewable
        self.schedule = schedule
        self.dropped = False
        self.turn = 0
        self.warned = False
        self._asked_for = 0.0

    def renewal(self) -> Operation[int | None]:
        """The command that extends the lease by its present length."""
        # Its holder may extend it to another length before this one is answered.
        self._asked_for = self.schedule.lease
        return self.renewable.renew_operation()

    def settle(
        self, operation: Operation[int | None], outcome: Answer | FenceKitError | None
    ) -> None:
        """Take in what became of one renewal.

        Args:
            operation: what was sent.
            outcome: the answer, an error, or None when nothing was heard.
        """
        if self.dropped:
            return
        if not isinstance(outcome, Answer):
            self.schedule.retry(time.monotonic())
            if outcome is not None:
                _log.debug("renewal of %r: %s", self.renewable.name, outcome)
        elif operation.parse(outcome.reply) is None:
            self.dropped = True
            self.renewable.lose()
        else:
            self.schedule.confirm(outcome.sent_at, self._asked_for)
            self.renewable.confirmed(self.schedule.deadline)

    def note_lateness(self, now: float) -> None:
        """Warn once when a renewal comes so late that the next pause may cost the lease."""
        if not self.warned and self.schedule.late(now):
            self.warned = True
            _log.warning(
                "the renewal of %r comes %.1f s late, with a lease of %.1f s: this process was "
                "stopped or starved; a longer lease, or less work under the interpreter lock, "
                "would help",
                self.renewable.name,
                now - self.schedule.next_renewal,
                self.schedule.lease,
                extra={
                    "event": "fencekit.lease.late",
                    "fencekit": {
                        "name": self.renewable.name,
                        "late_ms": (now - self.schedule.next_renewal) * 1000,
                        "lease_ms": self.schedule.lease * 1000,
                    },
                },
            )


class LeaseKeeper:
    """Renews leases at a third of each, and tells holders that have lost theirs."""

    def __init__(self, driver: SyncDriver) -> None:
        self._driver = driver
        self._timeout = driver.client.timeout
        self._courier: SyncDriver | None = None
        self._queue: list[tuple[float, int, Kept]] = []
        self._order = itertools.count()
        self._litter = 0
        # When the thread looks at the queue next, whatever happens; before all while it is awake.
        self._wakes_at = -math.inf
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closing = False

    def keep(self, renewable: Renewable, schedule: Renewal) -> Kept:
        """Take a lease into care."""
        kept = Kept(renewable, schedule)
        self.care(kept)
        return kept

    def care(self, kept: Kept) -> None:
        """Take into care what was made elsewhere."""
        with self._lock:  # not through the condition, which takes twice as long
            self._closing = False  # whoever closes it meanwhile does so for those before
            self._push(kept, kept.schedule.look_at)
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="fencekit-keeper", daemon=True)
                try:
                    thread.start()
                except BaseException:  # no thread to be had
                    kept.dropped = True
                    raise
                self._thread = thread
            elif self._queue[0][0] < self._wakes_at:
                # Else it looks in time by itself: waking it for each lease costs short work much.
                self._changed.notify()

    def drop(self, kept: Kept) -> None:
        """Let a lease go. A renewal under way can neither create a lock nor report it lost."""
        kept.dropped = True
        with self._lock:
            queue = self._queue
            if queue and queue[-1][2] is kept:
                # The last of a heap can go. Work that begins and ends one at a time then leaves
                # nothing behind, and the next one's objects are made where its were.
                queue.pop()
                return
            self._litter += 1
            if self._litter > MOST_LITTER and self._litter * 2 > len(queue):
                # Locks held for moments, with leases of hours, would pile up for as long.
                self._queue = [entry for entry in queue if not entry[2].dropped]
                heapq.heapify(self._queue)
                self._litter = 0

    def close(self) -> None:
        """End the thread; leases in care run out."""
        with self._changed:
            self._closing = True
            self._queue.clear()
            thread = self._thread
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(TIMEOUT * 2)

    def abandon(self) -> None:
        """Have the thread end by itself, and its connection with it; waits for no lock."""
        self._closing = True
        if self._changed.acquire(blocking=False):
            self._changed.notify()
            self._changed.release()
        if self._thread is None and self._courier is not None:
            self._courier.abandon()

    def _push(self, kept: Kept, look_at: float) -> None:
        heapq.heappush(self._queue, (look_at, next(self._order), kept))

    def _serve(self) -> None:
        while True:
            try:
                due = self._wait()
                if due is None:
                    return
                self._look_after(due)
            except Exception:  # noqa: BLE001 - one error never kills the keeper
                _log.exception("lease keeper: unexpected error")

    def _wait(self) -> list[Kept] | None:
        """Sleep until something is due; None when there has been nothing to do for a while."""
        with self._changed:
            idle_since = time.monotonic()
            while True:
                while self._queue and self._queue[0][2].dropped:
                    heapq.heappop(self._queue)
                now = time.monotonic()
                if self._closing or (not self._queue and now - idle_since >= _LINGER):
                    self._thread = None
                    if self._courier is not None:
                        self._courier.close()
                    return None
                if self._queue and self._queue[0][0] <= now:
                    break
                # Not longer, even for a lease of hours: it may have been let go.
                left = self._queue[0][0] - now if self._queue else _LINGER
                self._wakes_at = now + min(left, _LINGER)
                self._changed.wait(self._wakes_at - now)
                self._wakes_at = -math.inf
            due = []
            while self._queue and self._queue[0][0] <= now:
                kept = heapq.heappop(self._queue)[2]
                if not kept.dropped:
                    due.append(kept)
            return due

    def _look_after(self, due: list[Kept]) -> None:
        now = time.monotonic()
        renewing = []
        for kept in due:
            todo = kept.schedule.due(now)
            if todo.lost:
                self._lose(kept)
            elif todo.renew:
                kept.note_lateness(now)
                renewing.append(kept)
        try:
            if renewing:
                self._renew(renewing)
        finally:
            with self._changed:
                now = time.monotonic()
                for kept in due:
                    if not kept.dropped:
                        self._push(kept, kept.schedule.due(now).look_at)

    def _lose(self, kept: Kept) -> None:
        kept.dropped = True
        try:
            kept.renewable.lose()
        except Exception:  # noqa: BLE001 - one holder's trouble is not another's
            _log.exception("telling the holder of %r that it is lost", kept.renewable.name)

    def _renew(self, renewing: list[Kept]) -> None:
        if self._courier is None:
            self._courier = type(self._driver)(replace(self._driver.client, share=1))
        operations = [kept.renewal() for kept in renewing]
        outcomes = self._courier.try_many(operations, timeout=self._time_to_wait(renewing))
        for kept, operation, outcome in zip(renewing, operations, outcomes, strict=True):
            kept.settle(operation, outcome)

    def _time_to_wait(self, renewing: list[Kept]) -> float:
        """How long to wait for an answer, seconds: no longer than until some lease is lost."""
        with self._changed:
            others = [kept for _, _, kept in self._queue if not kept.dropped]
        first = min(kept.schedule.lost_at for kept in (*renewing, *others))
        return min(max(first - time.monotonic(), _SHORTEST_WAIT), TIMEOUT, self._timeout)
