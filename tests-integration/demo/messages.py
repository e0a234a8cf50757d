"""What the runner and its workers tell each other, over one pipe for each worker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from demo.deliveries import Delivery

__all__ = [
    "Begun",
    "Entered",
    "Finished",
    "Halted",
    "How",
    "Job",
    "LeaseLost",
    "Message",
    "Point",
    "Refused",
    "Reporter",
]


class Point(Enum):
    """Where in a job a fault may strike; the value completes "killed …"."""

    CLAIMED = "before it did anything"
    WORKED = "before its write"
    WRITING = "inside its transaction"
    COMMITTED = "between COMMIT and complete"
    COMPLETED = "between complete and acknowledgement"


class How(Enum):
    """How a job ended."""

    RAN = "ran"
    REPLAYED = "answered from the record"
    FOUND = "answered from the ledger"
    CONFLICT = "conflict"
    BUSY = "busy"
    SHUT_OUT = "shut out"

    @property
    def acknowledged(self) -> bool:
        """Whether the delivery is settled, so that it need not come again."""
        return self not in {How.BUSY, How.SHUT_OUT}


@dataclass(frozen=True)
class Job:
    """To a worker: do this, and stand still where the runner wants to strike.

    Attributes:
        delivery: what to do.
        halt_at: where to halt until told to go on, which may be never.
    """

    delivery: Delivery
    halt_at: Point | None


@dataclass(frozen=True)
class Message:
    """From a worker.

    Attributes:
        at: monotonic seconds, which all processes of a machine count alike.
    """

    at: float = field(default_factory=time.monotonic, kw_only=True)


@dataclass(frozen=True)
class Begun(Message):
    """The worker has the event's claim: the job is its to do.

    Attributes:
        token: the claim's fencing token.
        attempt: which attempt at the event it is.
        reclaimed: whether it takes over from a worker whose lease is over.
    """

    token: int
    attempt: int
    reclaimed: bool


@dataclass(frozen=True)
class Entered(Message):
    """The worker has read the balance that it is going to change.

    Attributes:
        token: the fencing token of the account's lock; None where there is no lock.
        amount: the balance.
    """

    token: int | None
    amount: int


@dataclass(frozen=True)
class Halted(Message):
    """The worker stands where it was told to."""

    point: Point


@dataclass(frozen=True)
class LeaseLost(Message):
    """The worker noticed that it lost its lease."""


@dataclass(frozen=True)
class Refused(Message):
    """A write of the worker's was refused.

    Attributes:
        by: who refused.
        token: the token shown.
        current: the token that is known there.
    """

    by: str
    token: int
    current: int | None


@dataclass(frozen=True)
class Finished(Message):
    """The job has ended, and the worker is free.

    Attributes:
        how: how it ended.
        answer: what the provider is answered, where there is an answer.
        retry_after: for BUSY: in how many seconds another try makes sense.
    """

    how: How
    answer: dict[str, Any] | None = None
    retry_after: float = 0.0


class Reporter:
    """A worker's end of its pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._halt_at: Point | None = None

    def next_job(self) -> Job | None:
        """Wait for a job; None when there are no more."""
        job: Job | None = self._pipe.recv()
        self._halt_at = None if job is None else job.halt_at
        return job

    def tell(self, message: Message) -> None:
        """Tell the runner something."""
        self._pipe.send(message)

    def at(self, point: Point) -> None:
        """Stand still if this is where the runner wants to strike, until told to go on."""
        if point is self._halt_at:
            self._halt_at = None
            self.tell(Halted(point))
            self._pipe.recv()
