"""The lock's algorithms: acquire (with waiting), renew, release, withdraw, force, inspect.

The transitions are those of docs/explanation (and of the Lua beside this package). Two rules here
look fussy and are not. An acquire that was sent more than once, was left unanswered or was
cancelled may still arrive after everything else, so it ends with a *withdraw*, and a grant that
came of it is released together with its attempt. And the local deadline of a lease counts from the
send that was answered, never from the answer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from random import random
from typing import Final

from fencekit.errors import (
    FenceKitError,
    OutcomeUnknown,
    ReplicationError,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from fencekit.keys import Names
from fencekit.protocol.operation import (
    Answer,
    AwaitWake,
    Flow,
    Listen,
    Now,
    Operation,
    Replication,
    Reply,
    Unlisten,
    perform,
)
from fencekit.protocol.script import Script
from fencekit.protocol.token import FenceToken

__all__ = [
    "Claimant",
    "Grant",
    "LockInfo",
    "Refusal",
    "Return",
    "Verdict",
    "acquire",
    "advance",
    "force_release",
    "inspect",
    "left_something",
    "new_attempt",
    "release",
    "renew",
    "renew_operation",
    "withdraw_operation",
]

ACQUIRE: Final = Script.load("fencekit", "lock_acquire")
RELEASE: Final = Script.load("fencekit", "lock_release")
WITHDRAW: Final = Script.load("fencekit", "lock_withdraw")
RENEW: Final = Script.load("fencekit", "lock_renew")
INSPECT: Final = Script.load("fencekit", "lock_inspect")
FORCE: Final = Script.load("fencekit", "lock_force")
ADVANCE: Final = Script.load("fencekit", "fence_advance")

# How much later than the holder's expiry a waiter looks, seconds: at least a little, so that the
# key is gone, and spread, so that waiting processes do not look at the same instant.
_ALARM_SLACK = 0.002
_ALARM_SPREAD = 0.02


def new_attempt() -> str:
    """Make the id of one attempt: 128 random bits of the operating system.

    Never a counter or a seeded generator: both repeat themselves after a fork.
    """
    return os.urandom(16).hex()


class Verdict(Enum):
    """What became of a lease that was released."""

    RELEASED = 1
    RELEASED_BEFORE = 2
    LOST = 0


# By number: a look-up by `Verdict(number)` runs through the enum's machinery.
_VERDICTS: Final = {verdict.value: verdict for verdict in Verdict}


@dataclass(slots=True)
class Claimant:
    """Who asks for which lock, and on what terms. Never changed once made, as an `Operation`.

    Attributes:
        names: the keys of the lock.
        owner_id: who.
        attempt: which attempt of theirs, see `new_attempt`.
        ttl_ms: the lease, milliseconds.
        retention_ms: how long the fence record outlives its last use, milliseconds.
        replication: replicas that must confirm the grant, or None.
    """

    names: Names
    owner_id: str
    attempt: str
    ttl_ms: int
    retention_ms: int
    replication: Replication | None = None


class Grant:
    """A lock that was granted.

    Attributes:
        claimant: who holds it.
        token: the fencing token minted for it.
        deadline: monotonic seconds until which it is certainly held.
        resent: the acquire was sent more than once, so a copy may still arrive.
        lost: a renewal was refused, or none arrived in time.
        returned: its release was asked for, and may have been done.
    """

    __slots__ = ("claimant", "deadline", "lost", "resent", "returned", "token")

    def __init__(
        self, claimant: Claimant, token: FenceToken, deadline: float, *, resent: bool
    ) -> None:
        self.claimant = claimant
        self.token = token
        self.deadline = deadline
        self.resent = resent
        self.lost = self.returned = False


class Return:
    """A release under way, and what its answer says of the grant.

    Nobody else releases it. So where it was lost before anybody asked, an answer of "before" comes
    from a record that never knew this token: a failover lost the grant, and others may have been
    granted the lock beside us. (A release alone proves nothing: a proxy that repeats commands makes
    the same answer.)
    """

    __slots__ = ("_again", "_grant")

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._again, grant.returned = grant.returned, True

    def failed(self, error: FenceKitError) -> None:
        """Take note of an error: what never left was not asked."""
        if not (self._again or left_something(error)):
            self._grant.returned = False

    def verdict(self, told: Verdict, answer: Answer) -> Verdict:
        """What became of the grant, given what the answer tells."""
        grant = self._grant
        if answer.sends == 1 and answer.sent_at >= grant.deadline:
            grant.lost = True  # by the clock: no keeper may have watched it
        if told is Verdict.RELEASED_BEFORE and grant.lost and not self._again:
            return Verdict.LOST
        return told


@dataclass(frozen=True)
class Refusal:
    """A lock that somebody else holds.

    Attributes:
        retry_after_ms: milliseconds left of the holder's lease; 0 if unknown.
        holder: the holder's owner id.
    """

    retry_after_ms: int
    holder: str


@dataclass(frozen=True)
class LockInfo:
    """What the server knows of a lock.

    Attributes:
        resource: the lock's name.
        owner_id: the holder, or None when it is free.
        token: the holder's fencing token, or None when it is free.
        ttl_ms: milliseconds left of the lease; 0 when it is free.
        last: the highest token known, 0 without a record.
        lapsed: tokens whose lease ran out unreleased, oldest first; at most 32.
    """

    resource: str
    owner_id: str | None
    token: FenceToken | None
    ttl_ms: int
    last: int
    lapsed: tuple[int, ...] = field(default=())


def acquire_operation(claimant: Claimant) -> Operation[Reply]:
    """One try at a lock; the reply is read by `acquire`."""
    names = claimant.names
    return Operation(
        ACQUIRE,
        (names.lock, names.fence, names.gone),
        (claimant.owner_id, claimant.attempt, claimant.ttl_ms, claimant.retention_ms),
        _as_is,
        claimant.replication,
    )


def acquire(claimant: Claimant, wait: float | None = None) -> Flow[Grant | Refusal]:
    """Take a lock, waiting up to ``wait`` seconds for it, or not at all.

    Waiting costs the server nothing: the flow listens, tries once more, then sleeps until it is
    woken by a release or the holder's lease is over.

    Raises:
        ReplicationError: too few replicas confirmed; the grant was withdrawn.
        StoreUnavailable: the server could not be reached; nothing is held.
        StoreRefused: the server answered with an error; nothing is held.
        OutcomeUnknown: no answer, not even to the withdraw: the lock may be held until the lease
            is over.
    """
    operation = acquire_operation(claimant)
    resent = False  # a copy that was never answered may still arrive, whatever the others say
    loose = False  # an attempt is under way whose outcome is not ours yet
    try:
        deadline = 0.0 if wait is None else (yield Now()) + wait
        loose = True
        answer: Answer = yield operation
        resent = answer.sends > 1
        outcome = _read(claimant, answer, resent=resent)
        if isinstance(outcome, Refusal) and wait is not None:
            channel = claimant.names.wake
            yield Listen(channel, deadline)
            while True:
                loose = True
                answer = yield operation
                resent = resent or answer.sends > 1
                outcome = _read(claimant, answer, resent=resent)
                if isinstance(outcome, Grant):
                    alarm = claimant.ttl_ms / 1000
                    break
                alarm = _alarm(outcome)
                asked = yield Now()
                if asked >= deadline:
                    break
                loose = resent
                woken = yield AwaitWake(channel, deadline - asked, alarm)
                # Woken at the last moment, it still tries: the wake was for nobody else.
                now = asked if woken else (yield Now())
                if now >= deadline:
                    # For the next waiter: the lease it is left with began when we asked.
                    alarm = max(alarm - (now - asked), 0.0)
                    break
            yield Unlisten(channel, alarm)
        if isinstance(outcome, Grant) and claimant.replication is not None:
            _check_replicas(claimant.names.name, claimant.replication.replicas, answer.replicas)
    except GeneratorExit:
        raise
    except FenceKitError as error:
        if not (resent or left_something(error)):
            raise
        withdrawn = yield from _withdraw_quietly(claimant)
        if withdrawn and isinstance(error, OutcomeUnknown):
            msg = f"{error}; the attempt was withdrawn, and nothing is held"
            raise StoreUnavailable(msg) from error
        if not withdrawn and not isinstance(error, OutcomeUnknown):
            msg = f"{error}; but the withdraw was not answered, and the lock may be held"
            raise OutcomeUnknown(msg) from error
        raise
    except BaseException:
        if loose:
            yield from _withdraw_quietly(claimant)
        raise
    if resent and isinstance(outcome, Refusal):
        yield from _withdraw_quietly(claimant)
    return outcome


def left_something(error: FenceKitError) -> bool:
    """Whether something may have been carried out, or still be, before this error."""
    if isinstance(error, StoreError):
        # An error reply is an answer to its copy; only what left beside it can still arrive.
        return error.sends > (1 if isinstance(error, StoreRefused) else 0)
    return True


def _check_replicas(name: str, wanted: int, confirmed: int) -> None:
    if confirmed < wanted:
        raise ReplicationError(name, wanted=wanted, confirmed=confirmed)


def withdraw_operation(claimant: Claimant) -> Operation[bool]:
    """Undo an attempt and refuse its late copies; the outcome says whether it held the lock."""
    names = claimant.names
    return Operation(
        WITHDRAW,
        (names.lock, names.fence, names.gone),
        (claimant.owner_id, claimant.attempt, claimant.retention_ms, names.wake),
        _is_one,
        patient=False,
    )


def _withdraw_quietly(claimant: Claimant) -> Flow[bool]:
    """Withdraw if the server can be reached; the error under way says the rest."""
    try:
        yield from perform(withdraw_operation(claimant))
    except FenceKitError:
        return False
    return True


def _alarm(refusal: Refusal) -> float:
    """Seconds until a waiter looks by itself: just after the holder's lease, spread a little."""
    spread = random() * _ALARM_SPREAD  # noqa: S311 - jitter, not a secret
    return refusal.retry_after_ms / 1000 + _ALARM_SLACK + spread


