"""What happens when a transaction has ended, however it ends."""

from __future__ import annotations

import logging
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from asgiref.sync import async_to_sync

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.transaction import TransactionManagementError
from fencekit.errors import HandleForked, LockNotOwned

__all__ = ["invalidate_on_commit", "refuse_manual", "release_on_commit"]

_log = logging.getLogger("fencekit.django")


class _Release:
    """Releases a handle when it is called, or else when it is dropped.

    Django has a hook for the commit and none for the rollback. But it drops the hooks of a
    transaction, or savepoint, that was rolled back, and of a connection that was closed: nobody
    else may hold this object, so then it is finalised.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __call__(self) -> None:
        handle, self._handle = self._handle, None
        if handle is None:
            return
        try:
            handle.release()
        except HandleForked:
            pass  # a copy of the parent's transaction: the parent releases
        except LockNotOwned:
            # The transaction has been judged by the fence, so this is no reason to fail.
            _log.warning("the lease of %r was over before its transaction was", _name(handle))
        except Exception:  # noqa: BLE001 - the transaction has ended, whatever this is
            _log.exception("%r was not released; its lease will end by itself", _name(handle))

    def __del__(self) -> None:
        self()


def release_on_commit(handle: Any, using: str | None = None) -> None:
    """Release a lock when the outermost transaction has committed, or when it is rolled back.

    Rolled back to a savepoint that was set before this call counts as rolled back: nothing that
    was done under the lock is left then. Outside a transaction the lock is released at once.

    Args:
        handle: a handle of a `DistributedLock`, or a lease with a ``release()`` that is not async.
        using: the database; the default one if omitted.

    Raises:
        TypeError: nothing with a sync ``release()``.
        TransactionManagementError: autocommit is switched off by hand.
        LockNotOwned, StoreUnavailable, StoreRefused, OutcomeUnknown: outside a transaction, as for
            ``handle.release()``.
    """
    release = getattr(handle, "release", None)
    is_async = type(handle).__name__.startswith("Async") or iscoroutinefunction(release)
    if not callable(release) or is_async:
        raise TypeError(f"expected a handle with a sync release(), not {type(handle).__name__}")
    connection = connections[using or DEFAULT_DB_ALIAS]
    refuse_manual(connection)
    if connection.in_atomic_block:
        # Not kept in a variable: the hook must be the only reference.
        connection.on_commit(_Release(handle), robust=True)
    else:
        release()


def invalidate_on_commit(cache: Any, *keys: Any, using: str | None = None) -> None:
    """Invalidate cache entries when the outermost transaction has committed, and not before.

    A value that was loaded before the commit cannot be stored after the invalidation. When Redis
    cannot be reached, the error comes out of the ``atomic`` block that committed: the data is
    written, and the cache may serve what is old until its entries expire. A process that dies
    between the two leaves the same behind.

    Args:
        cache: a `SyncGenericCache` or `GenericCache` of fencekit-cache.
        keys: the entries.
        using: the database; the default one if omitted.

    Raises:
        TypeError: nothing with an ``invalidate()``.
        ValueError: no key.
        TransactionManagementError: autocommit is switched off by hand.
    """
    if not callable(getattr(cache, "invalidate", None)):
        raise TypeError(f"expected a cache with invalidate(), not {type(cache).__name__}")
    if not keys:
        raise ValueError("there is no key to invalidate")

    async def awaited(answer: Any) -> None:
        await answer

    def invalidate() -> None:
        answer = cache.invalidate(*keys)
        if isawaitable(answer):
            async_to_sync(awaited)(answer)

    connection = connections[using or DEFAULT_DB_ALIAS]
    refuse_manual(connection)
    connection.on_commit(invalidate)


def refuse_manual(connection: Any) -> None:
    """Refuse a transaction that was begun by hand, be it with a block of ours inside.

    Django calls its hooks when autocommit is switched on again, which may be never.

    Raises:
        TransactionManagementError: autocommit is switched off by hand.
    """
    blocks = connection.in_atomic_block
    if not (connection.commit_on_exit if blocks else connection.get_autocommit()):
        raise TransactionManagementError(
            "autocommit is switched off by hand, and nothing says when such a transaction has "
            "committed: use transaction.atomic()"
        )


def _name(handle: Any) -> str:
    return str(getattr(handle, "resource", None) or getattr(handle, "name", "a lock"))
