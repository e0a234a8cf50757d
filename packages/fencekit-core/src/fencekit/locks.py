"""Locks with fencing tokens that never go backwards: one worker at a time.

::

    lock = DistributedLock(redis)
    with lock.hold("invoices", ttl=timedelta(seconds=30), wait=timedelta(seconds=10)) as handle:
        gate.set_if_fresh(handle.token, "invoices:status", "running")

A lock's ``ttl`` is its *lease*: how long it is held without a word from its holder. (An idempotency
guard's ``ttl`` is how long a record is kept.) Two holders never overlap as long as each stays
within its lease; for the one that does not (a process that was stopped, a long collection of
garbage) there is the token, which the gate or a database refuses once a newer one is known.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any

from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.sync import SyncDriver
from fencekit.durations import milliseconds, seconds_to_wait
from fencekit.errors import FenceKitError, LockNotAcquired
from fencekit.handles import AsyncLockHandle, LockHandle
from fencekit.hooks import FenceKitHooks
from fencekit.keys import DEFAULT_PREFIX, check_owner_id, names
from fencekit.lock_base import LockBase, check_max_hold, check_on_lost
from fencekit.owners import current_owner_id, current_task_owner_id
from fencekit.protocol import lock as protocol
from fencekit.protocol.lock import LockInfo, Refusal, Verdict

__all__ = ["AsyncDistributedLock", "DistributedLock"]


class DistributedLock(LockBase[LockHandle]):
    """A lock between processes and hosts, with a fencing token for each grant.

    One object serves any number of resources, threads and prefork children.
    """

    def __init__(
        self,
        redis: Any,
        *,
        prefix: str = DEFAULT_PREFIX,
        fence_retention: timedelta = timedelta(days=30),
        min_replicas: int = 0,
        replica_timeout: timedelta = timedelta(milliseconds=500),
        hooks: FenceKitHooks | None = None,
    ) -> None:
        """Make locks on a server.

        Args:
            redis: a sync client of redis-py or valkey-py: single, Sentinel master or cluster.
            prefix: the beginning of every key.
            fence_retention: how long a name's fence record outlives its last use. Tokens rise
                beyond that too, as long as the server's clock does.
            min_replicas: replicas that must confirm a grant, or it is given back.
            replica_timeout: how long they may take.
            hooks: callbacks for events.

        Raises:
            TypeError: an async client, or no client; a duration that is no timedelta.
            ValueError: a prefix, duration or number that makes no sense.
        """
        super().__init__(
            prefix=prefix,
            fence_retention=fence_retention,
            min_replicas=min_replicas,
            replica_timeout=replica_timeout,
            hooks=hooks,
        )
        self._driver = self.home = SyncDriver.of(redis)
        self._redis = redis  # the driver lives as long as its client does

    def acquire(
        self,
        resource: str,
        *,
        ttl: timedelta,
        owner_id: str | None = None,
        blocking: bool = False,
        wait: timedelta | None = None,
        renew: bool = False,
        max_hold: timedelta | None = None,
        on_lost: Callable[[LockHandle], object] | None = None,
    ) -> LockHandle:
        """Take the lock, waiting for it only where asked to.

        Args:
            resource: what to lock.
            ttl: the lease: how long the lock is held without a renewal.
            owner_id: who holds it, for people who look; host, process and thread by default.
            blocking: wait; needs ``wait``.
            wait: how long to wait, and a reason to wait. None does not wait; ``timedelta.max``
                waits for ever.
            renew: renew the lease at a third of it, as long as this process runs.
            max_hold: end the renewal after this long: the backstop for a handle that is forgotten.
            on_lost: called with the handle, in a thread of its own, when the lease is lost.

        Raises:
            LockNotAcquired: somebody else holds it, and still did when the wait was over.
            ReplicationError: too few replicas confirmed; nothing is held.
            StoreUnavailable, StoreRefused: nothing is held.
            OutcomeUnknown: no answer came; the lock may be held until ``ttl`` is over.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        if max_hold is not None:
            check_max_hold(max_hold)
        if on_lost is not None:
            check_on_lost(on_lost, awaited=False)
        owner = current_owner_id() if owner_id is None else check_owner_id(owner_id)
        claimant = self._claimant(resource, ttl, owner)
        seconds = seconds_to_wait(wait, blocking=blocking)
        if not self._driver.policy_seen:
            self._driver.look_at_policy(resource)
        started = time.monotonic()
        outcome = self._driver.run(protocol.acquire(claimant, seconds))
        if self._hooks is not None:
            self._tell_acquired(claimant, outcome, started, waited=seconds is not None)
        if isinstance(outcome, Refusal):
            raise LockNotAcquired(
                resource, retry_after_ms=outcome.retry_after_ms, holder=outcome.holder
            )
        schedule = self._schedule(
            outcome, renew=renew, max_hold=max_hold, watched=on_lost is not None
        )
        handle = LockHandle(self, outcome, on_lost, self._report_lost if self._hooks else None)
        if schedule is not None:
            try:
                handle.kept = self._driver.keeper.keep(handle, schedule)
            except BaseException:  # the keeper's thread cannot be started
                with suppress(FenceKitError):
                    self.release(handle)
                raise
        return handle

    def try_acquire(
        self,
        resource: str,
        *,
        ttl: timedelta,
        owner_id: str | None = None,
        blocking: bool = False,
        wait: timedelta | None = None,
        renew: bool = False,
        max_hold: timedelta | None = None,
        on_lost: Callable[[LockHandle], object] | None = None,
    ) -> LockHandle | None:
        """Take the lock, or return None when somebody else holds it.

        Arguments and errors as for `acquire`, without LockNotAcquired.

        Raises:
            ReplicationError, StoreUnavailable, StoreRefused: nothing is held.
            OutcomeUnknown: no answer came; the lock may be held until ``ttl`` is over.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        try:
            return self.acquire(
                resource,
                ttl=ttl,
                owner_id=owner_id,
                blocking=blocking,
                wait=wait,
                renew=renew,
                max_hold=max_hold,
                on_lost=on_lost,
            )
        except LockNotAcquired:
            return None

    def release(self, handle: LockHandle) -> None:
        """Give the lock back; silent when it already was given back.

        Raises:
            LockNotOwned: the lease was lost before: somebody else may have run beside us.
            HandleForked: the handle is the parent process's.
            StoreUnavailable, StoreRefused, OutcomeUnknown: no verdict; call this again.
            TypeError: not a handle.
            ValueError: a handle that was made through another client.
        """
        self._check_handle(handle, LockHandle)
        grant = handle.grant_for(self)
        if handle.verdict is not None and handle.verdict is not Verdict.LOST:
            return
        if handle.kept is not None:
            self._driver.keeper.drop(handle.kept)
        self._settle_release(handle, self._driver.run(protocol.release(grant)))

    def extend(self, handle: LockHandle, *, ttl: timedelta) -> None:
        """Have the lease end ``ttl`` from now: never added up, never shortened.

        Raises:
            LockNotOwned: the lease was lost before.
            HandleForked: the handle is the parent process's.
            StoreUnavailable, StoreRefused, OutcomeUnknown: the lease is as it was, or longer.
            TypeError, ValueError: not a handle, or not a duration.
        """
        self._check_handle(handle, LockHandle)
        grant, lease_ms = handle.grant_for(self), milliseconds(ttl, "ttl")
        extended = self._driver.run(protocol.renew(grant, lease_ms))
        self._settle_extend(handle, lease_ms, extended=extended)

    @contextmanager
    def hold(
        self,
        resource: str,
        *,
        ttl: timedelta,
        owner_id: str | None = None,
        wait: timedelta | None = None,
        renew: bool = True,
        max_hold: timedelta | None = None,
        on_lost: Callable[[LockHandle], object] | None = None,
    ) -> Iterator[LockHandle]:
        """Hold the lock, renewed, for the length of a ``with``.

        An exception of the body wins over an error of the release.

        Raises:
            LockNotAcquired: somebody else holds it, and still did when the wait was over.
            LockNotOwned: the body ended well, but the lease was lost meanwhile.
            ReplicationError, StoreUnavailable, StoreRefused, OutcomeUnknown: as for `acquire`.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        handle = self.acquire(
            resource,
            ttl=ttl,
            owner_id=owner_id,
            wait=wait,
            renew=renew,
            max_hold=max_hold,
            on_lost=on_lost,
        )
        try:
            yield handle
        except BaseException:
            with suppress(FenceKitError):  # the body's exception says more
                self.release(handle)
            raise
        self.release(handle)

    def inspect(self, resource: str) -> LockInfo | None:
        """Read who holds the lock and what its fence record says; None when nothing is known.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: the resource cannot be a name.
        """
        return self._driver.run(protocol.inspect(names(self.prefix, resource)))

    def force_release(self, resource: str, *, token: int | None = None) -> bool:
        """Free the lock whoever holds it; the former holder's token is refused from now on.

        Returns False when it was free.

        Args:
            resource: what is locked.
            token: whom it is to be taken from, as `inspect` told: a later holder is left alone,
                and the answer is False.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: the resource cannot be a name, or the number is no token.
        """
        return self._driver.run(self._force(resource, token))

    def advance_fence(self, resource: str, *, at_least: int) -> int:
        """Lift the fence so that every later token is above ``at_least``; never lower it.

        For a restored backup, or a database that holds larger tokens. Returns the highest token
        known afterwards.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: not a name, or a number no token may have.
        """
        return self._driver.run(self._advance(resource, at_least))


