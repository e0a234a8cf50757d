"""One lock, one guarded write and one job, from the beginning to the end, as the given user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError

from fencekit.cli.checks import Finding
from fencekit.errors import StoreError, StoreRefused
from fencekit.fencing import FenceGate
from fencekit.idempotency import IdempotencyGuard
from fencekit.keys import names
from fencekit.locks import DistributedLock

__all__ = ["try_everything"]

_LEASE, _KEPT = timedelta(seconds=10), timedelta(minutes=1)
_WAKE_SECONDS = 1.0


def try_everything(client: Any, prefix: str) -> Iterator[Finding]:
    """Use a lock, a gate and a guard under a name of our own; its keys are gone after a minute."""
    name = f"doctor:{os.urandom(8).hex()}"
    steps = "lock"
    try:
        listener = _listen(client, names(prefix, name).wake)
        lock = DistributedLock(client, prefix=prefix, fence_retention=_KEPT)
        handle = lock.acquire(name, ttl=_LEASE)
        steps = "gate"
        gate = FenceGate(client, prefix=prefix, fence_retention=_KEPT)
        gate.check(handle.token)
        steps = "release"
        lock.release(handle)
        steps = "claim"
        guard = IdempotencyGuard(client, prefix=prefix)
        with guard.begin(name, ttl=_KEPT, renew=False) as claim:
            claim.complete()
        guard.clear(name)
    except StoreError as error:
        means = "what your workers do fails in the same way"
        if isinstance(error, StoreRefused) and error.code == "OOM":
            means = "full: nothing can be taken. What is held can still be released"
        yield Finding("self-test", "error", f"{steps}: {error}", means, "mend what is told above")
        return
    woken = listener is not None and _is_woken(listener)
    if woken:
        yield Finding(
            "self-test", "ok", "a lock, a gate and a job went through, a waiter was woken"
        )
    else:
        yield Finding(
            "self-test",
            "warning",
            "a lock, a gate and a job went through, but no waiter was woken",
            "locks work, and waiters look twice a second instead of being woken",
            "ACL SETUSER {user} +publish +subscribe +unsubscribe +ping and the channel pattern",
        )


def _listen(client: Any, channel: str) -> Any:
    """A subscription that is confirmed; None where it is refused."""
    pubsub = client.pubsub()
    try:
        pubsub.subscribe(channel)
        pubsub.get_message(timeout=_WAKE_SECONDS)
    except RedisError:
        pubsub.close()
        return None
    return pubsub


def _is_woken(pubsub: Any) -> bool:
    try:
        return pubsub.get_message(timeout=_WAKE_SECONDS) is not None
    except RedisError:
        return False
    finally:
        pubsub.close()
