"""When a lease is renewed, when it counts as lost, and when a holder has held on for too long.

Pure arithmetic over the monotonic clock, used by the keepers of both colours. A lease is renewed
at a third of its length. It counts as lost as soon as a renewal is refused, and, when none can be
confirmed, a margin *before* the server would let it expire: counted from the send of the last
confirmed renewal, which the server cannot have carried out earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fencekit.protocol.operation import Operation

__all__ = ["Due", "Renewable", "Renewal", "margin"]

_RENEWALS_PER_LEASE = 3


def margin(lease: float) -> float:
    """How long before its expiry an unconfirmed lease counts as lost; seconds of seconds.

    A twentieth, at most half a second: clocks of two machines tick at nearly the same rate, but
    the thread that looks may be late.
    """
    return min(lease / 20, 0.5)


class Renewable(Protocol):
    """What a keeper keeps: something whose lease can be confirmed or lost."""

    @property
    def name(self) -> str:
        """What to call it in a warning."""
        raise NotImplementedError

    def renew_operation(self) -> Operation[int | None]:
        """The command that extends the lease; None as outcome means that it is lost."""
        raise NotImplementedError

    def confirmed(self, deadline: float) -> None:
        """The lease is certain until this monotonic second."""

    def lose(self) -> None:
        """The lease is lost; called once."""


@dataclass
class Renewal:
    """The schedule of one lease.

    Attributes:
        lease: its length, seconds.
        deadline: monotonic second until which it is certain.
        renews: whether it is renewed, or only watched.
        hold_until: monotonic second at which renewing ends, or None.
    """

    lease: float
    deadline: float
    renews: bool = True
    hold_until: float | None = None

    def __post_init__(self) -> None:
        self.next_renewal = self.deadline - self.lease + self.lease / _RENEWALS_PER_LEASE

    @property
    def lost_at(self) -> float:
        """The monotonic second at which it counts as lost unless confirmed before."""
        return self.deadline - margin(self.lease)

    @property
    def look_at(self) -> float:
        """The monotonic second at which there is something to be done first."""
        lost_at = self.lost_at
        return min(self.next_renewal, lost_at) if self.renews else lost_at

    def due(self, now: float) -> Due:
        """What is to be done now, and when to look again."""
        if now >= self.lost_at:
            return Due(lost=True, renew=False, look_at=now)
        renews = self.renews and (self.hold_until is None or now < self.hold_until)
        if not renews:
            return Due(lost=False, renew=False, look_at=self.lost_at)
        if now >= self.next_renewal:
            return Due(lost=False, renew=True, look_at=self.lost_at)
        return Due(lost=False, renew=False, look_at=min(self.next_renewal, self.lost_at))

    def late(self, now: float) -> bool:
        """Whether a renewal comes later than half a lease after it was due."""
        return now - self.next_renewal > self.lease / 2

    def confirm(self, sent_at: float, lease: float | None = None) -> None:
        """A renewal that was sent at this monotonic second has been confirmed.

        Args:
            sent_at: when.
            lease: the seconds that it asked for; the present length unless given.
        """
        self.deadline = max(self.deadline, sent_at + (self.lease if lease is None else lease))
        self.next_renewal = sent_at + self.lease / _RENEWALS_PER_LEASE

    def retry(self, now: float) -> None:
        """A renewal failed: try again soon, without hammering a server in trouble."""
        self.next_renewal = now + min(self.lease / (_RENEWALS_PER_LEASE * 4), 1.0)


@dataclass(frozen=True)
class Due:
    """What a keeper does about one lease now.

    Attributes:
        lost: it can no longer be counted on.
        renew: send its renewal.
        look_at: monotonic second of the next look.
    """

    lost: bool
    renew: bool
    look_at: float
