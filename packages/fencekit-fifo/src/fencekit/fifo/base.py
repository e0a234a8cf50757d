"""What both colours of FIFO lock check, ask for, and make of the answers."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeVar

from fencekit.durations import LONGEST_LEASE
from fencekit.errors import LockNotOwned
from fencekit.fifo import protocol
from fencekit.fifo.errors import FifoTimeout, LeaseLost
from fencekit.fifo.leases import BaseLease
from fencekit.fifo.protocol import FifoGrant, Ticket
from fencekit.hooks import FenceKitHooks
from fencekit.keys import check_prefix, names
from fencekit.lock_base import LockBase
from fencekit.protocol.lock import Claimant, Refusal, Verdict, new_attempt

__all__ = ["FifoBase"]

L = TypeVar("L", bound=BaseLease)

_LONGEST_MS = LONGEST_LEASE // timedelta(milliseconds=1)
# How long an offer stands before the next may be offered the lock, milliseconds.
_OFFER_MS = 5000
# A process gives several signs in the time in which it must give one.
_BEATS_PER_LIFE = 3


class FifoBase(LockBase[L]):
    """What both colours of FIFO lock check, ask for, and make of the answers."""

    def __init__(
        self,
        name: str,
        *,
        lease_ms: int,
        poll_ms: int,
        max_hold_ms: int,
        alive_ms: int,
        prefix: str,
        fence_retention: timedelta,
        hooks: FenceKitHooks | None,
        solo: bool,
    ) -> None:
        super().__init__(
            prefix=prefix,
            fence_retention=fence_retention,
            min_replicas=0,
            replica_timeout=timedelta(milliseconds=500),
            hooks=hooks,
        )
        keys = names(check_prefix(prefix), name)
        for value, what in (
            (lease_ms, "lease_ms"),
            (poll_ms, "poll_ms"),
            (max_hold_ms, "max_hold_ms"),
            (alive_ms, "alive_ms"),
        ):
            _check_ms(value, what)
        if max_hold_ms <= lease_ms:
            msg = f"max_hold_ms ({max_hold_ms}) must be above lease_ms ({lease_ms})"
            raise ValueError(msg)
        self._max_hold = max_hold_ms / 1000
        self._guest = f"fifo {prefix}"
        offer_ms = min(lease_ms, _OFFER_MS)
        self._terms = protocol.terms(
            keys,
            lease_ms=lease_ms,
            offer_ms=offer_ms,
            alive_ms=alive_ms,
            beat_ms=max(min(poll_ms, offer_ms // 2, alive_ms // _BEATS_PER_LIFE), 1),
            retention_ms=self._retention_ms,
            solo=solo,
        )

    @property
    def name(self) -> str:
        """What is locked."""
        return self._terms.names.name

    def _ticket(self, owner_id: str, channel: str) -> Ticket:
        terms = self._terms
        claimant = Claimant(
            terms.names, owner_id, new_attempt(), terms.lease_ms, terms.retention_ms
        )
        return Ticket(terms, claimant, channel)

    def _seconds(self, timeout: float | timedelta | None) -> float | None:
        """Turn a timeout into seconds."""
        if timeout is None:
            return None
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds()
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            msg = f"timeout must be seconds, a timedelta or None, not {type(timeout).__name__}"
            raise TypeError(msg)
        if not timeout >= 0:
            msg = f"timeout must not be negative, and is {timeout}"
            raise ValueError(msg)
        return None if math.isinf(timeout) else float(timeout)

    def _settle_acquire(
        self,
        ticket: Ticket,
        outcome: FifoGrant | Refusal,
        started: float,
        seconds: float | None,
    ) -> FifoGrant:
        waited = outcome.queued if isinstance(outcome, FifoGrant) else seconds != 0
        self._tell_acquired(ticket.claimant, outcome, started, waited=waited)
        if isinstance(outcome, FifoGrant):
            return outcome
        raise FifoTimeout(self.name, timeout=seconds or 0.0, holder=outcome.holder or None)

    def _check_lease(self, lease: L, kind: type[L]) -> FifoGrant:
        self._check_handle(lease, kind)
        terms = lease.ticket.terms
        if terms is not self._terms and terms.names != self._terms.names:
            msg = f"this is a lease of {lease.resource!r}, and this lock is {self.name!r}"
            raise ValueError(msg)
        return lease.fifo_grant()

    def _settle_release(self, handle: L, verdict: Verdict) -> None:
        try:
            super()._settle_release(handle, verdict)
        except LockNotOwned as error:
            raise LeaseLost(error.resource, token=error.token) from None


def _check_ms(value: int, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{what} must be an int of milliseconds, not {type(value).__name__}"
        raise TypeError(msg)
    if not 0 < value <= _LONGEST_MS:
        msg = f"{what} must be above zero and at most ten years, and is {value}"
        raise ValueError(msg)
