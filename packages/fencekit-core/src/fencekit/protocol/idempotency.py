"""The idempotency record's algorithms: begin (with waiting), complete, fail, release, renew, read.

One record for each key, which is itself the lock of its key. Every transition is one script, is
safe to send again, and is safe against copies that arrive late, because each attempt has an id of
its own and the record remembers the last sixteen that ended, and how:

==========================================  =====================================================
begin finds                                 outcome
==========================================  =====================================================
nothing, or retryable with attempts left    BEGUN, with a fence of its own
running, this very attempt                  as its first begin was answered, the lease set anew
this attempt among those that ended         nothing starts; `begin` goes on with a fresh attempt
running, lease live                         IN_PROGRESS
running, lease over, attempts left          RECLAIMED, a new fence; the old attempt is shut out
no attempt left                             EXHAUSTED, which stands until the record is cleared
done                                        ALREADY_DONE, the memo in the same reply
failed for good                             FAILED, with the stored error
another fingerprint                         MISMATCH: neither run nor replayed
==========================================  =====================================================

Leases and order are the server's clock alone. A record that was lost in mid-run (flushed, evicted)
is not made again by its attempt: nobody can know who ran since, so it fails closed.
"""

from __future__ import annotations

from os import urandom
from random import random
from typing import Final, TypeAlias

