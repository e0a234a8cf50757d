"""What claims of both colours share: what they know, what the keeper is told, how they end."""

from __future__ import annotations

import logging
import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from fencekit.durations import milliseconds
from fencekit.errors import (
    FenceKitError,
    HandleForked,
    IdempotencyExhausted,
    IdempotencyFailed,
    IdempotencyInProgress,
    IdempotencyNotOwned,
    IdempotencyPayloadMismatch,
    IdempotencyResultMissing,
    OutcomeUnknown,
    StoreError,
)
from fencekit.hooks import ClaimDone, ClaimLost
from fencekit.protocol import idempotency as protocol
from fencekit.protocol import memo as memos
from fencekit.protocol.claim import Announcement, BeginOutcome, Begun, Standing
from fencekit.protocol.memo import Memo, decode, describe_error
from fencekit.protocol.operation import perform
from fencekit.protocol.renewal import Renewal, margin

if TYPE_CHECKING:
    from fencekit.drivers.aio_keeper import AsyncLeaseKeeper
    from fencekit.drivers.keeper import Kept, LeaseKeeper
    from fencekit.hooks import FenceKitHooks
    from fencekit.protocol.operation import Flow, Operation
    from fencekit.protocol.token import FenceToken

__all__ = ["BaseClaim", "End", "MemoPolicy"]

_log = logging.getLogger("fencekit.idempotency")

End = Literal["completed", "failed", "released"]
_NO_VERDICT: Final = "left without complete(), fail() or release()"


class MemoPolicy:
    """What a guard does with results, and whom it tells of ends.

    Attributes:
        hooks: callbacks for events, or None.
    """

    def __init__(self, *, store: bool, max_bytes: int, hooks: FenceKitHooks | None) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self.hooks = hooks

    def memo(self, key: str, result: Any) -> Memo:
        """What is stored of a result; a marker, and a warning without content, if it cannot be."""
        if not self._store:
            return Memo(memos.NOT_KEPT, b"")
        memo = memos.encode(result, self._max_bytes)
        if not memo.stored:
            _log.warning(
                "the result of %r (a %s) is not kept: it is %s; the work is recorded as done, and "
                "a replay raises IdempotencyResultMissing",
                key,
                type(result).__qualname__,
                memo.encoding,
                extra={
                    "event": "fencekit.claim.result_not_kept",
                    "fencekit": {"key": key, "reason": memo.encoding},
                },
            )
        return memo

    def admit(self, memo: Memo) -> Memo:
        """What is stored of a memo in the caller's own encoding: as it is, or a marker."""
        if not self._store:
            return Memo(memos.NOT_KEPT, b"")
        return memo if len(memo.data) <= self._max_bytes else Memo(memos.TOO_LARGE, b"")


