"""Locks whose waiters are served in strict order of arrival.

::

    lock = FifoLock(redis, "invoices")
    async with lock.hold() as lease:
        await send_next_invoice(fence=lease.fence)

The order is that in which the server received the waiters, over all processes and hosts. A process
that dies loses its places; a holder that dies is replaced when its lease is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import Any

from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.loop_state import LoopState
from fencekit.drivers.sync import SyncDriver
from fencekit.errors import FenceKitError
from fencekit.fifo import protocol
from fencekit.fifo.base import FifoBase
from fencekit.fifo.boxes import AsyncBox, SyncBox
from fencekit.fifo.desk import Desk
from fencekit.fifo.leases import Lease, SyncLease
from fencekit.fifo.protocol import Release
from fencekit.fifo.statistics import FifoStats, stats
from fencekit.hooks import FenceKitHooks
from fencekit.keys import DEFAULT_PREFIX
from fencekit.owners import current_owner_id, current_task_owner_id

__all__ = ["FifoLock", "SyncFifoLock"]


class FifoLock(FifoBase[Lease]):
    """A fair lock between tasks, processes and hosts, with a fencing token for each grant.

    One object serves any number of tasks, event loops and prefork children.
    """

    def __init__(
        self,
        redis: Any,
        name: str,
        *,
        lease_ms: int = 60_000,
        poll_ms: int = 30_000,
        max_hold_ms: int = 1_800_000,
        alive_ms: int = 15_000,
        prefix: str = DEFAULT_PREFIX,
        fence_retention: timedelta = timedelta(days=30),
        hooks: FenceKitHooks | None = None,
    ) -> None:
        """Make a lock on a server.

        Args:
            redis: an async client of redis-py or valkey-py: single, Sentinel master or cluster.
            name: what to lock. `fencekit.DistributedLock` of this prefix and name excludes, and is
                excluded, and shares the fence; order holds among FIFO locks.
            lease_ms: how long the lock is held without a renewal; a holder that dies is replaced
                after that. The lease is renewed at a third of it.
            poll_ms: the longest pause between two beats of a waiting process. They come every 2.5
                seconds at least, and oftener with shorter leases.
            max_hold_ms: the renewal ends after this long: the backstop for a caller that vanished
                inside a living process. The lock is free one lease later at most.
            alive_ms: a waiting process that gave no sign for this long loses its places.
            prefix: the beginning of every key.
            fence_retention: how long the fence record outlives its last use. Tokens rise beyond
                that too, as long as the server's clock does.
            hooks: callbacks for events; called in the loop.

        Raises:
            TypeError: a sync client, or no client; a name or number of another type.
            ValueError: a name, prefix or number that makes no sense.
        """
        self._driver = self.home = AsyncDriver.of(redis)
        super().__init__(
            name,
            lease_ms=lease_ms,
            poll_ms=poll_ms,
            max_hold_ms=max_hold_ms,
            alive_ms=alive_ms,
            prefix=prefix,
            fence_retention=fence_retention,
            hooks=hooks,
            solo=not self._driver.is_cluster,
        )
        self._redis = redis  # the driver lives as long as its client does

    async def acquire(self, timeout: float | timedelta | None = None) -> Lease:
        """Take the lock when it is our turn; cancelled or timed out, the place is given up.

        Args:
            timeout: how long to wait, seconds or a timedelta; None waits for ever, 0 only looks.

        Raises:
            FifoTimeout: it was not granted in time: a `TimeoutError` and `asyncio.TimeoutError`.
            StoreUnavailable, StoreRefused: nothing is held, no place is kept.
            OutcomeUnknown: no answer came; the lock may be held until its lease is over.
            TypeError, ValueError: the timeout makes no sense; nothing was sent.
        """
        seconds = self._seconds(timeout)
        if not self._driver.policy_seen:
            await self._driver.look_at_policy(self.name)
        state = self._driver.state()
        desk = self._desk(state)
        ticket = self._ticket(current_task_owner_id(), desk.channel)
        started = time.monotonic()
        box = AsyncBox(desk, ticket, state.loop)
        outcome = await self._driver.run(protocol.acquire(ticket, box, seconds))
        grant = self._settle_acquire(ticket, outcome, started, seconds)
        lease = Lease(ticket, grant, desk, self._report_lost if self._hooks else None)
        lease.home = self.home
        lease.kept = state.keeper.keep(lease, lease.schedule(self._max_hold))
        return lease

    async def release(self, lease: Lease) -> None:
        """Give the lock to the next; silent when it already was given back.

        A cancelled release finishes in the background, and can be repeated.

        Raises:
            LeaseLost: the lease was lost before: somebody else may have run beside us.
            HandleForked: the lease is the parent process's.
            StoreUnavailable, StoreRefused, OutcomeUnknown: no verdict; call this again.
            TypeError, ValueError: not a lease, or another lock's.
        """
        grant = self._check_lease(lease, Lease)
        if lease.released:
            return
        state = self._driver.state()
        if lease.kept is not None:
            state.keeper.drop(lease.kept)
        lease.left()  # now: nobody may be here any more when the answer comes
        desk = self._desk(state)
        terms = lease.ticket.terms
        release = Release(
            lease.ticket_at(desk), grant, lambda answer, holder: desk.heard(terms, answer, holder)
        )
        # The next of this process is woken by the answer itself, and not by us: it need not wait
        # for our turn of the loop, and is woken although we may be cancelled.
        parcel = state.send(release.operation, release.hear)
        try:
            answer = await parcel.future
        except asyncio.CancelledError:
            state.see_through(parcel)
            raise
        except FenceKitError as error:
            release.failed(error)
            raise
        self._settle_release(lease, release.settle(answer))

    def hold(self, timeout: float | timedelta | None = None) -> AbstractAsyncContextManager[Lease]:
        """Hold the lock, renewed, for the length of an ``async with``.

        An exception of the body wins over an error of the release.

        Raises:
            FifoTimeout: it was not granted in time.
            LeaseLost: the body ended well, but the lease was lost meanwhile.
            StoreUnavailable, StoreRefused, OutcomeUnknown: as for `acquire`.
            TypeError, ValueError: the timeout makes no sense; nothing was sent.
            RuntimeError: this very hold was entered before: each block calls `hold` anew.
        """
        return _Hold(self, timeout)

    async def stats(self) -> FifoStats:
        """Read who holds the lock, how many wait, and for how long.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
        """
        return await self._driver.run(stats(self._terms.names))

    def _desk(self, state: LoopState) -> Desk:
        if self._guest not in state.hub.guests:
            desk = Desk(self.prefix, state.hub, state.keeper, state.loop.time, state.post)
            state.hub.guests.setdefault(self._guest, desk)
        found: Desk = state.hub.guests[self._guest]
        return found


class SyncFifoLock(FifoBase[SyncLease]):
    """The sync twin of `FifoLock`: same methods, same arguments, same meanings, for threads.

    One connection and one thread listen for all waiting threads.
    """

    def __init__(
        self,
        redis: Any,
        name: str,
        *,
        lease_ms: int = 60_000,
        poll_ms: int = 30_000,
        max_hold_ms: int = 1_800_000,
        alive_ms: int = 15_000,
        prefix: str = DEFAULT_PREFIX,
        fence_retention: timedelta = timedelta(days=30),
        hooks: FenceKitHooks | None = None,
    ) -> None:
        """Make a lock on a server; see `FifoLock`.

        Args:
            redis: a sync client of redis-py or valkey-py: single, Sentinel master or cluster.
            name: what to lock.
            lease_ms: how long the lock is held without a renewal.
            poll_ms: the longest pause between two beats of a waiting process.
            max_hold_ms: the renewal ends after this long.
            alive_ms: a waiting process that gave no sign for this long loses its places.
            prefix: the beginning of every key.
            fence_retention: how long the fence record outlives its last use.
            hooks: callbacks for events.

        Raises:
            TypeError: an async client, or no client; a name or number of another type.
            ValueError: a name, prefix or number that makes no sense.
        """
        self._driver = self.home = SyncDriver.of(redis)
        super().__init__(
            name,
            lease_ms=lease_ms,
            poll_ms=poll_ms,
            max_hold_ms=max_hold_ms,
            alive_ms=alive_ms,
            prefix=prefix,
            fence_retention=fence_retention,
            hooks=hooks,
            solo=not self._driver.is_cluster,
        )
        self._redis = redis  # the driver lives as long as its client does

    def acquire(self, timeout: float | timedelta | None = None) -> SyncLease:
        """Take the lock when it is our turn; see `FifoLock.acquire`.

        Raises:
            FifoTimeout: it was not granted in time: a `TimeoutError`.
            StoreUnavailable, StoreRefused: nothing is held, no place is kept.
            OutcomeUnknown: no answer came; the lock may be held until its lease is over.
            TypeError, ValueError: the timeout makes no sense; nothing was sent.
        """
        seconds = self._seconds(timeout)
        self._driver.look_at_policy(self.name)
        desk = self._desk()
        ticket = self._ticket(current_owner_id(), desk.channel)
        started = time.monotonic()
        outcome = self._driver.run(protocol.acquire(ticket, SyncBox(desk, ticket), seconds))
        grant = self._settle_acquire(ticket, outcome, started, seconds)
        lease = SyncLease(ticket, grant, desk, self._report_lost if self._hooks else None)
        lease.home = self.home
        try:
            lease.kept = self._driver.keeper.keep(lease, lease.schedule(self._max_hold))
        except BaseException:  # the keeper's thread cannot be started
            with suppress(FenceKitError):
                self.release(lease)
            raise
        return lease

    def release(self, lease: SyncLease) -> None:
        """Give the lock to the next; silent when it already was given back.

        Raises:
            LeaseLost: the lease was lost before: somebody else may have run beside us.
            HandleForked: the lease is the parent process's.
            StoreUnavailable, StoreRefused, OutcomeUnknown: no verdict; call this again.
            TypeError, ValueError: not a lease, or another lock's.
        """
        grant = self._check_lease(lease, SyncLease)
        if lease.released:
            return
        if lease.kept is not None:
            self._driver.keeper.drop(lease.kept)
        lease.left()
        desk = self._desk()
        terms = lease.ticket.terms
        flow = protocol.release(
            lease.ticket_at(desk),
            grant,
            lambda answer, holder: desk.heard(terms, answer, holder),
        )
        verdict = self._driver.run(flow)
        self._settle_release(lease, verdict)

    @contextmanager
    def hold(self, timeout: float | timedelta | None = None) -> Iterator[SyncLease]:
        """Hold the lock, renewed, for the length of a ``with``; see `FifoLock.hold`.

        Raises:
            FifoTimeout: it was not granted in time.
            LeaseLost: the body ended well, but the lease was lost meanwhile.
            StoreUnavailable, StoreRefused, OutcomeUnknown: as for `acquire`.
            TypeError, ValueError: the timeout makes no sense; nothing was sent.
        """
        lease = self.acquire(timeout)
        try:
            yield lease
        except BaseException:
            with suppress(FenceKitError):  # the body's exception says more
                self.release(lease)
            raise
        self.release(lease)

    def stats(self) -> FifoStats:
        """Read who holds the lock, how many wait, and for how long.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
        """
        return self._driver.run(stats(self._terms.names))

    def _desk(self) -> Desk:
        hub = self._driver.hub
        if self._guest not in hub.guests:
            desk = Desk(self.prefix, hub, self._driver.keeper, time.monotonic, None)
            hub.guests.setdefault(self._guest, desk)  # another thread may have been quicker
        found: Desk = hub.guests[self._guest]
        return found


class _Hold(AbstractAsyncContextManager[Lease]):
    """A lock that is held for the length of a block; a class, which costs less than a generator."""

    __slots__ = ("_entered", "_lease", "_lock", "_timeout")

    def __init__(self, lock: FifoLock, timeout: float | timedelta | None) -> None:
        self._lock = lock
        self._timeout = timeout
        self._entered = False
        self._lease: Lease

    async def __aenter__(self) -> Lease:
        if self._entered:
            # It has room for one lease: of two blocks one would give back the other's.
            msg = "this hold was entered before: call `hold` anew for each block"
            raise RuntimeError(msg)
        self._entered = True
        self._lease = await self._lock.acquire(self._timeout)
        return self._lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self._lock.release(self._lease)
            return
        with suppress(FenceKitError):  # the body's exception says more
            await self._lock.release(self._lease)