def renew_operation(claimant: Claimant, token: int, ttl_ms: int) -> Operation[int | None]:
    """Extend a lease to ``ttl_ms`` from now; the outcome is the milliseconds left, None if lost."""
    names = claimant.names
    return Operation(
        RENEW,
        (names.lock, names.fence),
        (claimant.owner_id, claimant.attempt, token.real, ttl_ms, claimant.retention_ms),
        _left,
    )


def renew(grant: Grant, ttl_ms: int) -> Flow[bool]:
    """Extend a lease to ``ttl_ms`` from now, never shortening it; False when it is lost.

    The grant's deadline moves with it.

    Raises:
        StoreUnavailable: the server could not be reached; the lease is as it was.
        StoreRefused: the server answered with an error; the lease is as it was.
        OutcomeUnknown: no answer; the lease is as it was or longer.
    """
    operation = renew_operation(grant.claimant, grant.token, ttl_ms)
    answer: Answer = yield operation
    left = operation.parse(answer.reply)
    if left is None:
        return False
    grant.deadline = max(grant.deadline, answer.sent_at + ttl_ms / 1000)
    return True


def release(grant: Grant) -> Flow[Verdict]:
    """Give a lock back; the verdict is the same however often this is repeated.

    Raises:
        StoreUnavailable: the server could not be reached; repeat the release.
        StoreRefused: the server answered with an error; repeat the release.
        OutcomeUnknown: no answer; repeat the release to learn the verdict.
    """
    claimant, names = grant.claimant, grant.claimant.names
    operation = Operation(
        RELEASE,
        (names.lock, names.fence, names.gone),
        (
            claimant.owner_id,
            claimant.attempt,
            grant.token.real,
            claimant.retention_ms,
            1 if grant.resent else 0,
            names.wake,
        ),
        _verdict,
    )
    returning = Return(grant)
    try:
        answer: Answer = yield operation
    except FenceKitError as error:
        returning.failed(error)
        raise
    return returning.verdict(operation.parse(answer.reply), answer)


