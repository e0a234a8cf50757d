"""What happened to a worker that was frozen, and to its delivery meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from demo.messages import Begun, Entered, Finished, How, LeaseLost, Message, Refused

if TYPE_CHECKING:
    from demo.deliveries import Delivery

__all__ = ["Story"]

_ENDINGS: Final = {
    How.RAN: "done, effect number {effect}, balance now {amount}",
    How.FOUND: "answered from the ledger: effect number {effect} had happened",
    How.REPLAYED: "answered from the record",
    How.CONFLICT: "refused: another payload",
    How.SHUT_OUT: "ends its attempt without an effect",
}


class Story:
    """A timeline.

    Attributes:
        hero: the worker that was frozen.
        delivery: what it was at.
        lines: monotonic seconds, who, and what; in order of time once `told`.
    """

    def __init__(self, hero: str, delivery: Delivery, before: list[Message]) -> None:
        """Begin with what the worker told of this job before it was frozen."""
        self.hero = hero
        self.delivery = delivery
        self.lines: list[tuple[float, str, str]] = []
        for message in before:
            self.hear(hero, message)

    def add(self, at: float, who: str, what: str) -> None:
        """Add a line."""
        self.lines.append((at, who, what))

    def told(self) -> list[tuple[float, str, str]]:
        """Return the lines in order of time."""
        return sorted(self.lines)

    def hear(self, who: str, message: Message) -> None:
        """Add what a worker told."""
        if isinstance(message, Begun):
            verb = "lease over: reclaims the event" if message.reclaimed else "begins the event"
            self.add(message.at, who, f"{verb}, attempt {message.attempt}, token {message.token}")
        elif isinstance(message, Entered):
            lock = f"holds the account, token {message.token}, " if message.token else ""
            self.add(message.at, who, f"{lock}reads balance {message.amount}")
        elif isinstance(message, LeaseLost):
            self.add(message.at, who, "sees that its lease is lost; writes all the same")
        elif isinstance(message, Refused):
            refusal = f"{message.by} refuses token {message.token}: {message.current} is known"
            self.add(message.at, who, refusal)
        elif isinstance(message, Finished):
            self._hear_end(who, message)

    def _hear_end(self, who: str, end: Finished) -> None:
        if end.how is How.BUSY:
            left = f"{end.retry_after * 1000:.0f} ms"
            self.add(end.at, who, f"is told that it is being worked on; the lease has {left} left")
        else:
            self.add(end.at, who, _ENDINGS[end.how].format(**(end.answer or {})))