class AsyncDistributedLock(LockBase[AsyncLockHandle]):
    """The async twin of `DistributedLock`: same methods, same arguments, same meanings."""

    def __init__(
        self,
        redis: Any,
        *,
        prefix: str = DEFAULT_PREFIX,
        fence_retention: timedelta = timedelta(days=30),
        min_replicas: int = 0,
        replica_timeout: timedelta = timedelta(milliseconds=500),
        hooks: FenceKitHooks | None = None,
    ) -> None:
        """Make locks on a server; see `DistributedLock`.

        Args:
            redis: an async client of redis-py or valkey-py: single, Sentinel master or cluster.
            prefix: the beginning of every key.
            fence_retention: how long a name's fence record outlives its last use.
            min_replicas: replicas that must confirm a grant, or it is given back.
            replica_timeout: how long they may take.
            hooks: callbacks for events; called in the loop.

        Raises:
            TypeError: a sync client, or no client; a duration that is no timedelta.
            ValueError: a prefix, duration or number that makes no sense.
        """
        super().__init__(
            prefix=prefix,
            fence_retention=fence_retention,
            min_replicas=min_replicas,
            replica_timeout=replica_timeout,
            hooks=hooks,
        )
        self._driver = self.home = AsyncDriver.of(redis)
        self._redis = redis  # the driver lives as long as its client does

    async def acquire(
        self,
        resource: str,
        *,
        ttl: timedelta,
        owner_id: str | None = None,
        blocking: bool = False,
        wait: timedelta | None = None,
        renew: bool = False,
        max_hold: timedelta | None = None,
        on_lost: Callable[[AsyncLockHandle], object] | None = None,
    ) -> AsyncLockHandle:
        """Take the lock; see `DistributedLock.acquire`. ``on_lost`` may be a coroutine function.

        Raises:
            LockNotAcquired: somebody else holds it, and still did when the wait was over.
            ReplicationError: too few replicas confirmed; nothing is held.
            StoreUnavailable, StoreRefused: nothing is held.
            OutcomeUnknown: no answer came; the lock may be held until ``ttl`` is over.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        if max_hold is not None:
            check_max_hold(max_hold)
        if on_lost is not None:
            check_on_lost(on_lost, awaited=True)
        owner = current_task_owner_id() if owner_id is None else check_owner_id(owner_id)
        claimant = self._claimant(resource, ttl, owner)
        seconds = seconds_to_wait(wait, blocking=blocking)
        if not self._driver.policy_seen:
            await self._driver.look_at_policy(resource)
        started = time.monotonic()
        outcome = await self._driver.run(protocol.acquire(claimant, seconds))
        if self._hooks is not None:
            self._tell_acquired(claimant, outcome, started, waited=seconds is not None)
        if isinstance(outcome, Refusal):
            raise LockNotAcquired(
                resource, retry_after_ms=outcome.retry_after_ms, holder=outcome.holder
            )
        schedule = self._schedule(
            outcome, renew=renew, max_hold=max_hold, watched=on_lost is not None
        )
        handle = AsyncLockHandle(self, outcome, on_lost, self._report_lost if self._hooks else None)
        if schedule is not None:
            handle.kept = self._driver.keeper.keep(handle, schedule)
        return handle

    async def try_acquire(
        self,
        resource: str,
        *,
        ttl: timedelta,
        owner_id: str | None = None,
        blocking: bool = False,
        wait: timedelta | None = None,
        renew: bool = False,
        max_hold: timedelta | None = None,
        on_lost: Callable[[AsyncLockHandle], object] | None = None,
    ) -> AsyncLockHandle | None:
        """Take the lock, or return None; see `DistributedLock.try_acquire`.

        Raises:
            ReplicationError, StoreUnavailable, StoreRefused: nothing is held.
            OutcomeUnknown: no answer came; the lock may be held until ``ttl`` is over.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        try:
            return await self.acquire(
                resource,
                ttl=ttl,
                owner_id=owner_id,
                blocking=blocking,
                wait=wait,
                renew=renew,
                max_hold=max_hold,
                on_lost=on_lost,
            )
        except LockNotAcquired:
            return None

    async def release(self, handle: AsyncLockHandle) -> None:
        """Give the lock back; see `DistributedLock.release`.

        A cancelled release finishes in the background, and can be repeated.

        Raises:
            LockNotOwned: the lease was lost before: somebody else may have run beside us.
            HandleForked: the handle is the parent process's.
            StoreUnavailable, StoreRefused, OutcomeUnknown: no verdict; call this again.
            TypeError: not a handle.
            ValueError: a handle that was made through another client.
        """
        self._check_handle(handle, AsyncLockHandle)
        grant = handle.grant_for(self)
        if handle.verdict is not None and handle.verdict is not Verdict.LOST:
            return
        if handle.kept is not None:
            self._driver.keeper.drop(handle.kept)
        self._settle_release(handle, await self._driver.run(protocol.release(grant)))

    async def extend(self, handle: AsyncLockHandle, *, ttl: timedelta) -> None:
        """Have the lease end ``ttl`` from now; see `DistributedLock.extend`.

        Raises:
            LockNotOwned: the lease was lost before.
            HandleForked: the handle is the parent process's.
            StoreUnavailable, StoreRefused, OutcomeUnknown: the lease is as it was, or longer.
            TypeError, ValueError: not a handle, or not a duration.
        """
        self._check_handle(handle, AsyncLockHandle)
        grant, lease_ms = handle.grant_for(self), milliseconds(ttl, "ttl")
        extended = await self._driver.run(protocol.renew(grant, lease_ms))
        self._settle_extend(handle, lease_ms, extended=extended)

    @asynccontextmanager
    async def hold(
        self,
        resource: str,
        *,
        ttl: timedelta,
        owner_id: str | None = None,
        wait: timedelta | None = None,
        renew: bool = True,
        max_hold: timedelta | None = None,
        on_lost: Callable[[AsyncLockHandle], object] | None = None,
    ) -> AsyncIterator[AsyncLockHandle]:
        """Hold the lock, renewed, for the length of an ``async with``; see `DistributedLock.hold`.

        Raises:
            LockNotAcquired: somebody else holds it, and still did when the wait was over.
            LockNotOwned: the body ended well, but the lease was lost meanwhile.
            ReplicationError, StoreUnavailable, StoreRefused, OutcomeUnknown: as for `acquire`.
            TypeError, ValueError: an argument makes no sense; nothing was sent.
        """
        handle = await self.acquire(
            resource,
            ttl=ttl,
            owner_id=owner_id,
            wait=wait,
            renew=renew,
            max_hold=max_hold,
            on_lost=on_lost,
        )
        try:
            yield handle
        except BaseException:
            with suppress(FenceKitError):  # the body's exception says more
                await self.release(handle)
            raise
        await self.release(handle)

    async def inspect(self, resource: str) -> LockInfo | None:
        """Read who holds the lock; see `DistributedLock.inspect`.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: the resource cannot be a name.
        """
        return await self._driver.run(protocol.inspect(names(self.prefix, resource)))

    async def force_release(self, resource: str, *, token: int | None = None) -> bool:
        """Free the lock whoever holds it; see `DistributedLock.force_release`.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: the resource cannot be a name, or the number is no token.
        """
        return await self._driver.run(self._force(resource, token))

    async def advance_fence(self, resource: str, *, at_least: int) -> int:
        """Lift the fence; see `DistributedLock.advance_fence`.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: not a name, or a number no token may have.
        """
        return await self._driver.run(self._advance(resource, at_least))