def inspect(names: Names) -> Flow[LockInfo | None]:
    """Read what the server knows of a lock; None when it knows nothing."""
    return (
        yield from perform(
            Operation(
                INSPECT, (names.lock, names.fence), (), lambda reply: _lock_info(names, reply)
            )
        )
    )


def force_release(names: Names, retention_ms: int, token: int | None = None) -> Flow[bool]:
    """Free a lock whoever holds it, and shut that holder out; False when it was free.

    Two steps, so that a copy of the second never frees a later holder: the holder is read, then
    the lock is freed only if it is still held with that token. With a token given, the first step
    was the caller's.
    """
    if token is None:
        info = yield from inspect(names)
        if info is None or info.token is None:
            return False
        token = info.token
    return (
        yield from perform(
            Operation(
                FORCE,
                (names.lock, names.fence),
                (token.real, retention_ms, names.wake),
                _is_one,
            )
        )
    )


def advance(names: Names, at_least: int, retention_ms: int) -> Flow[int]:
    """Lift a name's fence so that the next token is above ``at_least``; never lower it.

    Returns the highest token known afterwards.
    """
    return (
        yield from perform(Operation(ADVANCE, (names.fence,), (at_least, retention_ms), _first_int))
    )


def _read(claimant: Claimant, answer: Answer, *, resent: bool) -> Grant | Refusal:
    reply = answer.reply
    code = reply[0]
    if code == 1:
        token = FenceToken._minted(int(reply[1]), claimant.names.name, "lock")  # noqa: SLF001
        return Grant(claimant, token, answer.sent_at + claimant.ttl_ms / 1000, resent=resent)
    if code == 0:
        return Refusal(max(int(reply[1]), 0), reply[2].decode(errors="replace"))
    # This attempt was withdrawn: only possible for a flow that goes on after its withdraw.
    return Refusal(0, claimant.owner_id)


def _lock_info(names: Names, reply: Reply) -> LockInfo | None:
    value, pttl, last, _, lapsed, _ = reply
    if value is None and last is None:
        return None
    owner_id: str | None = None
    token: FenceToken | None = None
    if value is not None:
        owner, _, rest = value.decode(errors="replace").partition(":")
        owner_id = owner
        number = rest.rpartition(":")[2]
        if number.isdigit():
            token = FenceToken._minted(int(number), names.name, "lock")  # noqa: SLF001
    return LockInfo(
        resource=names.name,
        owner_id=owner_id,
        token=token,
        ttl_ms=max(int(pttl), 0),
        last=int(last or 0),
        lapsed=tuple(int(one) for one in (lapsed or b"").decode().split(",") if one),
    )


def _as_is(reply: Reply) -> Reply:
    return reply


def _is_one(reply: Reply) -> bool:
    return bool(reply[0] == 1)


def _left(reply: Reply) -> int | None:
    return int(reply[1]) if reply[0] == 1 else None


def _verdict(reply: Reply) -> Verdict:
    return _VERDICTS[reply[0]]


def _first_int(reply: Reply) -> int:
    return int(reply[0])
