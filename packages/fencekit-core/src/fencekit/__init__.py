"""fencekit makes at-least-once background work safe.

Locks with fencing tokens that never go backwards, writes that a replaced worker cannot make, and
an idempotency guard that answers a redelivered job from its record. See the README for which of
the five distributions to install.
"""

__path__ = __import__("pkgutil").extend_path(__path__, __name__)

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fencekit.canonical import canonicalize, idempotency_key
from fencekit.claims import AsyncClaim, Claim
from fencekit.errors import (
    AlreadyAcquiredError,
    CanonicalizeError,
    FencedOutError,
    FenceKitError,
    HandleForked,
    IdempotencyError,
    IdempotencyExhausted,
    IdempotencyFailed,
    IdempotencyInProgress,
    IdempotencyNotOwned,
    IdempotencyPayloadMismatch,
    IdempotencyResultMissing,
    LockNotAcquired,
    LockNotOwned,
    OutcomeUnknown,
    OwnershipLost,
    ReplicationError,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from fencekit.fencing import AsyncFenceGate, FenceGate
from fencekit.handles import AsyncLockHandle, LockHandle
from fencekit.hooks import FenceKitHooks
from fencekit.idempotency import AsyncIdempotencyGuard, IdempotencyGuard
from fencekit.locks import AsyncDistributedLock, DistributedLock
from fencekit.protocol.claim import BeginOutcome
from fencekit.protocol.lock import LockInfo
from fencekit.protocol.token import FenceToken
from fencekit.redis_lock import RedisLock

if TYPE_CHECKING:
    # Installed with fencekit-django; at run time `__getattr__` below finds it.
    from fencekit.django import fenced_update as fenced_update

__version__ = "0.1.0"

__all__ = [
    "AlreadyAcquiredError",
    "AsyncClaim",
    "AsyncDistributedLock",
    "AsyncFenceGate",
    "AsyncIdempotencyGuard",
    "AsyncLockHandle",
    "BeginOutcome",
    "CanonicalizeError",
    "Claim",
    "DistributedLock",
    "FenceGate",
    "FenceKitError",
    "FenceKitHooks",
    "FenceToken",
    "FencedOutError",
    "HandleForked",
    "IdempotencyError",
    "IdempotencyExhausted",
    "IdempotencyFailed",
    "IdempotencyGuard",
    "IdempotencyInProgress",
    "IdempotencyNotOwned",
    "IdempotencyPayloadMismatch",
    "IdempotencyResultMissing",
    "LockHandle",
    "LockInfo",
    "LockNotAcquired",
    "LockNotOwned",
    "OutcomeUnknown",
    "OwnershipLost",
    "RedisLock",
    "ReplicationError",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "canonicalize",
    "idempotency_key",
]


def __getattr__(name: str) -> Any:
    if name == "fenced_update":
        try:
            return import_module("fencekit.django").fenced_update
        except (ImportError, AttributeError) as error:
            msg = 'fenced_update needs fencekit-django: pip install "fencekit-django"'
            raise ImportError(msg) from error
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
