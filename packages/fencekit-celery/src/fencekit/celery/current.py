"""The claim under which the running task works."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING

from fencekit.errors import LockNotOwned
from fencekit.protocol.claim import BeginOutcome

if TYPE_CHECKING:
    from fencekit.claims import Claim
    from fencekit.handles import LockHandle, LostEvent
    from fencekit.protocol.token import FenceToken

__all__ = ["TaskClaim", "current", "current_claim"]

# Each thread and each greenlet has a context of its own, so tasks of one process do not mix.
current: ContextVar[TaskClaim | None] = ContextVar("fencekit_task_claim", default=None)


class TaskClaim:
    """What the body of an idempotent task may ask of its attempt."""

    def __init__(self, claim: Claim, handle: LockHandle | None, lease: timedelta) -> None:
        self._claim = claim
        self._lease = lease
        self.lock = handle

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self._claim.key

    @property
    def fence(self) -> FenceToken:
        """The fencing token of this attempt; that of the lock is ``claim.lock.token``."""
        return self._claim.fence

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self._claim.attempt

    @property
    def reclaimed(self) -> bool:
        """Whether it took over from an attempt that did not end, whose effect may have happened."""
        return self._claim.outcome is BeginOutcome.RECLAIMED

    @property
    def lost(self) -> LostEvent:
        """Set as soon as the lease of the claim or of the lock is lost."""
        return self._claim.lost

    def check(self) -> None:
        """Go on only while nobody else can have begun. Local: no round trip.

        Raises:
            IdempotencyNotOwned: the lease of the claim or of its lock is over or was lost.
            LockNotOwned: the lease of the lock is over.
            HandleForked: the claim is the parent process's.
        """
        self._claim.check()
        if self.lock is not None and self.lock.lost.is_set():
            raise LockNotOwned(self.lock.resource, token=int(self.lock.token))

    def renew(self) -> None:
        """Have the leases of claim and lock begin anew; for a body that starves the renewal.

        Raises:
            IdempotencyNotOwned, LockNotOwned: it was lost.
            HandleForked: the claim is the parent process's.
            StoreUnavailable, StoreRefused, OutcomeUnknown: the leases are as they were, or longer.
        """
        self._claim.renew()
        if self.lock is not None:
            self.lock.extend(ttl=self._lease)

    def __repr__(self) -> str:
        return f"<TaskClaim {self.key!r} attempt={self.attempt}>"


def current_claim() -> TaskClaim:
    """The claim of the idempotent task that runs in this thread or greenlet.

    Raises:
        RuntimeError: none runs here. A thread that the task has started is handed the claim.
    """
    claim = current.get()
    if claim is None:
        raise RuntimeError("no idempotent task runs in this thread")
    return claim