from fencekit.errors import (
    FenceKitError,
    OutcomeUnknown,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from fencekit.keys import Names
from fencekit.protocol.claim import (
    Announcement,
    BeginOutcome,
    Begun,
    RecordState,
    RecordStatus,
    Standing,
    Terms,
)
from fencekit.protocol.memo import Memo
from fencekit.protocol.operation import (
    Answer,
    Arg,
    AwaitWake,
    Flow,
    Listen,
    Now,
    Operation,
    Reply,
    Sleep,
    Unlisten,
    perform,
    trace,
)
from fencekit.protocol.script import Script
from fencekit.protocol.token import FenceToken

__all__ = [
    "announce_operation",
    "begin",
    "begin_operation",
    "clear",
    "complete",
    "complete_operation",
    "fail",
    "new_attempt",
    "read",
    "read_begin",
    "read_memo",
    "release",
    "renew",
    "renew_operation",
    "wake_channel",
    "withdraw",
]

BEGIN: Final = Script.load("fencekit", "claim_begin")
COMPLETE: Final = Script.load("fencekit", "claim_complete")
ANNOUNCE: Final = Script.load("fencekit", "claim_announce")
FAIL: Final = Script.load("fencekit", "claim_fail")
RELEASE: Final = Script.load("fencekit", "claim_release")
WITHDRAW: Final = Script.load("fencekit", "claim_withdraw")
RENEW: Final = Script.load("fencekit", "claim_renew")
READ: Final = Script.load("fencekit", "claim_read")
RESULT: Final = Script.load("fencekit", "claim_result")
CLEAR: Final = Script.load("fencekit", "claim_clear")

# How long complete goes on after its first store error, seconds, beyond what the driver does.
_COMPLETE_SECONDS: Final = 3.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
# How much later than the lease's end a waiter looks, seconds: a little, and spread.
_ALARM_SLACK: Final = 0.002
_ALARM_SPREAD: Final = 0.02


# Why an attempt could not be ended or renewed; None: it was.
Lost: TypeAlias = "str | None"


def new_attempt() -> str:
    """Make the id of one attempt: 128 random bits of the operating system, in 32 digits.

    Never a counter or a seeded generator: both repeat themselves after a fork.
    """
    return urandom(16).hex()


def wake_channel(names: Names) -> str:
    """Where those who wait for a key are woken: a channel named as the record's key.

    Not the channel of the lock of that name: of the local waiters of a channel one is woken, and a
    waiter for a memo must not use up the wake of a waiter for the lock.
    """
    return names.idem


def begin(terms: Terms, wait: float | None = None) -> Flow[Begun | Standing]:
    """Begin an attempt, waiting up to ``wait`` seconds for one that is running, or not at all.

    Waiting costs the server nothing: the flow listens, tries once more, then sleeps until an
    attempt ends or the running one's lease is over.

    Raises:
        StoreUnavailable: the server could not be reached; nothing has begun.
        StoreRefused: the server answered with an error; nothing has begun.
        OutcomeUnknown: no answer, not even to the withdraw: an attempt may stand until its lease
            is over.
    """
    return _try(terms) if wait is None else _wait(terms, wait)


def _wait(terms: Terms, wait: float) -> Flow[Begun | Standing]:
    deadline = (yield Now()) + wait
    outcome = yield from _try(terms)
    if outcome.outcome is not BeginOutcome.IN_PROGRESS:
        return outcome
    channel = wake_channel(terms.names)
    yield Listen(channel, deadline)
    while True:
        outcome = yield from _try(terms)
        if isinstance(outcome, Begun):
            alarm: float | None = terms.lease_ms / 1000
            break
        if outcome.outcome is not BeginOutcome.IN_PROGRESS:
            alarm = None  # whoever waits beside us wants to know at once
            break
        alarm = _alarm(outcome)
        asked = yield Now()
        if asked >= deadline:
            break
        woken = yield AwaitWake(channel, deadline - asked, alarm)
        now = yield Now()
        # Woken at the last moment, it still tries: the wake was for nobody else.
        if now >= deadline and not woken:
            # For the next waiter: the lease it is left with began when we asked.
            alarm = max(alarm - (now - asked), 0.0)
            break
    try:
        yield Unlisten(channel, alarm)
    except GeneratorExit:
        raise
    except BaseException:
        if isinstance(outcome, Begun):
            yield from _withdraw_quietly(terms, outcome.attempt)
        raise
    return outcome


def begin_operation(terms: Terms, attempt: str) -> Operation[Reply]:
    """One try; the reply is read by `read_begin`."""
    return Operation(
        BEGIN,
        (terms.names.idem,),
        (
            terms.owner_id,
            attempt,
            terms.lease_ms,
            terms.ttl_ms,
            terms.fingerprint,
            terms.max_attempts,
            terms.reclaim,
            terms.task_id,
        ),
        _as_is,
    )


def read_begin(terms: Terms, attempt: str, answer: Answer) -> Begun | Standing | None:
    """What a begin was answered; None where this attempt is over, so that nothing started."""
    reply = answer.reply
    code = reply[0]
    if code in (b"begun", b"reclaimed"):
        return Begun(
            terms,
            attempt,
            BeginOutcome.BEGUN if code == b"begun" else BeginOutcome.RECLAIMED,
            token=FenceToken._minted(int(reply[1]), terms.names.name, "claim"),  # noqa: SLF001
            number=int(reply[2]),
            sent_at=answer.sent_at,
            resent=answer.sends > 1,
        )
    if code == b"done":
        return Standing(
            BeginOutcome.ALREADY_DONE,
            memo=Memo(_text(reply[1]), reply[2]),
            published=reply[3],
            task_id=_text(reply[4]),
        )
    if code == b"running":
        return Standing(
            BeginOutcome.IN_PROGRESS,
            retry_after_ms=int(reply[1]),
            owner_id=_text(reply[2]),
            attempt=_text(reply[3]),
            task_id=_text(reply[4]),
        )
    if code == b"mismatch":
        return Standing(BeginOutcome.MISMATCH)
    if code == b"ended":
        return None
    outcome = BeginOutcome.FAILED if code == b"failed" else BeginOutcome.EXHAUSTED
    return Standing(outcome, error=_text(reply[1]), attempts=int(reply[2]))


def _try(terms: Terms) -> Flow[Begun | Standing]:
    """Try once; a copy that may still arrive for an attempt that did not begin is refused."""
    while True:
        attempt = new_attempt()
        try:
            answer: Answer = yield begin_operation(terms, attempt)
        except GeneratorExit:
            raise
        except StoreError as error:
            # An error reply is an answer to its copy; only what left beside it can still arrive.
            if error.sends <= isinstance(error, StoreRefused):
                raise
            withdrawn = yield from _withdraw_quietly(terms, attempt)
            if withdrawn and isinstance(error, OutcomeUnknown):
                msg = f"{error}; the attempt was withdrawn, and nothing has begun"
                raise StoreUnavailable(msg) from error
            raise
        except BaseException:
            yield from _withdraw_quietly(terms, attempt)
            raise
        outcome = read_begin(terms, attempt, answer)
        if isinstance(outcome, Begun):
            return outcome
        if answer.sends > 1:
            yield from _withdraw_quietly(terms, attempt)
        if outcome is not None:
            return outcome
        # We were reclaimed before the answer came: that attempt is over, and never ran.


def withdraw(terms: Terms, attempt: str) -> Operation[bool]:
    """Undo a begin and refuse its late copies; the outcome says whether the attempt was running."""
    return Operation(
        WITHDRAW,
        (terms.names.idem,),
        (terms.owner_id, attempt),
        _is_one,
        patient=False,
    )


def _withdraw_quietly(terms: Terms, attempt: str) -> Flow[bool]:
    """Withdraw if the server can be reached; the error under way says the rest."""
    try:
        yield from perform(withdraw(terms, attempt))
    except FenceKitError:
        return False
    return True


def complete_operation(
    begun: Begun, memo: Memo, *, ttl_ms: int | None = None, published: bytes = b""
) -> Operation[Lost]:
    """End an attempt as done; the outcome is why it was not applied, or None.

    ``ttl_ms`` is how long the memo is kept from now, by default the terms'.
    """
    return _ending(COMPLETE, begun, begun.kept_ms(ttl_ms), memo.encoding, memo.data, published)


def announce_operation(
    begun: Begun, memo: Memo, told: Announcement, *, ttl_ms: int | None = None
) -> Operation[Lost]:
    """End an attempt as done, and announce it; the outcome is as that of `complete_operation`."""
    terms = begun.terms
    return Operation(
        ANNOUNCE,
        (terms.names.idem, told.key),
        (
            terms.owner_id,
            begun.attempt,
            begun.kept_ms(ttl_ms),
            memo.encoding,
            memo.data,
            told.published,
            told.text,
            told.ms,
            told.spared,
        ),
        _why,
    )


def complete(
    begun: Begun,
    memo: Memo,
    *,
    ttl_ms: int | None = None,
    published: bytes = b"",
    announcement: Announcement | None = None,
) -> Flow[Lost]:
    """End an attempt as done, and keep its memo; why it was not applied, or None.

    The effect has happened, so a store error is not the end: the same command is sent again for
    some seconds, and the record stays running meanwhile. What failed together with an announcement
    is asked for without it, at once: a proxy may have the two keys on different servers, and a text
    may be longer than a connection survives. Whether it was announced is told by `Begun.announced`.

    Raises:
        OutcomeUnknown: the server did not answer or refused all the while. Never run the work
            again for this; completing again is safe.
    """
    if announcement is None:
        operation = complete_operation(begun, memo, ttl_ms=ttl_ms, published=published)
    else:
        operation = announce_operation(begun, memo, announcement, ttl_ms=ttl_ms)
    until, pause, sends = 0.0, _FIRST_PAUSE, 0
    while True:
        try:
            answer: Answer = yield operation
            if answer.reply in ([1, 1], [1, 0]):
                begun.announced = answer.reply == [1, 1]
            return _why(answer.reply)
        except StoreError as error:
            sends += error.sends
            # Refused together, but not alone: else it is for another reason, and for a while.
            together = announcement is not None
            begun.announced = False if together and isinstance(error, StoreRefused) else None
            if together:
                announcement = None
                operation = complete_operation(begun, memo, ttl_ms=ttl_ms, published=published)
                continue
            now = yield Now()
            until = until or now + _COMPLETE_SECONDS
            if now >= until:
                name = begun.terms.names.name
                msg = f"whether {name!r} is recorded as done is not known: {error}"
                raise OutcomeUnknown(msg, sends=sends) from error
        yield Sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def fail(
    begun: Begun, error: str, *, terminal: bool = False, ttl_ms: int | None = None
) -> Operation[Lost]:
    """End an attempt as failed, counted; why it was not applied, or None.

    A terminal failure stands for ``ttl_ms``; after another one the work may begin again.
    """
    return _ending(FAIL, begun, begun.kept_ms(ttl_ms), error, 1 if terminal else 0)


def release(begun: Begun, *, ttl_ms: int | None = None) -> Operation[Lost]:
    """Give an attempt back, uncounted; why it was not applied, or None."""
    return _ending(RELEASE, begun, begun.kept_ms(ttl_ms))


def renew_operation(begun: Begun, lease_ms: int | None = None) -> Operation[int | None]:
    """Extend a lease from now on; the outcome is the milliseconds left, None if it is lost."""
    terms = begun.terms
    lease_ms = begun.lease_ms if lease_ms is None else lease_ms
    return Operation(
        RENEW,
        (terms.names.idem,),
        (terms.owner_id, begun.attempt, lease_ms, terms.ttl_ms),
        _left,
    )


def renew(begun: Begun, lease_ms: int | None = None) -> Flow[Lost]:
    """Extend a lease from now on, never shortening it; why it is lost, or None.

    The attempt's deadline moves with it.

    Raises:
        StoreUnavailable: the server could not be reached; the lease is as it was.
        StoreRefused: the server answered with an error; the lease is as it was.
        OutcomeUnknown: no answer; the lease is as it was or longer.
    """
    lease_ms = begun.lease_ms if lease_ms is None else lease_ms
    answer = yield from trace(renew_operation(begun, lease_ms))
    if answer.reply[0] == 1:
        begun.renewed(answer.sent_at, lease_ms)
        return None
    return _why(answer.reply)


def read(names: Names) -> Operation[RecordStatus | None]:
    """Read what the server knows of a key; None when it knows nothing."""
    return Operation(READ, (names.idem,), (), lambda reply: _status(names, reply))


def read_memo(names: Names) -> Operation[tuple[RecordState | None, Memo]]:
    """Read the state of a key and, where it is done, its memo."""
    return Operation(RESULT, (names.idem,), (), _state_and_memo)


def clear(names: Names) -> Flow[bool]:
    """Forget what is recorded of a key; False when nothing was.

    Two steps, so that a copy of the second never clears a later record: the fence is read, and the
    record goes only if it is still that. An attempt that runs is shut out.
    """
    while True:
        status = yield from perform(read(names))
        if status is None:
            return False
        answer = yield from trace(Operation(CLEAR, (names.idem,), (status.fence.real,), _is_one))
        # An earlier copy may have done it, and what is there now is somebody's new beginning.
        if answer.reply[0] == 1 or answer.sends > 1:
            return True


def _ending(script: Script, begun: Begun, kept_ms: int, *rest: Arg) -> Operation[Lost]:
    terms = begun.terms
    return Operation(
        script,
        (terms.names.idem,),
        (terms.owner_id, begun.attempt, kept_ms, *rest),
        _why,
    )


_HOW: Final = {
    b"c": "it has been completed already",
    b"f": "it has failed already",
    b"r": "it has been given back already",
    b"w": "it was withdrawn",
    b"x": "its lease was over, and another attempt took the work over",
    b"e": "its lease was over, and no attempt was left",
    b"k": "the record was cleared",
}


def _why(reply: Reply) -> Lost:
    if reply[0]:
        return None
    _, how, state = reply
    if how:
        return _HOW.get(how, "it is over")
    if not state:
        return "there is no record of it: it expired, was cleared, evicted or flushed"
    return f"the record is {_text(state)}, by another attempt"


def _status(names: Names, reply: Reply) -> RecordStatus | None:
    state, owner, attempts, left, last, encoding, error, task_id, published, pttl = reply
    if state is None:
        return None
    return RecordStatus(
        key=names.name,
        state=RecordState(_text(state)),
        owner_id=_text(owner or b""),
        attempts=int(attempts or 0),
        lease_ms=int(left),
        fence=FenceToken._minted(int(last or 0), names.name, "claim"),  # noqa: SLF001
        encoding=None if encoding is None else _text(encoding),
        error=_text(error) if error else None,
        task_id=_text(task_id or b""),
        published=published or b"",
        expires_ms=int(pttl),
    )


def _state_and_memo(reply: Reply) -> tuple[RecordState | None, Memo]:
    state, encoding, data = reply
    return (
        None if state is None else RecordState(_text(state)),
        Memo(_text(encoding or b""), data or b""),
    )


def _alarm(standing: Standing) -> float:
    """Seconds until a waiter looks by itself: just after the lease, spread a little."""
    spread = random() * _ALARM_SPREAD  # noqa: S311 - jitter, not a secret
    return standing.retry_after_ms / 1000 + _ALARM_SLACK + spread


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _as_is(reply: Reply) -> Reply:
    return reply


def _is_one(reply: Reply) -> bool:
    return bool(reply[0] == 1)


def _left(reply: Reply) -> int | None:
    return int(reply[1]) if reply[0] == 1 else None
