"""What happens to one call of an idempotent task.

========================  ==========================================================================
the key is                a message
========================  ==========================================================================
free                      runs; its result is kept, and returned as it was kept
being worked at           is published again, as it is, to come back later
done                      returns the kept result, so that chains and chords go on with it
done, and published       is ignored: it was delivered once more after everything had been sent
failed for good           fails with `IdempotencyFailed`
out of attempts           fails with `IdempotencyExhausted`
used with other arguments fails with `IdempotencyPayloadMismatch`
========================  ==========================================================================

What fails a message here is raised past ``autoretry_for``. A direct or an eager call has no message
to put off: where the key is taken it raises `IdempotencyInProgress`, or for the lock
`LockNotAcquired`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from celery.exceptions import Ignore, Retry, SoftTimeLimitExceeded, TaskPredicate
from fencekit.celery import memos
from fencekit.celery.current import TaskClaim, current
from fencekit.celery.errors import StillBusy, told
from fencekit.celery.published import entry, is_published, publish_operation
from fencekit.celery.results import announce_no_more, announcement_of, returns_as_it_is
from fencekit.celery.terms import Terms
from fencekit.errors import (
    FenceKitError,
    IdempotencyNotOwned,
    IdempotencyPayloadMismatch,
    IdempotencyResultMissing,
    LockNotAcquired,
    LockNotOwned,
    OutcomeUnknown,
    StoreError,
)
from fencekit.protocol.claim import BeginOutcome

if TYPE_CHECKING:
    from fencekit.celery.deliveries import Delivery
    from fencekit.claims import Claim
    from fencekit.handles import LockHandle
    from fencekit.idempotency import IdempotencyGuard
    from fencekit.locks import DistributedLock
    from fencekit.protocol.claim import Terms as ClaimTerms

__all__ = ["Run"]

_log = logging.getLogger("fencekit.celery")

# How long whoever has done the work is given to publish its result, before a copy of the message
# does it: seconds.
_PUBLISHING: Final = 5.0


class Run:
    """One call of an idempotent task."""

    def __init__(
        self,
        terms: Terms,
        delivery: Delivery | None,
        guard: IdempotencyGuard,
        lock: DistributedLock | None,
        asked: ClaimTerms,
        *,
        resource: str | None,
        serializers: Sequence[str],
        model: Callable[[], Any],
        body: Callable[..., Any],
    ) -> None:
        self._terms = terms
        self._delivery = delivery
        self._guard = guard
        self._lock = lock
        self._asked = asked
        self._key = asked.names.name
        self._resource = resource
        self._serializers = serializers
        self._model = model
        self._body = body
        # The message, where there is one that can be put off.
        self._message = None if delivery is None or delivery.request.is_eager else delivery

    def answer(self, call: Callable[[], Any]) -> Any:
        """Run the body unless its work is done, being done, or not to be tried any more.

        Raises:
            Ignore: the message was put off, dropped, or has been answered before.
            Reject: it could not be put off, and was given back to the broker.
            IdempotencyFailed, IdempotencyExhausted, IdempotencyPayloadMismatch,
                IdempotencyResultMissing, StillBusy: it ends as a failure.
            IdempotencyInProgress, LockNotAcquired: a direct or eager call found it taken.
            StoreError: Redis cannot be asked.
            whatever the body raises.
        """
        try:
            claim = self._begin()
        except StoreError as error:
            self._put_off(error, None, "Redis cannot be asked")
        except IdempotencyPayloadMismatch as error:
            self._blame()
            raise told(error) from None
        if claim.replayed:
            return self._replay(claim)
        if claim.outcome is BeginOutcome.IN_PROGRESS:
            self._find_busy(claim)
        if not claim.started:
            self._find_over(claim)
        return self._work(claim, self._take_lock(claim), call)

    # Where nothing began here.

    def _begin(self) -> Claim:
        # An eager call may be in a program that starts no threads.
        renew = self._delivery is None or self._message is not None
        claim = self._guard.begin_on(self._asked, renew=renew)
        if claim.outcome is BeginOutcome.MISMATCH:
            raise IdempotencyPayloadMismatch(self._key)
        return claim

    def _find_busy(self, claim: Claim) -> NoReturn:
        message, left = self._message, claim.retry_after
        if message is None:
            self._raise_why(claim)
        elif claim.task_id == message.id and message.is_broadcast:
            raise Ignore(f"{self._key!r} is being worked at where this broadcast has come as well")
        elif claim.task_id == message.id:
            # A copy of the holder's own message: its lease bounds the wait, and no state is
            # written, because the holder's is this message's state.
            left_s = None if left is None else left.total_seconds()
            message.defer(left_s, "this very message is being run", counted=False)
        elif self._terms.drops_busy and not message.feeds_a_canvas:
            raise Ignore(f"{self._key!r} is being worked at by another message, and this is a copy")
        left_s = None if left is None else left.total_seconds()
        self._put_off(StillBusy.of(self._key, self._waited), left_s, "the key is taken")

    def _find_over(self, claim: Claim) -> NoReturn:
        if self._message is not None and self._message.failed_before():
            raise Ignore(f"{self._key!r} has failed, and this message has told so before")
        self._blame()
        self._raise_why(claim)

    def _raise_why(self, claim: Claim) -> NoReturn:
        try:
            claim.answer()
        except FenceKitError as error:
            raise told(error) from None
        raise AssertionError(claim.outcome)

    def _replay(self, claim: Claim) -> Any:
        message, memo = self._message, claim.memo
        if message is not None:
            if message.published(noted=is_published(claim.published, message.id)):
                raise Ignore(f"{self._key!r} is done, and this message's result was published")
            spare = claim.task_id != message.id and not message.feeds_a_canvas
            if spare and not self._terms.replays:
                raise Ignore(f"{self._key!r} is done, and this is a copy")
            own = claim.task_id == message.id
            if own and message.feeds_a_canvas and not message.has_seen_done():
                message.give_time_to_publish(_PUBLISHING)
            self._publish_later(message)
        try:
            if memo is None:
                return None
            value = memos.decode(self._serializers, self._key, memo, self._model)
        except IdempotencyResultMissing as error:
            if message is not None and not message.has_readers:
                return None
            self._blame()
            raise told(error) from None
        if message is not None:
            self._count_in_chord(message, value, again=True)
        return value

    def _count_in_chord(self, message: Delivery, value: Any, *, again: bool) -> None:
        if returns_as_it_is(message.task, self._body):
            message.count_in_chord(value, again=again)

    def _put_off(self, error: FenceKitError, left_s: float | None, why: str) -> NoReturn:
        """Have the message come back, or raise the error when it has done so for too long."""
        message = self._message
        if message is None or message.waited() >= self._terms.busy_timeout:
            self._blame()
            raise told(error)
        message.defer(left_s, why, counted=True)

    # Where an attempt began here.

    def _take_lock(self, claim: Claim) -> LockHandle | None:
        if self._lock is None or self._resource is None:
            return None
        try:
            return self._lock.acquire(
                self._resource,
                ttl=self._terms.lease,
                renew=self._delivery is None or self._message is not None,
                on_lost=lambda _: claim.lose(),
            )
        except LockNotAcquired as error:
            self._give_back(claim)
            if self._message is None:
                raise told(error) from None
            busy = StillBusy.of(self._resource, self._waited)
            self._put_off(busy, error.retry_after_ms / 1000, "the lock is taken")
        except StoreError as error:
            self._give_back(claim)
            self._put_off(error, None, "Redis cannot be asked")
        except BaseException:
            self._give_back(claim)
            raise

    def _work(self, claim: Claim, handle: LockHandle | None, call: Callable[[], Any]) -> Any:
        token = current.set(TaskClaim(claim, handle, self._terms.lease))
        try:
            if self._message is not None:
                self._message.begun()
            result = call()
        except BaseException as error:
            self._end_badly(claim, error)
            raise
        else:
            return self._complete(claim, result, announces=handle is None)
        finally:
            current.reset(token)
            self._release(handle)

    def _complete(self, claim: Claim, result: Any, *, announces: bool) -> Any:
        """Record the work as done, and store its result in the same step where that can be done.

        Not while a lock is held: whoever reads the result would find it taken.
        """
        message, guard = self._message, self._guard
        memo, value = memos.encode(self._serializers, self._key, result, self._model)
        announcement, published = None, b""
        if message is not None and not message.has_readers:
            published = entry(message.id)  # there is nothing more to be done with it
        elif message is not None and announces:
            announcement = announcement_of(message, self._body, guard.driver.client, value)
        complete = partial(
            claim.complete_memo, memo, published=published, announcement=announcement
        )
        try:
            try:
                complete()
            except SoftTimeLimitExceeded:
                # The body had ended, and so the time limit has nothing to end any more.
                complete()
        except IdempotencyNotOwned as error:
            self._find_replaced(error)
            raise told(error) from None
        except OutcomeUnknown:
            # The effect has happened and its result is here: it goes where it is waited for. The
            # message is acknowledged after that, so it does not come again.
            _log.exception(
                "the work of %r is done, but Redis did not confirm the record of it: another "
                "message with this key may run it again once the lease is over",
                self._key,
            )
            return value
        if message is None or published:
            return value
        if claim.announced:
            message.is_told()
            return value
        if claim.announced is False:
            announce_no_more(message)
        self._publish_later(message)
        self._count_in_chord(message, value, again=False)
        return value

    def _end_badly(self, claim: Claim, error: BaseException) -> None:
        message = self._message
        if isinstance(error, TaskPredicate) or not isinstance(error, Exception):
            # Retry, Ignore and Reject are no failures, and neither is the worker's end.
            end: Callable[[], object] = claim.release
        else:
            terminal = isinstance(error, self._terms.terminal_for)
            terminal = terminal and not isinstance(error, SoftTimeLimitExceeded)
            end = partial(claim.fail, error, terminal=terminal)
            if terminal:
                self._blame()
            if message is not None and message.retries_itself and not terminal:
                # Still ours? The end itself comes after the retry is on its way.
                end = self._end_later(claim.renew, end)
        if message is not None and isinstance(error, Retry):
            end = self._end_later(None, end)
        self._end(end, replaced_matters=not isinstance(error, TaskPredicate))

    def _end_later(
        self, first: Callable[[], object] | None, end: Callable[[], object]
    ) -> Callable[[], object]:
        """Have the attempt end when the state of this run is written; returns what to do now."""
        if self._message is not None:
            self._message.when_told(lambda: self._end(end, replaced_matters=False))
        return first or (lambda: None)

    def _end(self, end: Callable[[], object], *, replaced_matters: bool) -> None:
        try:
            try:
                end()
            except SoftTimeLimitExceeded:
                end()  # what ended the body is what the message ends with
        except IdempotencyNotOwned as lost:
            if replaced_matters:
                self._find_replaced(lost)
        except StoreError as unanswered:
            _log.warning(
                "that the attempt at %r has ended could not be recorded (%s): it counts as running "
                "until its lease is over",
                self._key,
                unanswered,
            )

    def _find_replaced(self, lost: IdempotencyNotOwned) -> None:
        """Another attempt has taken over: its result is this message's, once there is one.

        Returns where the record is gone, so that nobody can say whether anybody took over.
        """
        self._blame()
        message = self._message
        if message is None:
            return
        with suppress(StoreError):
            if self._guard.status(self._key) is not None:
                message.defer(None, f"{lost}", counted=True)

    def _give_back(self, claim: Claim) -> None:
        try:
            claim.release()
        except (StoreError, IdempotencyNotOwned) as error:
            _log.warning("the attempt at %r could not be given back (%s)", self._key, error)

    def _release(self, handle: LockHandle | None) -> None:
        if handle is None:
            return
        try:
            try:
                handle.release()
            except SoftTimeLimitExceeded:
                handle.release()  # the work has ended, as above
        except LockNotOwned as error:
            _log.warning("%s", error)
        except StoreError as error:
            _log.warning("%r could not be released (%s): its lease ends it", handle, error)

    # What each of them needs.

    @property
    def _waited(self) -> timedelta:
        return timedelta(0) if self._message is None else self._message.waited()

    def _blame(self) -> None:
        if self._delivery is not None:
            self._delivery.blame()

    def _publish_later(self, message: Delivery) -> None:
        message.when_published(partial(self._note_published, message.id))

    def _note_published(self, message: str) -> None:
        self._guard.driver.execute(publish_operation(self._asked.names, message))
