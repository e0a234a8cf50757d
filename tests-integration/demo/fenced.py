"""The job done with fencekit: each event takes effect once, whoever dies or oversleeps.

Three things work together:

- the *guard* knows what is done and who is at it, so that a delivery that comes again is answered
  from its record, or told to come back later;
- the *lock* lets one worker at a time change an account;
- the *fence* is for the worker that was stopped past its lease, and cannot know it: its tokens are
  older than those of its successors, and whoever keeps the data refuses them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from demo.ledger import StaleRow
from demo.messages import Begun, Entered, Finished, How, LeaseLost, Point, Refused, Reporter
from fencekit import (
    BeginOutcome,
    DistributedLock,
    FencedOutError,
    FenceGate,
    IdempotencyGuard,
    IdempotencyNotOwned,
    IdempotencyPayloadMismatch,
    LockNotAcquired,
    LockNotOwned,
)

if TYPE_CHECKING:
    from redis import Redis

    from demo.bank import Bank
    from demo.deliveries import Event
    from demo.ledger import Ledger
    from fencekit import Claim, LockHandle

__all__ = ["LEASE", "FencedWorker"]

# Short, so that the demo is; thirty seconds are more usual. Renewed as long as the worker lives.
LEASE: Final = timedelta(seconds=1.5)
# How long an event's record answers later deliveries.
_KEPT: Final = timedelta(hours=24)
# How long to wait for an account before the delivery is put back.
_PATIENCE: Final = timedelta(seconds=0.2)
_SOON: Final = timedelta(seconds=0.1)


class FencedWorker:
    """Does jobs with fencekit."""

    def __init__(self, redis: Redis, ledger: Ledger, bank: Bank, report: Reporter) -> None:
        self._guard = IdempotencyGuard(redis)
        self._lock = DistributedLock(redis)
        self._gate = FenceGate(redis)
        self._ledger = ledger
        self._bank = bank
        self._report = report

    def do(self, event: Event) -> Finished:
        """Have an event take effect, unless it has."""
        try:
            return self._claim(event)
        except IdempotencyPayloadMismatch:
            # Neither run nor replayed: this is for a person to look at.
            return Finished(How.CONFLICT)
        except FencedOutError as refusal:
            by = "ledger" if isinstance(refusal, StaleRow) else "gate"
            self._report.tell(Refused(by, refusal.token, refusal.current))
        except (IdempotencyNotOwned, LockNotOwned):
            self._report.tell(LeaseLost())
        return Finished(How.SHUT_OUT)

    def _claim(self, event: Event) -> Finished:
        with self._guard.begin(
            f"webhook:{event.id}", ttl=_KEPT, lease=LEASE, payload=event.payload
        ) as claim:
            if claim.replayed:
                return Finished(How.REPLAYED, claim.result)
            if not claim.started:
                return _later(claim.retry_after or _SOON)
            reclaimed = claim.outcome is BeginOutcome.RECLAIMED
            self._report.tell(Begun(claim.fence.value, claim.attempt, reclaimed))
            self._report.at(Point.CLAIMED)
            try:
                with self._lock.hold(
                    f"account:{event.balance}", ttl=LEASE, wait=_PATIENCE
                ) as handle:
                    finished = self._work(event, claim, handle)
            except LockNotAcquired as busy:
                claim.release()
                return _later(timedelta(milliseconds=busy.retry_after_ms))
        self._report.at(Point.COMPLETED)
        return finished

    def _work(self, event: Event, claim: Claim, handle: LockHandle) -> Finished:
        amount = self._ledger.enter_account(handle.token, event.balance)
        self._report.tell(Entered(handle.token.value, amount))
        if self._ledger.result(event.id) is None:
            self._bank.confirm(event)
        self._report.at(Point.WORKED)
        self._notice_loss(claim)
        with self._ledger.transaction():
            result = self._ledger.enter_event(claim.fence, event.id)
            how = How.RAN if result is None else How.FOUND
            if result is None:
                amount += event.change
                result = self._ledger.post(handle.token, event, amount)
            self._report.at(Point.WRITING)
        self._report.at(Point.COMMITTED)
        self._notice_loss(claim)
        self._gate.set_if_fresh(handle.token, f"balance:{event.balance}", amount)
        claim.complete(result)
        return Finished(how, result)

    def _notice_loss(self, claim: Claim) -> None:
        """Tell of a lost lease, and go on all the same.

        A careful program stops here. But it may as well be frozen right after it has looked, so the
        demo goes on to show who refuses the write.
        """
        if claim.lost.is_set():
            self._report.tell(LeaseLost())


def _later(delay: timedelta) -> Finished:
    return Finished(How.BUSY, retry_after=delay.total_seconds())
