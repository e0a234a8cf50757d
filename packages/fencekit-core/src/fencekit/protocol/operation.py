"""The vocabulary between the algorithms and whatever performs them.

An `Operation` is one round trip: a script, its keys, its arguments, and how to read the reply. A
`Flow` is an algorithm of several steps: a generator that yields steps and returns its result. It
reads no clock and opens no socket, so a test drives it by hand::

    flow = release(grant)
    step = next(flow)  # an Operation
    flow.send(Answer([1]))  # raises StopIteration with the result

Steps are never changed once made. Those that every hand-off makes are not frozen either: a frozen
dataclass takes three times as long to make.

A driver performs each step and sends the result back in, or throws the error *into* the flow, so
that the flow can tidy up. A step thrown at may be answered by further steps. Whatever a flow still
listens on when it ends, the driver ends for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from fencekit.protocol.script import Script

__all__ = [
    "Answer",
    "Arg",
    "AwaitMail",
    "AwaitWake",
    "Call",
    "Flow",
    "Listen",
    "Mailbox",
    "Now",
    "OpenMail",
    "Operation",
    "Replication",
    "Reply",
    "Routes",
    "Sleep",
    "Step",
    "Together",
    "Unlisten",
    "perform",
    "trace",
]

T = TypeVar("T")

Arg: TypeAlias = str | int | bytes
Reply: TypeAlias = Any  # bytes, int, None, or a list of replies: RESP2 as a script returns it


@dataclass(frozen=True)
class Replication:
    """How many replicas must confirm an operation, asked on the same connection (WAIT).

    Attributes:
        replicas: how many.
        timeout_ms: how long to wait for them, milliseconds.
    """

    replicas: int
    timeout_ms: int


@dataclass(slots=True)
class Operation(Generic[T]):
    """One script call: what to run, on which keys, with what, and how to read the reply.

    Attributes:
        script: what runs inside the server.
        keys: KEYS, in the order of the script's header; all of one Cluster slot.
        args: ARGV, in the order of the script's header.
        parse: turns the raw reply into the outcome; pure, and never sees an error reply.
        replication: replicas to wait for, or None.
        patient: whether it is worth waiting out a server in trouble; a tidying step is not.
        hasty: whether a server that cannot be reached is not waited for at all, and a broken
            connection costs one further copy at most. For what can be done without, as a cache is.
    """

    script: Script
    keys: tuple[str, ...]
    args: tuple[Arg, ...]
    parse: Callable[[Reply], T]
    replication: Replication | None = None
    patient: bool = True
    hasty: bool = False


class Answer:
    """What a driver sends into a flow for an `Operation`.

    Attributes:
        reply: the raw reply.
        sends: how many copies of the command were sent; more than one means that a late copy may
            still arrive.
        sent_at: monotonic seconds of the send that was answered.
        replicas: how many replicas confirmed, where `Operation.replication` asked; else 0.
    """

    __slots__ = ("replicas", "reply", "sends", "sent_at")

    def __init__(
        self, reply: Reply, sends: int = 1, sent_at: float = 0.0, replicas: int = 0
    ) -> None:
        self.reply = reply
        self.sends = sends
        self.sent_at = sent_at
        self.replicas = replicas

    def __repr__(self) -> str:
        return f"Answer({self.reply!r}, sends={self.sends}, sent_at={self.sent_at})"


@dataclass(frozen=True)
class Now:
    """Asks for the monotonic clock; answered with seconds as a float."""


@dataclass(frozen=True)
class Sleep:
    """Asks to be resumed after some seconds."""

    seconds: float


@dataclass(slots=True)
class Listen:
    """Registers this flow as a waiter on a wake channel.

    Answered once wakes can arrive, cannot for now, or the time is up.

    Attributes:
        channel: where to listen.
        until: monotonic second after which there is nothing to wait for.
    """

    channel: str
    until: float = math.inf


@dataclass(slots=True)
class AwaitWake:
    """Waits for a wake on a channel that the flow listens on.

    Answered with True for a wake (also one that came since the last wait), False when the time is
    up. Of the local waiters of one channel only the first is woken by a message, and only the
    first heeds the alarm, so that neither a release nor an expiry starts a herd.

    Attributes:
        channel: where to listen.
        seconds: the longest wait.
        alarm: seconds until the holder's lease is over, when the first waiter should look.
    """

    channel: str
    seconds: float
    alarm: float


@dataclass(slots=True)
class Unlisten:
    """Ends a `Listen`. A wake that was not used goes to the next local waiter.

    Attributes:
        channel: what was listened on.
        alarm: seconds until the next waiter should look by itself, or None: at once.
    """

    channel: str
    alarm: float | None = None


class Mailbox(Protocol):
    """Where messages for one flow are put, by whoever listens on its behalf.

    The flow only hands it back to the driver. Of either colour: `open` and `receive` block in the
    sync driver and are awaited by the async one.
    """

    def open(self) -> Any:
        """Return when messages can arrive, or cannot for now."""

    def receive(self, seconds: float | None) -> Any:
        """Take the oldest message; None when none has come in time."""


@dataclass(frozen=True)
class OpenMail:
    """Opens a mailbox; answered when messages can arrive, or cannot for now."""

    box: Mailbox


@dataclass(slots=True)
class AwaitMail:
    """Waits for a message; answered with it, or with None when the time is up.

    Attributes:
        box: where it arrives.
        seconds: the longest wait; None waits for ever.
    """

    box: Mailbox
    seconds: float | None


@dataclass(frozen=True)
class Together:
    """Operations that travel in one pipeline for each node.

    Answered with a list, in their order, of an `Answer` or the `FenceKitError` of each.
    """

    operations: Sequence[Operation[Any]]


@dataclass(frozen=True)
class Routes:
    """Asks for one key on each node that holds data; answered with a list of keys.

    For what is asked of whole servers, such as SCAN: an operation on such a key goes there.

    Attributes:
        stem: what each key begins with.
    """

    stem: str


@dataclass(frozen=True)
class Call:
    """Asks for a function of the user's to be called; answered with its result.

    What it raises is thrown into the flow. The async driver awaits what can be awaited.
    """

    function: Callable[[], Any]


Step: TypeAlias = (
    Operation[Any]
    | Now
    | Sleep
    | Listen
    | AwaitWake
    | Unlisten
    | OpenMail
    | AwaitMail
    | Together
    | Routes
    | Call
)
Flow: TypeAlias = Generator[Step, Any, T]


def trace(operation: Operation[Any]) -> Flow[Answer]:
    """Perform an operation and return the whole `Answer`, unparsed."""
    answer: Answer = yield operation
    return answer


def perform(operation: Operation[T]) -> Flow[T]:
    """Perform an operation and return its outcome, by ``yield from``."""
    answer: Answer = yield operation
    return operation.parse(answer.reply)
