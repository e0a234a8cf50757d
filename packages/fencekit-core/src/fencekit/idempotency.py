"""Jobs that take effect once: a redelivered job is answered from its record, not run again.

::

    guard = IdempotencyGuard(redis)
    receipt = guard.run(f"charge:{order_id}", charge, ttl=timedelta(hours=24))

    with guard.begin(f"charge:{order_id}", ttl=timedelta(hours=24)) as claim:
        if claim.replayed:
            return claim.result
        if not claim.started:
            raise TryAgain(claim.retry_after)
        claim.complete(charge(fence=claim.fence))

A guard's ``ttl`` is how long the *record* is kept, counted from completion. (A lock's ``ttl`` is
its lease; a claim's lease is called ``lease``.) The attempt that runs is protected by its lease,
which is renewed while the work runs; where the worker died, another takes over when it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from fencekit.claims import AsyncClaim, Claim
from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.sync import SyncDriver
from fencekit.durations import seconds_to_wait
from fencekit.errors import FenceKitError, IdempotencyPayloadMismatch
from fencekit.guards import OMITTED, BaseGuard, check_work, finished
from fencekit.hooks import FenceKitHooks
from fencekit.keys import DEFAULT_PREFIX, names
from fencekit.owners import current_owner_id, current_task_owner_id
from fencekit.protocol import idempotency as protocol
from fencekit.protocol.batch import side_by_side
from fencekit.protocol.claim import BeginOutcome, Begun, RecordStatus, Standing, Terms
from fencekit.protocol.operation import Flow, Operation

if TYPE_CHECKING:
    from types import TracebackType

    from fencekit.protocol.lock import LockInfo

__all__ = ["AsyncIdempotencyGuard", "IdempotencyGuard"]

T = TypeVar("T")

_LEASE: Final = timedelta(seconds=30)
_GRACE: Final = timedelta(seconds=10)
_MAX_RESULT_BYTES: Final = 1024 * 1024


class _Asked(Protocol):
    """A lock that can be asked who holds it."""

    def inspect(self, resource: str, /) -> LockInfo | None:
        """Read what is known of a lock."""


class _AsyncAsked(Protocol):
    """The async twin of `_Asked`."""

    async def inspect(self, resource: str, /) -> LockInfo | None:
        """Read what is known of a lock."""


class IdempotencyGuard(BaseGuard):
    """Has the work of a key take effect once, however often it is delivered.

    One object serves any number of keys, threads and prefork children.
    """

    def __init__(
        self,
        redis: Any,
        *,
        prefix: str = DEFAULT_PREFIX,
        owner_id: str | None = None,
        begin_grace: timedelta = _GRACE,
        store_result: bool = True,
        max_result_bytes: int = _MAX_RESULT_BYTES,
        hooks: FenceKitHooks | None = None,
    ) -> None:
        """Keep records on a server.

        Args:
            redis: a sync client of redis-py or valkey-py: single, Sentinel master or cluster.
            prefix: the beginning of every key.
            owner_id: who begins, for people who look; host, process and thread by default.
            begin_grace: how long a record begun by `try_begin` or `try_begin_or_reclaim` is
                protected before the lock of its work decides.
            store_result: False keeps results out of Redis: a replay then raises
                IdempotencyResultMissing.
            max_result_bytes: a larger result is not kept; its work is recorded as done anyway.
            hooks: callbacks for events.

        Raises:
            TypeError: an async client, or no client; an argument of another type.
            ValueError: a prefix, owner id, duration or number that makes no sense.
        """
        super().__init__(
            prefix=prefix,
            owner_id=owner_id,
            begin_grace=begin_grace,
            store_result=store_result,
            max_result_bytes=max_result_bytes,
            hooks=hooks,
        )
        self._driver = SyncDriver.of(redis)
        self._redis = redis  # the driver lives as long as its client does

    @property
    def owner_id(self) -> str:
        """Who begins: as given, else the running thread, derived at each call."""
        return self._owner_id or current_owner_id()

    @property
    def driver(self) -> SyncDriver:
        """What performs operations of other distributions on the records of this guard."""
        return self._driver

    def run(
        self,
        key: str,
        func: Callable[[], Any],
        *,
        ttl: timedelta,
        lease: timedelta = _LEASE,
        payload: Any = None,
        max_attempts: int | None = None,
        renew: bool = True,
        wait: timedelta | None = None,
    ) -> Any:
        """Call ``func`` unless its work is done, and return its result, decoded from the memo.

        The first run returns the decoded memo too, so that first run and replay are equal: JSON
        values, tuples as lists. Once ``func`` has returned it is never called again for a store
        error. An exception of ``func`` is recorded as a failed, retryable attempt and propagates.

        Args:
            key: what the work is; the same key is the same work.
            func: does the work.
            ttl: how long the record is kept, counted from completion. (A lock's ``ttl`` is its
                lease.)
            lease: how long the attempt is protected without a renewal.
            payload: what must be the same at each call with this key, see `canonicalize`. None is
                not compared.
            max_attempts: attempts to make in all; None: no limit.
            renew: renew the lease at a third of it while ``func`` runs.
            wait: how long to wait for another attempt that is running, to return its result or
                to take over. None does not wait; ``timedelta.max`` waits for ever.

        Raises:
            IdempotencyInProgress: another attempt is running, and still was when the wait was over.
            IdempotencyFailed: the work failed for good.
            IdempotencyExhausted: no attempt is left.
            IdempotencyPayloadMismatch: the key was used with another payload.
            IdempotencyResultMissing: done before, but no result is kept for it.
            IdempotencyNotOwned: ``func`` ran past its lease and another attempt took over.
            OutcomeUnknown: before ``func``: an attempt may stand until its lease is over. After it:
                whether the work is recorded as done is not known.
            StoreUnavailable, StoreRefused: nothing has begun.
            CanonicalizeError: the payload has no canonical form; nothing was sent.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        check_work(func, awaited=False)
        claim = self._begin(
            self._terms(key, ttl=ttl, lease=lease, payload=payload, max_attempts=max_attempts),
            seconds_to_wait(wait, blocking=False),
            renew=renew,
        )
        if claim.started:
            with claim:
                claim.complete(finished(func()))
        return claim.answer()

    def begin(
        self,
        key: str,
        *,
        ttl: timedelta,
        lease: timedelta = _LEASE,
        payload: Any = None,
        max_attempts: int | None = None,
        renew: bool = True,
        wait: timedelta | None = None,
        task_id: str = "",
    ) -> Claim:
        """Begin an attempt, unless the work is done, being done, or not to be tried any more.

        What happened is told by the claim: ``started``, ``replayed``, ``outcome``. Use it as a
        context manager, or else end it with `complete`, `fail` or `release`: until then it is
        renewed for as long as this process lives.

        Args:
            key: what the work is; the same key is the same work.
            ttl: how long the record is kept, counted from completion. (A lock's ``ttl`` is its
                lease.)
            lease: how long the attempt is protected without a renewal.
            payload: what must be the same at each call with this key, see `canonicalize`. None is
                not compared.
            max_attempts: attempts to make in all; None: no limit.
            renew: renew the lease at a third of it until the claim has ended.
            wait: how long to wait for another attempt that is running. None does not wait;
                ``timedelta.max`` waits for ever.
            task_id: the message that carries the work, for those who look.

        Raises:
            IdempotencyPayloadMismatch: the key was used with another payload.
            StoreUnavailable, StoreRefused: nothing has begun.
            OutcomeUnknown: no answer; an attempt may stand until ``lease`` is over.
            CanonicalizeError: the payload has no canonical form; nothing was sent.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        claim = self._begin(
            self._terms(
                key,
                ttl=ttl,
                lease=lease,
                payload=payload,
                max_attempts=max_attempts,
                task_id=task_id,
            ),
            seconds_to_wait(wait, blocking=False),
            renew=renew,
        )
        if claim.outcome is BeginOutcome.MISMATCH:
            raise IdempotencyPayloadMismatch(key)
        return claim

    def begin_on(self, terms: Terms, *, renew: bool = True) -> Claim:
        """Begin as `begin` does, on terms that another distribution has made and checked before.

        Another payload under the key is told by the claim's ``outcome``, MISMATCH.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: as for `begin`.
        """
        return self._begin(terms, None, renew=renew)

    def begin_many(
        self,
        keys: Iterable[str],
        *,
        ttl: timedelta,
        lease: timedelta = _LEASE,
        payloads: Sequence[Any] | None = None,
        max_attempts: int | None = None,
        renew: bool = True,
    ) -> list[Claim]:
        """Begin an attempt of each key in one pipeline; claims in the order of the keys.

        Another payload under a key is told by its claim's ``outcome``, MISMATCH. When one begin
        fails for the store's sake, those that began are given back and the error is raised.

        Args:
            keys: what the works are.
            ttl: how long each record is kept, counted from completion.
            lease: how long each attempt is protected without a renewal.
            payloads: one for each key, or None.
            max_attempts: attempts to make in all; None: no limit.
            renew: renew the leases until the claims have ended.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown, CanonicalizeError, TypeError,
                ValueError: as for `begin`.
        """
        claims, error = [], None
        many = self._many_terms(keys, payloads, ttl=ttl, lease=lease, max_attempts=max_attempts)
        flows = [protocol.begin(terms) for terms in many]
        outcomes = self._driver.run(side_by_side(flows, undo=_give_back))
        for terms, found in zip(many, outcomes, strict=True):
            if isinstance(found, FenceKitError):
                error = error or found
            else:
                claims.append(self._claim(terms, found, renew=renew and error is None))
        if error is not None:
            releases = self._releases(claims)
            given_back = self._driver.execute_many(list(releases.values()))
            self._settle_releases(releases, given_back)
            raise error
        return claims

    def complete_many(self, pairs: Iterable[tuple[Claim, Any]]) -> None:
        """Record works as done in one pipeline: pairs of a claim and its result.

        Each is tried, whatever becomes of the others; then the first error is raised.

        Raises:
            IdempotencyNotOwned, OutcomeUnknown, HandleForked: as for `Claim.complete`.
            TypeError: not pairs of a claim and its result; nothing was sent.
        """
        claims, flows = self._completions(pairs, Claim)
        try:
            outcomes = self._driver.run(side_by_side(flows))
        except BaseException:
            for claim in claims:
                claim.let_go()
            raise
        self._settle_completions(claims, outcomes)

    def try_begin(self, key: str, *, ttl: timedelta) -> bool:
        """Begin an attempt, and tell whether it began; one that runs is never taken over.

        The attempt is kept here for this thread or task, which ends it with `mark_done`,
        `mark_failed` or `give_back`. It is protected for ``begin_grace`` and not renewed: what
        protects it after that is the lock of its work, see `try_begin_or_reclaim`.

        Args:
            key: what the work is.
            ttl: how long the record is kept. (A lock's ``ttl`` is its lease.)

        Raises:
            StoreUnavailable, StoreRefused: nothing has begun.
            OutcomeUnknown: no answer; an attempt may stand until ``begin_grace`` is over.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        terms = self._step_terms(key, ttl)
        self._driver.look_at_policy(key)
        return self._step(key, self._driver.run(protocol.begin(terms))).started

    def try_begin_or_reclaim(
        self, key: str, *, lock: _Asked, lock_resource: str, ttl: timedelta
    ) -> BeginOutcome:
        """Begin an attempt, also in place of one whose grace is over and whose lock is free.

        One command where nothing is in the way. The lock is asked only about an attempt that was
        begun longer than ``begin_grace`` ago and has not ended; its record is then swapped only if
        it is still that attempt's. Take the lock next, with ``owner_id=guard.owner_id``.

        Returns BEGUN or RECLAIMED, and the attempt is kept here for this thread or task; or
        IN_PROGRESS, or ALREADY_DONE, see `get_result`.

        Args:
            key: what the work is.
            lock: the lock that the work is done under.
            lock_resource: its name.
            ttl: how long the record is kept. (A lock's ``ttl`` is its lease.)

        Raises:
            IdempotencyFailed: the work failed for good.
            IdempotencyExhausted: no attempt is left.
            StoreUnavailable, StoreRefused: nothing has begun.
            OutcomeUnknown: no answer; an attempt may stand until ``begin_grace`` is over.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        self._check_pair(lock, lock_resource, awaits=False)
        terms = self._step_terms(key, ttl)
        self._driver.look_at_policy(key)
        found = self._driver.run(protocol.begin(terms))
        lapsed = self._lapsed(found)
        if lapsed is not None:
            held = lock.inspect(lock_resource)
            if held is None or held.owner_id is None:
                found = self._driver.run(protocol.begin(terms.reclaiming(lapsed)))
        return self._step_outcome(key, found)

    def mark_done(self, key: str, *, result: Any = OMITTED, ttl: timedelta | None = None) -> None:
        """Record the work begun here as done; silent when it already was recorded.

        Args:
            key: what the work is.
            result: what `get_result` returns from now on. Omitted, it raises.
            ttl: how long the memo is kept from now; by default as at the begin.

        Raises:
            IdempotencyNotOwned: this thread or task did not begin it, or somebody took over.
            OutcomeUnknown: no answer for some seconds. Calling this again is safe; running the
                work again is not.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        self._settle(key, "completed", self._driver.run(self._mark_done(key, result, ttl)))

    def mark_failed(
        self,
        key: str,
        error: BaseException | str,
        *,
        terminal: bool = False,
        ttl: timedelta | None = None,
    ) -> None:
        """Record the attempt begun here as failed: to be tried again, or for good if ``terminal``.

        Raises:
            IdempotencyNotOwned: this thread or task did not begin it, or somebody took over.
            StoreUnavailable, StoreRefused, OutcomeUnknown: it may not be recorded; call this again.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        operation = self._mark_failed(key, error, ttl, terminal=terminal)
        self._settle(key, "failed", self._driver.execute(operation))

    def give_back(self, key: str) -> None:
        """Give the attempt begun here back, uncounted: the work may begin again at once.

        Raises:
            IdempotencyNotOwned: this thread or task did not begin it, or somebody took over.
            StoreUnavailable, StoreRefused, OutcomeUnknown: it may not be recorded; call this again.
        """
        lost = self._driver.execute(protocol.release(self._stepped(key)))
        self._settle(key, "released", lost)

    def get_result(self, key: str) -> Any:
        """Return the result of work that is done, decoded.

        Raises:
            IdempotencyResultMissing: it is not done, or no result is kept for it; ``reason`` says
                which.
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: the key cannot be a name.
        """
        return self._result(key, self._driver.execute(protocol.read_memo(names(self.prefix, key))))

    def status(self, key: str) -> RecordStatus | None:
        """Read what is recorded of a key; None when nothing is.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: the key cannot be a name.
        """
        return self._driver.execute(protocol.read(names(self.prefix, key)))

    def clear(self, key: str) -> bool:
        """Forget what is recorded of a key, so that its work may begin anew; False if nothing was.

        An attempt that runs is shut out: its fence is refused and its end is not applied.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: it may not be forgotten; call again.
            TypeError, ValueError: the key cannot be a name.
        """
        return self._driver.run(protocol.clear(names(self.prefix, key)))

    def _begin(self, terms: Terms, seconds: float | None, *, renew: bool) -> Claim:
        if not self._driver.policy_seen:
            self._driver.look_at_policy(terms.names.name)
        return self._claim(terms, self._driver.run(protocol.begin(terms, seconds)), renew=renew)

    def _claim(self, terms: Terms, found: Begun | Standing, *, renew: bool) -> Claim:
        claim = Claim(terms.names.name, found, self._policy, self._driver)
        if self._hooks is not None:
            self._tell(claim.key, found)
        if renew and claim.started:
            try:
                claim.keep(self._driver.keeper)
            except BaseException:  # the keeper's thread cannot be started
                with suppress(FenceKitError):
                    claim.release()
                raise
        return claim


def _give_back(found: Begun | Standing) -> Operation[str | None] | None:
    return protocol.release(found) if isinstance(found, Begun) else None


class Beginning(Awaitable[AsyncClaim]):
    """A begin under way: await it for its claim, or enter it with ``async with``."""

    def __init__(self, opening: Callable[[], Awaitable[AsyncClaim]]) -> None:
        self._opening = opening
        self._claim: AsyncClaim | None = None

    def __await__(self) -> Generator[Any, Any, AsyncClaim]:
        return self._opening().__await__()

    async def __aenter__(self) -> AsyncClaim:
        self._claim = await self._opening()
        return self._claim

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._claim is not None:
            await self._claim.__aexit__(kind, error, traceback)


class AsyncIdempotencyGuard(BaseGuard):
    """The async twin of `IdempotencyGuard`: same methods, same arguments, same meanings."""

    def __init__(
        self,
        redis: Any,
        *,
        prefix: str = DEFAULT_PREFIX,
        owner_id: str | None = None,
        begin_grace: timedelta = _GRACE,
        store_result: bool = True,
        max_result_bytes: int = _MAX_RESULT_BYTES,
        hooks: FenceKitHooks | None = None,
    ) -> None:
        """Keep records on a server; see `IdempotencyGuard`.

        Args:
            redis: an async client of redis-py or valkey-py: single, Sentinel master or cluster.
            prefix: the beginning of every key.
            owner_id: who begins; host, process, thread and task by default.
            begin_grace: how long a record begun step by step is protected before its lock decides.
            store_result: False keeps results out of Redis.
            max_result_bytes: a larger result is not kept.
            hooks: callbacks for events; called in the loop.

        Raises:
            TypeError: a sync client, or no client; an argument of another type.
            ValueError: a prefix, owner id, duration or number that makes no sense.
        """
        super().__init__(
            prefix=prefix,
            owner_id=owner_id,
            begin_grace=begin_grace,
            store_result=store_result,
            max_result_bytes=max_result_bytes,
            hooks=hooks,
        )
        self._driver = AsyncDriver.of(redis)
        self._redis = redis

    @property
    def owner_id(self) -> str:
        """Who begins: as given, else the running task, derived at each call."""
        return self._owner_id or current_task_owner_id()

    async def run(
        self,
        key: str,
        func: Callable[[], Any],
        *,
        ttl: timedelta,
        lease: timedelta = _LEASE,
        payload: Any = None,
        max_attempts: int | None = None,
        renew: bool = True,
        wait: timedelta | None = None,
    ) -> Any:
        """Call and await ``func`` unless its work is done, and return its result.

        See `IdempotencyGuard.run` for arguments and meanings. ``func`` may also be a plain
        function.

        Raises:
            IdempotencyInProgress, IdempotencyFailed, IdempotencyExhausted,
                IdempotencyPayloadMismatch, IdempotencyResultMissing, IdempotencyNotOwned,
                OutcomeUnknown, StoreUnavailable, StoreRefused, CanonicalizeError, TypeError,
                ValueError: as there.
        """
        check_work(func, awaited=True)
        claim = await self._begin(
            self._terms(key, ttl=ttl, lease=lease, payload=payload, max_attempts=max_attempts),
            seconds_to_wait(wait, blocking=False),
            renew=renew,
        )
        if claim.started:
            async with claim:
                result = func()
                await claim.complete(await result if isawaitable(result) else result)
        return claim.answer()

    def begin(
        self,
        key: str,
        *,
        ttl: timedelta,
        lease: timedelta = _LEASE,
        payload: Any = None,
        max_attempts: int | None = None,
        renew: bool = True,
        wait: timedelta | None = None,
        task_id: str = "",
    ) -> Beginning:
        """Begin an attempt, with ``async with`` or ``await``; see `IdempotencyGuard.begin`.

        Raises:
            IdempotencyPayloadMismatch, StoreUnavailable, StoreRefused, OutcomeUnknown,
                CanonicalizeError, TypeError, ValueError: as there.
        """
        terms = self._terms(
            key, ttl=ttl, lease=lease, payload=payload, max_attempts=max_attempts, task_id=task_id
        )
        seconds = seconds_to_wait(wait, blocking=False)

        async def opening() -> AsyncClaim:
            claim = await self._begin(terms, seconds, renew=renew)
            if claim.outcome is BeginOutcome.MISMATCH:
                raise IdempotencyPayloadMismatch(key)
            return claim

        return Beginning(opening)

    async def begin_many(
        self,
        keys: Iterable[str],
        *,
        ttl: timedelta,
        lease: timedelta = _LEASE,
        payloads: Sequence[Any] | None = None,
        max_attempts: int | None = None,
        renew: bool = True,
    ) -> list[AsyncClaim]:
        """Begin an attempt of each key in one pipeline; see `IdempotencyGuard.begin_many`.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown, CanonicalizeError, TypeError,
                ValueError: as there.
        """
        claims, error = [], None
        many = self._many_terms(keys, payloads, ttl=ttl, lease=lease, max_attempts=max_attempts)
        outcomes = await self._run_many([protocol.begin(terms) for terms in many])
        for terms, found in zip(many, outcomes, strict=True):
            if isinstance(found, FenceKitError):
                error = error or found
            else:
                claims.append(self._claim(terms, found, renew=renew and error is None))
        if error is not None:
            releases = self._releases(claims)
            given_back = await self._driver.execute_many(list(releases.values()))
            self._settle_releases(releases, given_back)
            raise error
        return claims

    async def complete_many(self, pairs: Iterable[tuple[AsyncClaim, Any]]) -> None:
        """Record works as done in one pipeline; see `IdempotencyGuard.complete_many`.

        Raises:
            IdempotencyNotOwned, OutcomeUnknown, HandleForked, TypeError: as there.
        """
        claims, flows = self._completions(pairs, AsyncClaim)
        try:
            outcomes = await self._run_many(flows)
        except BaseException:
            for claim in claims:
                claim.let_go()
            raise
        self._settle_completions(claims, outcomes)

    async def try_begin(self, key: str, *, ttl: timedelta) -> bool:
        """Begin an attempt, and tell whether it began; see `IdempotencyGuard.try_begin`.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown, TypeError, ValueError: as there.
        """
        terms = self._step_terms(key, ttl)
        await self._driver.look_at_policy(key)
        return self._step(key, await self._driver.run(protocol.begin(terms))).started

    async def try_begin_or_reclaim(
        self, key: str, *, lock: _AsyncAsked, lock_resource: str, ttl: timedelta
    ) -> BeginOutcome:
        """Begin an attempt, also in place of one whose grace is over and whose lock is free.

        See `IdempotencyGuard.try_begin_or_reclaim`.

        Raises:
            IdempotencyFailed, IdempotencyExhausted, StoreUnavailable, StoreRefused,
                OutcomeUnknown, TypeError, ValueError: as there.
        """
        self._check_pair(lock, lock_resource, awaits=True)
        terms = self._step_terms(key, ttl)
        await self._driver.look_at_policy(key)
        found = await self._driver.run(protocol.begin(terms))
        lapsed = self._lapsed(found)
        if lapsed is not None:
            held = await lock.inspect(lock_resource)
            if held is None or held.owner_id is None:
                found = await self._driver.run(protocol.begin(terms.reclaiming(lapsed)))
        return self._step_outcome(key, found)

    async def mark_done(
        self, key: str, *, result: Any = OMITTED, ttl: timedelta | None = None
    ) -> None:
        """Record the work begun here as done; see `IdempotencyGuard.mark_done`.

        Raises:
            IdempotencyNotOwned, OutcomeUnknown, TypeError, ValueError: as there.
        """
        lost = await self._driver.run(self._mark_done(key, result, ttl))
        self._settle(key, "completed", lost)

    async def mark_failed(
        self,
        key: str,
        error: BaseException | str,
        *,
        terminal: bool = False,
        ttl: timedelta | None = None,
    ) -> None:
        """Record the attempt begun here as failed; see `IdempotencyGuard.mark_failed`.

        Raises:
            IdempotencyNotOwned, StoreUnavailable, StoreRefused, OutcomeUnknown, TypeError,
                ValueError: as there.
        """
        operation = self._mark_failed(key, error, ttl, terminal=terminal)
        self._settle(key, "failed", await self._driver.execute(operation))

    async def give_back(self, key: str) -> None:
        """Give the attempt begun here back, uncounted; see `IdempotencyGuard.give_back`.

        Raises:
            IdempotencyNotOwned, StoreUnavailable, StoreRefused, OutcomeUnknown: as there.
        """
        lost = await self._driver.execute(protocol.release(self._stepped(key)))
        self._settle(key, "released", lost)

    async def get_result(self, key: str) -> Any:
        """Return the result of work that is done; see `IdempotencyGuard.get_result`.

        Raises:
            IdempotencyResultMissing, StoreUnavailable, StoreRefused, OutcomeUnknown, TypeError,
                ValueError: as there.
        """
        operation = protocol.read_memo(names(self.prefix, key))
        return self._result(key, await self._driver.execute(operation))

    async def status(self, key: str) -> RecordStatus | None:
        """Read what is recorded of a key; None when nothing is.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: the key cannot be a name.
        """
        return await self._driver.execute(protocol.read(names(self.prefix, key)))

    async def clear(self, key: str) -> bool:
        """Forget what is recorded of a key; see `IdempotencyGuard.clear`.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown, TypeError, ValueError: as there.
        """
        return await self._driver.run(protocol.clear(names(self.prefix, key)))

    async def _begin(self, terms: Terms, seconds: float | None, *, renew: bool) -> AsyncClaim:
        if not self._driver.policy_seen:
            await self._driver.look_at_policy(terms.names.name)
        found = await self._driver.run(protocol.begin(terms, seconds))
        return self._claim(terms, found, renew=renew)

    def _claim(self, terms: Terms, found: Begun | Standing, *, renew: bool) -> AsyncClaim:
        claim = AsyncClaim(terms.names.name, found, self._policy, self._driver)
        if self._hooks is not None:
            self._tell(claim.key, found)
        if renew and claim.started:
            claim.keep(self._driver.keeper)
        return claim

    async def _run_many(self, flows: list[Flow[T]]) -> list[T | FenceKitError]:
        """Run flows side by side: the driver puts what they ask in one turn in one pipeline."""
        tasks = [asyncio.ensure_future(self._driver.run(flow)) for flow in flows]
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            # A begin under way is withdrawn by its flow; one that was answered is given back here.
            answered = [task for task in tasks if task.done() and not task.cancelled()]
            begun = [task.result() for task in answered if not task.exception()]
            for task in tasks:
                task.cancel()
            releases = [protocol.release(one) for one in begun if isinstance(one, Begun)]
            await self._driver.execute_many(releases)
            raise
        outcomes: list[T | FenceKitError] = []
        for task in tasks:
            try:
                outcomes.append(task.result())
            except FenceKitError as error:
                outcomes.append(error)
        return outcomes
