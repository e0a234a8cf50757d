"""Held locks: what is known of a lease, and how its holder learns that it is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fencekit.errors import HandleForked
from fencekit.protocol.lock import Grant, Verdict, renew_operation
from fencekit.protocol.operation import Operation
from fencekit.protocol.renewal import margin
from fencekit.protocol.token import FenceToken

if TYPE_CHECKING:
    from fencekit.drivers.keeper import Kept
    from fencekit.locks import AsyncDistributedLock, DistributedLock

__all__ = ["AsyncLockHandle", "AsyncLostEvent", "BaseHandle", "LockHandle", "LostEvent"]

_log = logging.getLogger("fencekit.locks")

_LONGEST_SLEEP = 3600.0


class LostEvent(threading.Event):
    """Set when a lease is lost.

    Also looks at the clock when it is asked: a process that was stopped past its lease and wakes
    up finds it set before any other thread has run.
    """

    def __init__(self, left: Callable[[], float | None]) -> None:
        """Make the event of a lease.

        Args:
            left: seconds until the lease counts as lost; None when it cannot be lost any more.
        """
        super().__init__()
        self._left = left

    def is_set(self) -> bool:
        """Whether the lease is lost."""
        if not super().is_set():
            left = self._left()
            if left is None or left > 0:
                return False
            self.set()
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost, or some seconds; returns whether it is lost."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left = self._left()
            step = _LONGEST_SLEEP if left is None else left
            if until is not None:
                step = min(step, until - time.monotonic())
                if step <= 0:
                    return self.is_set()
            super().wait(step)
        return True


class AsyncLostEvent(asyncio.Event):
    """Set when a lease is lost; also looks at the clock when it is asked."""

    def __init__(self, left: Callable[[], float | None]) -> None:
        """Make the event of a lease.

        Args:
            left: seconds until the lease counts as lost; None when it cannot be lost any more.
        """
        super().__init__()
        self._left = left

    def is_set(self) -> bool:
        """Whether the lease is lost."""
        if not super().is_set():
            left = self._left()
            if left is None or left > 0:
                return False
            self.set()
        return True

    async def wait(self) -> bool:  # type: ignore[override]  # typeshed: Literal[True]
        """Wait until the lease is lost."""
        while not self.is_set():
            left = self._left()
            try:
                await asyncio.wait_for(super().wait(), _LONGEST_SLEEP if left is None else left)
            except asyncio.TimeoutError:
                continue
        return True


class BaseHandle:
    """What both colours of handle know of their lease; renewed by the keeper."""

    home: object = None  # see `LockBase.home`

    def __init__(
        self,
        grant: Grant,
        on_lost: Callable[[Any], object] | None,
        report_lost: Callable[[BaseHandle], None] | None,
    ) -> None:
        self._grant = grant
        self._on_lost = on_lost
        self._report_lost = report_lost
        self._pid = os.getpid()
        self._acquired_at = time.monotonic()
        self._gone = False
        self._lease_ms = grant.claimant.ttl_ms
        self.verdict: Verdict | None = None
        self.kept: Kept | None = None

    @property
    def resource(self) -> str:
        """The lock's name."""
        return self._grant.claimant.names.name

    @property
    def name(self) -> str:
        """The lock's name, as the keeper calls it."""
        return self._grant.claimant.names.name

    @property
    def owner_id(self) -> str:
        """Who holds the lock."""
        return self._grant.claimant.owner_id

    @property
    def token(self) -> FenceToken:
        """The fencing token of this grant."""
        return self._grant.token

    @property
    def ttl(self) -> timedelta:
        """The lease as it was asked for, or last extended to."""
        return timedelta(milliseconds=self._lease_ms)

    @property
    def held_ms(self) -> float:
        """Milliseconds since the grant."""
        return (time.monotonic() - self._acquired_at) * 1000

    def remaining(self) -> timedelta:
        """How long the lock is certainly still held; zero when it is lost or released.

        Counted on the local monotonic clock from the send of the last confirmed command.
        """
        if self._gone or self.verdict is not None:
            return timedelta(0)
        return timedelta(seconds=max(self._grant.deadline - time.monotonic(), 0.0))

    def grant_for(self, lock: object) -> Grant:
        """The grant, for the lock object that made this handle.

        Raises:
            HandleForked: the handle was made before a fork, and is the parent's.
        """
        del lock
        if os.getpid() != self._pid:
            raise HandleForked(self.resource)
        return self._grant

    @property
    def confirmed_at(self) -> float:
        """The monotonic second of the send that confirmed the present lease."""
        return self._grant.deadline - self._lease_ms / 1000

    def extended(self, lease_ms: int) -> None:
        """Take note of a new lease."""
        self._lease_ms = lease_ms

    def renew_operation(self) -> Operation[int | None]:
        """The command that renews the lease."""
        return renew_operation(self._grant.claimant, self._grant.token, self._lease_ms)

    def confirmed(self, deadline: float) -> None:
        """The lease is certain until this monotonic second."""
        self._grant.deadline = max(self._grant.deadline, deadline)

    def lose(self) -> None:
        """The lease is lost: tell everybody who asked."""
        if self._gone or self.verdict is not None:
            return
        self._gone = self._grant.lost = True
        self._ring()
        if self._report_lost is not None:
            self._report_lost(self)
        if self._on_lost is not None:
            self._call_on_lost(self._on_lost)

    def _left(self) -> float | None:
        """Seconds until the lease counts as lost; None once it was released."""
        if self._gone or self.verdict is Verdict.LOST:
            return 0.0
        if self.verdict is not None:
            return None
        lost_at = self._grant.deadline - margin(self._lease_ms / 1000)
        return lost_at - time.monotonic()

    def _ring(self) -> None:
        raise NotImplementedError

    def _call_on_lost(self, on_lost: Callable[[Any], object]) -> None:
        raise NotImplementedError

    def _run_on_lost(self, on_lost: Callable[[Any], object]) -> None:
        try:
            on_lost(self)
        except Exception:  # noqa: BLE001 - a callback's error is the caller's to read about
            _log.exception("on_lost of %r raised", self.resource)

    def __repr__(self) -> str:
        state = "lost" if self._gone else self.verdict.name.lower() if self.verdict else "held"
        return f"<{type(self).__name__} {self.resource!r} token={int(self.token)} {state}>"


