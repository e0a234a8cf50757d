"""Leases: locks that are held, and how their holders learn that they are lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fencekit.fifo.protocol import FifoGrant, Ticket, renew_operation
from fencekit.handles import AsyncLostEvent, BaseHandle, LostEvent
from fencekit.protocol.lock import Verdict
from fencekit.protocol.operation import Operation
from fencekit.protocol.renewal import Renewal
from fencekit.protocol.token import FenceToken

if TYPE_CHECKING:
    from fencekit.fifo.desk import Desk

__all__ = ["BaseLease", "Lease", "SyncLease"]

# A take-up sent without waiting is asked for again after this part of an offer.
_ASK_AGAIN = 8


class BaseLease(BaseHandle):
    """What both colours of lease know; renewed by the keeper until it is released."""

    def __init__(
        self,
        ticket: Ticket,
        grant: FifoGrant,
        desk: Desk,
        report_lost: Callable[[BaseHandle], None] | None,
    ) -> None:
        super().__init__(grant, None, report_lost)
        self.ticket = ticket
        self._fifo_grant = grant
        self._desk = desk
        if grant.take_up is not None:
            grant.take_up.settled = self._taken_up
            self._taken_up()

    @property
    def fence(self) -> FenceToken:
        """The fencing token of this grant."""
        return self._fifo_grant.token

    @property
    def position_at_entry(self) -> int:
        """How many were queued ahead when this waiter came; the holder is not counted."""
        return self._fifo_grant.before

    @property
    def released(self) -> bool:
        """Whether it was given back."""
        return self.verdict in {Verdict.RELEASED, Verdict.RELEASED_BEFORE}

    def left(self) -> None:
        """It was given back, or is somebody else's: messages that name it are for nobody."""
        self._desk.left(self.ticket.claimant.attempt)

    def ticket_at(self, desk: Desk) -> Ticket:
        """The ticket, to be released by whoever sits at that desk: it is told who is next."""
        if self.ticket.channel == desk.channel:
            return self.ticket
        return replace(self.ticket, channel=desk.channel)

    def fifo_grant(self) -> FifoGrant:
        """The grant, to release it by.

        Raises:
            HandleForked: the lease was taken before a fork, and is the parent's.
        """
        self.grant_for(None)
        return self._fifo_grant

    def schedule(self, max_hold: float) -> Renewal:
        """When the keeper renews this lease, and until when."""
        grant, now = self._fifo_grant, time.monotonic()
        schedule = Renewal(
            self.ticket.terms.lease_ms / 1000, grant.deadline, hold_until=now + max_hold
        )
        if grant.take_up is not None and grant.take_up.deadline is None:
            schedule.next_renewal = now + self.ticket.terms.offer / _ASK_AGAIN
        return schedule

    def renew_operation(self) -> Operation[int | None]:
        """The command that renews the lease, or takes up its offer."""
        return renew_operation(self.ticket, self._fifo_grant.token)

    def lose(self) -> None:
        """The lease is lost: tell everybody who asked."""
        self.left()
        super().lose()

    def _taken_up(self) -> None:
        """The take-up under way was answered, perhaps."""
        take_up = self._fifo_grant.take_up
        if take_up is None:
            return
        if take_up.refused:
            if self.kept is not None:
                self.kept.dropped = True
            self.lose()
        elif take_up.deadline is not None:
            self.confirmed(take_up.deadline)
            if self.kept is not None:
                self.kept.schedule.confirm(take_up.sent_at)


class Lease(BaseLease):
    """A lock that is held, by whichever task has the lease."""

    _lost: AsyncLostEvent | None = None

    @property
    def lost(self) -> AsyncLostEvent:
        """Set as soon as the lease is lost, and before the server would let it expire."""
        if self._lost is None:
            self._lost = AsyncLostEvent(self._left)
            if self._gone:
                self._lost.set()
        return self._lost

    def _ring(self) -> None:
        if self._lost is not None:
            self._lost.set()


class SyncLease(BaseLease):
    """A lock that is held, by whichever thread has the lease."""

    _lost: LostEvent | None = None

    @property
    def lost(self) -> LostEvent:
        """Set as soon as the lease is lost, and before the server would let it expire."""
        if self._lost is None:
            self._lost = LostEvent(self._left)
            if self._gone:
                self._lost.set()
        return self._lost

    def _ring(self) -> None:
        if self._lost is not None:
            self._lost.set()
