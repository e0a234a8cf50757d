"""Offers of a lock, and how a waiter knows that one still stands. Pure: no clock is read here.

An offer stands for a short lease, counted by the server. A waiter may enter on it at once when it
knows that less than half of that has passed; otherwise it asks first. Two things prove it:

- a reply to a command of this process that names the waiter as the holder: the server said so
  after the command was sent;
- a message, by the server time of the grant: a reply sent at one monotonic second with one server
  time says that no later server time lies before that second plus the difference.

A message may be late by any time; a server clock that stepped forward would make it look younger
than it is, so a grant that seems to lie in the future proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencekit.protocol.operation import Answer

__all__ = ["Offer", "ServerClock", "TakeUp"]

_NEVER = float("-inf")


class ServerClock:
    """When, at the earliest, a server time was, on our monotonic clock."""

    def __init__(self) -> None:
        self._offset: float | None = None

    def note(self, sent_at: float, server_us: int) -> None:
        """A command sent at this monotonic second was answered with this server time."""
        self._offset = sent_at - server_us / 1e6

    def earliest(self, server_us: int, now: float) -> float:
        """The monotonic second before which that server time cannot have been."""
        if self._offset is None:
            return _NEVER
        at = server_us / 1e6 + self._offset
        return at if at <= now else _NEVER


class TakeUp:
    """A take-up that was sent without waiting for its answer.

    Attributes:
        deadline: monotonic second until which the lease is confirmed, or None.
        refused: the server said that the offer stands no more.
        settled: called when either is known, if somebody has entered meanwhile.
    """

    __slots__ = ("_lease", "deadline", "refused", "sent_at", "settled")

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self.deadline: float | None = None
        self.sent_at = 0.0
        self.refused = False
        self.settled: Callable[[], None] | None = None

    def answered(self, answer: Answer) -> None:
        """Take in the answer; without one the keeper asks again."""
        if answer.reply[0] == 1:
            self.sent_at = answer.sent_at
            self.deadline = answer.sent_at + self._lease
        else:
            self.refused = True
        if self.settled is not None:
            self.settled()


@dataclass(slots=True)
class Offer:
    """A lock that was offered to one waiter.

    Attributes:
        token: the fencing token of the grant.
        deadline: monotonic second until which the offer certainly stands.
        fresh_until: monotonic second until which the waiter may enter without asking.
        taken: it is the whole lease already, granted by a command of this process.
        take_up: the take-up that is under way already, or None.
    """

    token: int
    deadline: float
    fresh_until: float
    taken: bool = False
    take_up: TakeUp | None = None

    @classmethod
    def make(cls, token: int, deadline: float, offer: float, *, taken: bool = False) -> Offer:
        """Make an offer of that many seconds that stands until then."""
        return cls(token, deadline, deadline - offer / 2, taken)