class LockHandle(BaseHandle):
    """A lock that is held, by whichever thread has the handle."""

    def __init__(
        self,
        lock: DistributedLock,
        grant: Grant,
        on_lost: Callable[[LockHandle], object] | None,
        report_lost: Callable[[BaseHandle], None] | None,
    ) -> None:
        super().__init__(grant, on_lost, report_lost)
        self.home = lock.home
        self._lock = lock
        self._lost: LostEvent | None = None

    @property
    def lost(self) -> LostEvent:
        """Set as soon as the lease is lost, and before the server would let it expire."""
        if self._lost is None:
            self._lost = LostEvent(self._left)
            if self._gone:
                self._lost.set()
        return self._lost

    def release(self) -> None:
        """Give the lock back; see `DistributedLock.release`."""
        self._lock.release(self)

    def extend(self, ttl: timedelta | None = None) -> None:
        """Have the lease end ``ttl`` from now; see `DistributedLock.extend`."""
        self._lock.extend(self, ttl=self.ttl if ttl is None else ttl)

    def _ring(self) -> None:
        if self._lost is not None:
            self._lost.set()

    def _call_on_lost(self, on_lost: Callable[[Any], object]) -> None:
        # In a thread of its own: the keeper has other leases to renew.
        threading.Thread(
            target=self._run_on_lost, args=(on_lost,), name="fencekit-on-lost", daemon=True
        ).start()


class AsyncLockHandle(BaseHandle):
    """A lock that is held, by whichever task has the handle."""

    def __init__(
        self,
        lock: AsyncDistributedLock,
        grant: Grant,
        on_lost: Callable[[AsyncLockHandle], object] | None,
        report_lost: Callable[[BaseHandle], None] | None,
    ) -> None:
        super().__init__(grant, on_lost, report_lost)
        self.home = lock.home
        self._lock = lock
        self._lost: AsyncLostEvent | None = None
        self._callbacks: set[asyncio.Future[object]] = set()

    @property
    def lost(self) -> AsyncLostEvent:
        """Set as soon as the lease is lost, and before the server would let it expire."""
        if self._lost is None:
            self._lost = AsyncLostEvent(self._left)
            if self._gone:
                self._lost.set()
        return self._lost

    async def release(self) -> None:
        """Give the lock back; see `AsyncDistributedLock.release`."""
        await self._lock.release(self)

    async def extend(self, ttl: timedelta | None = None) -> None:
        """Have the lease end ``ttl`` from now; see `AsyncDistributedLock.extend`."""
        await self._lock.extend(self, ttl=self.ttl if ttl is None else ttl)

    def _ring(self) -> None:
        if self._lost is not None:
            self._lost.set()

    def _call_on_lost(self, on_lost: Callable[[Any], object]) -> None:
        try:
            result = on_lost(self)
        except Exception:  # noqa: BLE001 - a callback's error is the caller's to read about
            _log.exception("on_lost of %r raised", self.resource)
            return
        if asyncio.iscoroutine(result):
            task = asyncio.ensure_future(result)
            self._callbacks.add(task)
            task.add_done_callback(self._on_lost_done)

    def _on_lost_done(self, task: asyncio.Future[object]) -> None:
        self._callbacks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("on_lost of %r raised", self.resource, exc_info=error)
