"""The bare lock: one key, no fence, and the wire shape of redis-py's own lock.

It contends with redis-py's lock, whose release wakes nobody; so the first local waiter also looks
at short intervals. A copy of an acquire that arrives after its release takes the key once more,
until the timeout: there is no record in which it could find that it was withdrawn. That is what
`DistributedLock` is for.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fencekit.errors import FenceKitError
from fencekit.protocol.operation import (
    AwaitWake,
    Flow,
    Listen,
    Now,
    Operation,
    Reply,
    Unlisten,
    perform,
)
from fencekit.protocol.script import Script

__all__ = ["BareClaim", "acquire", "extend", "release"]

ACQUIRE: Final = Script.load("fencekit", "bare_acquire")
RELEASE: Final = Script.load("fencekit", "bare_release")
EXTEND: Final = Script.load("fencekit", "bare_extend")

# Seconds between looks: a holder of another library releases without a word.
_LOOK_EVERY = 0.1


@dataclass(frozen=True)
class BareClaim:
    """Who asks for which key.

    Attributes:
        key: the key, as given.
        channel: where our own releases wake waiters.
        attempt: the value the key holds while it is ours.
        ttl_ms: the timeout, milliseconds.
    """

    key: str
    channel: str
    attempt: str
    ttl_ms: int


def acquire(claim: BareClaim, wait: float | None = None) -> Flow[float | None]:
    """Take the key, waiting up to ``wait`` seconds; None when somebody else holds it.

    Returns the monotonic second until which it is certainly held.

    Raises:
        StoreUnavailable, StoreRefused: nothing is held.
        OutcomeUnknown: no answer; the key may be held until its timeout.
    """
    operation = Operation(ACQUIRE, (claim.key,), (claim.attempt, claim.ttl_ms), _granted)
    deadline = 0.0 if wait is None else (yield Now()) + wait
    listening = False
    try:
        while True:
            answer = yield operation
            left_ms = operation.parse(answer.reply)
            if left_ms is None:
                if listening:
                    yield Unlisten(claim.channel, claim.ttl_ms / 1000)
                held_until: float = answer.sent_at + claim.ttl_ms / 1000
                return held_until
            now = 0.0 if wait is None else (yield Now())
            if wait is None or now >= deadline:
                break
            if not listening:
                listening = True
                yield Listen(claim.channel, deadline)
                continue
            alarm = _LOOK_EVERY if left_ms < 0 else min(left_ms / 1000 + 0.001, _LOOK_EVERY)
            yield AwaitWake(claim.channel, deadline - now, alarm)
        if listening:
            yield Unlisten(claim.channel, _LOOK_EVERY)
    except GeneratorExit:
        raise
    except BaseException:
        # Whatever happened, the key may be ours without anybody knowing: give it back.
        with suppress(FenceKitError):
            yield from release(claim, patient=False)
        raise
    return None


def release(claim: BareClaim, *, patient: bool = True) -> Flow[bool]:
    """Give the key back; False when it was not ours any more.

    Raises:
        StoreUnavailable, StoreRefused, OutcomeUnknown: call this again.
    """
    return (
        yield from perform(
            Operation(
                RELEASE, (claim.key,), (claim.attempt, claim.channel), _is_one, patient=patient
            )
        )
    )


def extend(claim: BareClaim) -> Flow[bool]:
    """Set the timeout anew, in full; False when the key was not ours any more.

    Raises:
        StoreUnavailable, StoreRefused, OutcomeUnknown: the timeout is as it was, or new.
    """
    return (
        yield from perform(Operation(EXTEND, (claim.key,), (claim.attempt, claim.ttl_ms), _is_one))
    )


def _granted(reply: Reply) -> int | None:
    """None when it was granted, else the milliseconds left of the holder's timeout."""
    return None if reply[0] == 1 else int(reply[1])


def _is_one(reply: Reply) -> bool:
    return bool(reply[0] == 1)