class BaseClaim:
    """What both colours of claim know; its lease is renewed by the keeper."""

    def __init__(self, key: str, found: Begun | Standing, policy: MemoPolicy) -> None:
        self.key = key
        self.outcome: BeginOutcome = found.outcome
        self._found = found
        self._policy = policy
        self._pid = os.getpid()
        self._began_at = time.monotonic()
        # How the attempt ended here: completed, failed, released or lost; None while it runs.
        self._ended: str | None = None
        self._completing = False
        self._gone = False
        self._memo: Memo | None = None
        self._result: Any = None
        self._kept: Kept | None = None
        self._keeper: LeaseKeeper | AsyncLeaseKeeper | None = None

    @property
    def name(self) -> str:
        """The key, as the keeper calls it."""
        return self.key

    @property
    def started(self) -> bool:
        """Whether the work is to be done here: an attempt began, or took over from another."""
        return isinstance(self._found, Begun)

    @property
    def reclaimed(self) -> bool:
        """Whether the attempt took over from another, which may have done part of the work."""
        return self.outcome is BeginOutcome.RECLAIMED

    @property
    def replayed(self) -> bool:
        """Whether the work was done before, so that `result` is its memo."""
        return self.outcome is BeginOutcome.ALREADY_DONE

    @property
    def owner_id(self) -> str:
        """Who runs the key: this claim, or the one that is in its way; empty when nobody does."""
        found = self._found
        return found.terms.owner_id if isinstance(found, Begun) else found.owner_id

    @property
    def memo(self) -> Memo | None:
        """What is stored of the result of work that is done, here or before; None if it is not."""
        return self._memo if isinstance(self._found, Begun) else self._found.memo

    @property
    def result(self) -> Any:
        """The decoded memo of work that is done, here or before.

        JSON values come back equal; a tuple comes back as a list.

        Raises:
            IdempotencyResultMissing: the work is not done, or no result is kept for it.
        """
        memo = self.memo
        if memo is None:
            raise IdempotencyResultMissing(self.key, reason="it is not done")
        return decode(self.key, memo.encoding, memo.data)

    @property
    def error(self) -> str | None:
        """What is kept of the last error where no attempt is made any more, else None."""
        return None if isinstance(self._found, Begun) else self._found.error or None

    @property
    def retry_after(self) -> timedelta | None:
        """How long the attempt in the way has left unless renewed; None where none is."""
        found = self._found
        if isinstance(found, Begun) or found.outcome is not BeginOutcome.IN_PROGRESS:
            return None
        return timedelta(milliseconds=found.retry_after_ms)

    @property
    def fence(self) -> FenceToken:
        """The fencing token minted for this attempt.

        Raises:
            IdempotencyNotOwned: no attempt began here.
        """
        return self._begun().token

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1; where none began, how many there were, or 0."""
        found = self._found
        return found.number if isinstance(found, Begun) else found.attempts

    @property
    def task_id(self) -> str:
        """The message that carries the work, as its begin said; may be empty."""
        found = self._found
        return found.terms.task_id if isinstance(found, Begun) else found.task_id

    @property
    def published(self) -> bytes:
        """What was published with the memo of work that was done before; may be empty."""
        return b"" if isinstance(self._found, Begun) else self._found.published

    @property
    def announced(self) -> bool | None:
        """Whether what was to be announced with the end of this attempt was.

        False where the server refused it; None where there was nothing to announce, something was
        spared, or it is not known.
        """
        return self._found.announced if isinstance(self._found, Begun) else None

    def check(self) -> None:
        """Go on only while nobody else can have begun. Local: no round trip.

        Counted on this process's monotonic clock from the last renewal that was confirmed. Only a
        gate that is shown `fence` judges at the moment of the write.

        Raises:
            IdempotencyNotOwned: the lease is over or was lost, the attempt has ended, or none
                began here.
            HandleForked: the claim is the parent process's.
        """
        self._running()
        left = self._left()
        if left is not None and left <= 0:
            reason = "its lease is over, or could not be confirmed in time"
            raise IdempotencyNotOwned(self.key, reason=reason)

    def answer(self) -> Any:
        """Return the memo of work that is done, here or before, or raise why there is none.

        Raises:
            IdempotencyInProgress: another attempt is running.
            IdempotencyFailed: the work failed for good.
            IdempotencyExhausted: no attempt is left.
            IdempotencyPayloadMismatch: the key was used with another payload.
            IdempotencyResultMissing: done before, but no result is kept for it.
        """
        found = self._found
        if isinstance(found, Begun):
            # Who ran the work has its result, also when it cannot be kept for others.
            return self.result if self._memo is None or self._memo.stored else self._result
        if found.outcome is BeginOutcome.IN_PROGRESS:
            raise IdempotencyInProgress(
                self.key, retry_after_ms=found.retry_after_ms, owner_id=found.owner_id
            )
        if found.outcome is BeginOutcome.FAILED:
            raise IdempotencyFailed(self.key, error=found.error)
        if found.outcome is BeginOutcome.EXHAUSTED:
            raise IdempotencyExhausted(self.key, attempts=found.attempts)
        if found.outcome is BeginOutcome.MISMATCH:
            raise IdempotencyPayloadMismatch(self.key)
        return self.result

    # What the keeper asks and tells.

    def keep(self, keeper: LeaseKeeper | AsyncLeaseKeeper) -> None:
        """Have the lease renewed until the attempt has ended."""
        begun = self._begun()
        self._keeper = keeper
        self._kept = keeper.keep(self, Renewal(begun.lease_ms / 1000, begun.deadline))

    def renew_operation(self) -> Operation[int | None]:
        """The command that renews the lease."""
        return protocol.renew_operation(self._begun())

    def confirmed(self, deadline: float) -> None:
        """The lease is certain until this monotonic second."""
        begun = self._begun()
        begun.deadline = max(begun.deadline, deadline)

    def lose(self) -> None:
        """The lease is lost: tell everybody who asked."""
        # A renewal that crossed our own complete finds the attempt ended: that is no loss.
        if self._ended is None and not self._completing and not self._gone:
            self._forfeit()

    # What both colours do around a command.

    def _begun(self) -> Begun:
        if not isinstance(self._found, Begun):
            raise IdempotencyNotOwned(self.key, reason="this call did not begin an attempt")
        return self._found

    def _running(self) -> Begun:
        """The attempt, if it is this process's and has not ended."""
        begun = self._begun()
        if os.getpid() != self._pid:
            raise HandleForked(self.key)
        if self._ended is not None:
            raise IdempotencyNotOwned(self.key, reason=f"this attempt is {self._ended} already")
        return begun

    def _left(self) -> float | None:
        """Seconds until the lease counts as lost; None once the attempt has ended."""
        if self._gone:
            return 0.0
        if self._ended is not None:
            return None
        begun = self._begun()
        return begun.deadline - margin(begun.lease_ms / 1000) - time.monotonic()

    def _ring(self) -> None:
        raise NotImplementedError

    def let_go(self) -> None:
        """Renew it no more: it has ended, or whether it has is not known."""
        if self._kept is not None and self._keeper is not None:
            self._keeper.drop(self._kept)
            self._kept = None

    def _complete(
        self,
        result: Any,
        memo: Memo | None,
        published: bytes = b"",
        announcement: Announcement | None = None,
    ) -> Flow[str | None]:
        begun = self._running()
        self._result = result
        self._memo = (
            self._policy.memo(self.key, result) if memo is None else self._policy.admit(memo)
        )
        self._completing = True
        return protocol.complete(begun, self._memo, published=published, announcement=announcement)

    def _fail(self, error: BaseException | str, *, terminal: bool) -> Operation[str | None]:
        begun = self._running()
        self.let_go()
        return protocol.fail(begun, describe_error(error), terminal=terminal)

    def _release(self) -> Operation[str | None]:
        begun = self._running()
        self.let_go()
        return protocol.release(begun)

    def _renew(self, lease: timedelta | None) -> Flow[str | None]:
        begun = self._running()
        return protocol.renew(begun, None if lease is None else milliseconds(lease, "lease"))

    def _renewed(self, lost: str | None) -> None:
        if lost is not None:
            self._lost(lost)
        if self._kept is not None:
            begun = self._begun()
            self._kept.schedule.lease = begun.lease_ms / 1000
            self._kept.schedule.confirm(begun.confirmed_at)

    def completion(self, result: Any) -> Flow[str | None] | None:
        """What completes the attempt, for who runs several at once; None if it is complete.

        Raises:
            IdempotencyNotOwned, HandleForked: as for `complete`.
        """
        return None if self._ended == "completed" else self._complete(result, None)

    def completed(self, outcome: str | FenceKitError | None) -> None:
        """Take in what became of a `completion`.

        Raises:
            IdempotencyNotOwned: it was not ours to complete.
            OutcomeUnknown: as given.
        """
        if isinstance(outcome, FenceKitError):
            self.let_go()
            raise outcome
        self.settle("completed", outcome)

    def settle(self, how: End, lost: str | None) -> None:
        """Take in the answer to an end: it ended so, or it was not ours to end.

        Raises:
            IdempotencyNotOwned: it was not ours.
        """
        self.let_go()
        if lost is not None:
            self._lost(lost)
        self._ended = how
        hooks = self._policy.hooks
        if hooks is not None and hooks.on_done is not None:
            fence = int(self._begun().token)
            done = ClaimDone(key=self.key, fence=fence, ended=how, ran_ms=self._ran_ms)
            hooks.fire(hooks.on_done, done)

    def _lost(self, reason: str) -> None:
        self.let_go()
        self._ended, self._memo = "lost", None
        if not self._gone:
            self._forfeit()
        raise IdempotencyNotOwned(self.key, reason=reason)

    def _forfeit(self) -> None:
        """The attempt is not ours any more: told once."""
        self._gone = True
        self._ring()
        hooks = self._policy.hooks
        if hooks is not None and hooks.on_claim_lost is not None:
            lost = ClaimLost(key=self.key, fence=int(self._begun().token), ran_ms=self._ran_ms)
            hooks.fire(hooks.on_claim_lost, lost)

    @property
    def _ran_ms(self) -> float:
        return (time.monotonic() - self._began_at) * 1000

    def _leave(self, error: BaseException | None) -> Flow[None] | None:
        """What is recorded when a ``with`` block is left; None when nothing is."""
        found = self._found
        if isinstance(found, Standing) or self._ended is not None or os.getpid() != self._pid:
            return None
        self.let_go()
        if not self._completing:
            text = _NO_VERDICT if error is None else describe_error(error)
            return self._record("failed", protocol.fail(found, text))
        if self._memo is None or isinstance(error, OutcomeUnknown):
            return None  # it has been tried for as long as it is worth
        # Interrupted or cancelled in the middle: the effect has happened, so it is sent again.
        return self._record("completed", protocol.complete_operation(found, self._memo))

    def _record(self, how: End, operation: Operation[str | None]) -> Flow[None]:
        """Record an end if the server can be reached; the body's exception says the rest."""
        try:
            lost = yield from perform(operation)
            self.settle(how, lost)
        except IdempotencyNotOwned as error:
            _log.info("%s", error)
        except StoreError as error:
            _log.warning(
                "that the attempt at %r is %s could not be recorded (%s): it counts as running "
                "until its lease is over",
                self.key,
                how,
                error,
                extra={
                    "event": "fencekit.claim.end_not_recorded",
                    "fencekit": {"key": self.key, "ended": how},
                },
            )

    def _insist_on_a_verdict(self) -> None:
        if not self._gone and not self._completing:
            msg = (
                f"the claim of {self.key!r} was {_NO_VERDICT}: whether its work is done is not "
                "known; the attempt was recorded as failed"
            )
            raise RuntimeError(msg)

    def __repr__(self) -> str:
        state = self._ended or ("lost" if self._gone else self.outcome.value)
        return f"<{type(self).__name__} {self.key!r} {state}>"
