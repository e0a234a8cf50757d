"""What both colours of lock check, ask for, and make of the answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

from fencekit.durations import milliseconds
from fencekit.errors import LockNotOwned
from fencekit.handles import BaseHandle
from fencekit.hooks import (
    FenceKitHooks,
    LockAcquired,
    LockFailed,
    LockLost,
    LockReleased,
    LockWaited,
    is_async,
    with_installed,
)
from fencekit.keys import check_prefix, names
from fencekit.protocol import lock as protocol
from fencekit.protocol.lock import Claimant, Grant, Refusal, Verdict
from fencekit.protocol.operation import Flow, Replication
from fencekit.protocol.renewal import Renewal
from fencekit.protocol.token import check_token_value

__all__ = ["LockBase", "check_max_hold", "check_on_lost"]

H = TypeVar("H", bound=BaseHandle)

# What a record of ours never holds: doubles are exact up to here.
_NO_TOKEN = 2**53


class LockBase(Generic[H]):
    """What both colours of lock check, ask for, and make of the answers."""

    home: object
    """The driver: two locks on one client may give back each other's handles."""

    def __init__(
        self,
        *,
        prefix: str,
        fence_retention: timedelta,
        min_replicas: int,
        replica_timeout: timedelta,
        hooks: FenceKitHooks | None,
    ) -> None:
        self.prefix = check_prefix(prefix)
        self._retention_ms = milliseconds(fence_retention, "fence_retention")
        self._hooks = with_installed(hooks)
        if not isinstance(min_replicas, int) or isinstance(min_replicas, bool):
            msg = f"min_replicas must be an int, not {type(min_replicas).__name__}"
            raise TypeError(msg)
        if min_replicas < 0:
            msg = f"min_replicas must not be negative, and is {min_replicas}"
            raise ValueError(msg)
        timeout_ms = milliseconds(replica_timeout, "replica_timeout")
        self._replication = Replication(min_replicas, timeout_ms) if min_replicas else None

    def lock_key(self, resource: str) -> str:
        """The Redis key of a lock.

        Raises:
            TypeError, ValueError: the resource cannot be a name.
        """
        return names(self.prefix, resource).lock

    def _claimant(self, resource: str, ttl: timedelta, owner_id: str) -> Claimant:
        return Claimant(
            names(self.prefix, resource),
            owner_id,
            protocol.new_attempt(),
            milliseconds(ttl, "ttl"),
            self._retention_ms,
            self._replication,
        )

    def _tell_acquired(
        self, claimant: Claimant, outcome: Grant | Refusal, started: float, *, waited: bool
    ) -> None:
        hooks = self._hooks
        if hooks is None:
            return
        waited_ms = (time.monotonic() - started) * 1000
        resource, granted = claimant.names.name, isinstance(outcome, Grant)
        if waited and hooks.on_waited is not None:
            hooks.fire(
                hooks.on_waited,
                LockWaited(resource=resource, waited_ms=waited_ms, acquired=granted),
            )
        if isinstance(outcome, Grant):
            if hooks.on_acquired is not None:
                hooks.fire(
                    hooks.on_acquired,
                    LockAcquired(
                        resource=resource,
                        token=int(outcome.token),
                        owner_id=claimant.owner_id,
                        waited_ms=waited_ms,
                    ),
                )
        elif hooks.on_failed is not None:
            hooks.fire(
                hooks.on_failed,
                LockFailed(
                    resource=resource,
                    owner_id=claimant.owner_id,
                    waited_ms=waited_ms,
                    holder=outcome.holder,
                ),
            )

    def _report_lost(self, handle: BaseHandle) -> None:
        hooks = self._hooks
        if hooks is not None and hooks.on_lost is not None:
            hooks.fire(
                hooks.on_lost,
                LockLost(resource=handle.resource, token=int(handle.token), held_ms=handle.held_ms),
            )

    def _schedule(
        self, grant: Grant, *, renew: bool, max_hold: timedelta | None, watched: bool
    ) -> Renewal | None:
        """When the keeper looks after a lease; None when there is nothing to look after."""
        reported = self._hooks is not None and self._hooks.on_lost is not None
        if not (renew or watched or reported):
            return None
        lease = grant.claimant.ttl_ms / 1000
        hold_until = None
        if max_hold is not None:
            hold_until = grant.deadline - lease + max_hold.total_seconds()
        return Renewal(lease, grant.deadline, renews=renew, hold_until=hold_until)

    def _settle_release(self, handle: H, verdict: Verdict) -> None:
        first = handle.verdict is None
        handle.verdict = verdict
        hooks = self._hooks
        lost = verdict is Verdict.LOST
        if first and hooks is not None and hooks.on_released is not None:
            hooks.fire(
                hooks.on_released,
                LockReleased(
                    resource=handle.resource,
                    token=int(handle.token),
                    held_ms=handle.held_ms,
                    verdict="lost" if lost else "released",
                ),
            )
        if lost:
            raise LockNotOwned(handle.resource, token=handle.token)

    def _settle_extend(self, handle: H, lease_ms: int, *, extended: bool) -> None:
        if not extended:
            handle.lose()
            raise LockNotOwned(handle.resource, token=handle.token)
        handle.extended(lease_ms)
        if handle.kept is not None:
            schedule = handle.kept.schedule
            schedule.lease = lease_ms / 1000
            schedule.confirm(handle.confirmed_at)

    def _check_handle(self, handle: object, kind: type[H]) -> None:
        if not isinstance(handle, kind):
            msg = f"expected a {kind.__name__}, not {type(handle).__name__}"
            raise TypeError(msg)
        if handle.home is not self.home:
            # The verdict of a server that has never heard of the lock would be LOST.
            msg = f"the handle of {handle.resource!r} was made through another client"
            raise ValueError(msg)

    def _force(self, resource: str, token: int | None) -> Flow[bool]:
        if token is not None:
            if not isinstance(token, int) or isinstance(token, bool):
                raise TypeError(f"the token must be an int, not {type(token).__name__}")
            if not 0 < token < _NO_TOKEN:  # 0 is what the record of a free lock has for its holder
                msg = f"the token must be between 1 and 2**53, as `inspect` told it, not {token}"
                raise ValueError(msg)
        return protocol.force_release(names(self.prefix, resource), self._retention_ms, token)

    def _advance(self, resource: str, at_least: int) -> Flow[int]:
        return protocol.advance(
            names(self.prefix, resource),
            check_token_value(at_least, "at_least"),
            self._retention_ms,
        )


def check_max_hold(max_hold: timedelta) -> None:
    """Refuse what is no duration.

    Raises:
        TypeError: not a timedelta.
        ValueError: not positive, or longer than ten years.
    """
    milliseconds(max_hold, "max_hold")


def check_on_lost(on_lost: Callable[..., object], *, awaited: bool) -> None:
    """Refuse what cannot be called, or would not be awaited: it would be noticed when it is needed.

    Raises:
        TypeError: not a callable, or one for a loop where there is none.
    """
    if not callable(on_lost):
        msg = f"on_lost must be callable, not {type(on_lost).__name__}"
        raise TypeError(msg)
    if not awaited and is_async(on_lost):
        msg = "on_lost must be a plain function: it is called in a thread, and nothing awaits it"
        raise TypeError(msg)
