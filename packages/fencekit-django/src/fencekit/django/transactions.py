"""Transactions that a replaced worker cannot commit.

::

    with fenced_atomic(handle.token):
        account = Account.objects.get(pk=pk)  # what a predecessor committed is seen here
        account.balance += 1
        account.save()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from django.db import connections, router, transaction
from fencekit.django.fences import raise_fence, shown
from fencekit.django.release import refuse_manual, release_on_commit
from fencekit.errors import FenceKitError
from fencekit.handles import LockHandle
from fencekit.locks import DistributedLock
from fencekit.protocol.token import FenceToken, check_token

__all__ = ["fenced_atomic", "locked_atomic"]


@contextmanager
def fenced_atomic(token: FenceToken, using: str | None = None) -> Iterator[FenceToken]:
    """Run a block in a transaction that only the newest token of its resource can commit.

    The first statement raises the resource's fence row to the token and keeps it locked until the
    COMMIT. A predecessor that is still in such a block is waited for; one that comes later is
    refused. So everything read and written in the block is fenced, whatever writes it: there is no
    moment between reading and writing at which a predecessor could still commit.

    It holds between blocks of one resource. Writes elsewhere that enter no such block are not
    concerned, unless the row itself has a fence (`fenced_update`, `AddFenceTrigger`).

    Nested in another transaction it is a savepoint, and the row stays locked until the outermost
    COMMIT. Under MySQL's REPEATABLE READ, which is not Django's default, what it reads is then as
    old as the snapshot of that transaction, and nothing refuses it.

    Args:
        token: the token of the lock, or claim, that the block runs under.
        using: the database; where the router writes `Fence` if omitted. The rows that the block
            writes must be in the same.

    Raises:
        FencedOutError: a newer token has entered such a block; nothing was done.
        TypeError: not a token.
        TransactionManagementError: the transaction around it is broken.
        DatabaseError: whatever the database raises, e.g. a serialisation failure under REPEATABLE
            READ when a predecessor committed after the snapshot was taken.
    """
    check_token(token)
    alias = using or _alias()
    with transaction.atomic(using=alias):
        raise_fence(token, alias)
        with shown(token, alias):
            yield token


@contextmanager
def locked_atomic(
    lock: DistributedLock,
    resource: str,
    *,
    ttl: timedelta,
    wait: timedelta | None = None,
    renew: bool = True,
    max_hold: timedelta | None = None,
    using: str | None = None,
) -> Iterator[LockHandle]:
    """Hold a lock until what the block did is committed: acquire, fence, COMMIT, release.

    Inside another transaction (ATOMIC_REQUESTS) the lock is released after the *outermost* commit:
    released before, the next holder would not see what this one wrote. It is also released after a
    rollback, be it to the savepoint of this block. Commit hooks of the block run before it. A lease
    that was lost before the commit is only logged: the fence has judged the transaction, and it was
    not stale.

    Taking the same resource again inside the same transaction waits for itself, in vain.

    Args:
        lock: the lock object.
        resource: what to lock.
        ttl: the lease.
        wait: how long to wait for the lock. None does not wait; ``timedelta.max`` waits for ever.
        renew: renew the lease until the transaction has ended.
        max_hold: end the renewal after this long.
        using: the database; where the router writes `Fence` if omitted.

    Raises:
        LockNotAcquired: somebody else holds it, and still did when the wait was over.
        FencedOutError: a newer holder has been here already.
        ReplicationError, StoreUnavailable, StoreRefused, OutcomeUnknown, TypeError, ValueError: as
            for `DistributedLock.acquire`; the block was not run.
        TransactionManagementError, DatabaseError: as for `fenced_atomic`, and when autocommit is
            switched off by hand; nothing is held.
    """
    alias = using or _alias()
    connection = connections[alias]
    refuse_manual(connection)
    outermost = not connection.in_atomic_block
    handle = lock.acquire(resource, ttl=ttl, wait=wait, renew=renew, max_hold=max_hold)
    to_release = True
    try:
        with fenced_atomic(handle.token, alias):
            yield handle
            if not connection.closed_in_transaction:  # a closed one keeps hooks and calls none
                # After the block, so that what it does on commit is done under the lock too.
                release_on_commit(handle, alias)
                to_release = False
    except BaseException:
        # A hook before ours may have raised: ours was not called, and lives on in the traceback.
        to_release = to_release or outermost
        raise
    finally:
        if to_release:
            with suppress(FenceKitError):  # what went wrong before says more
                lock.release(handle)


def _alias() -> str:
    from fencekit.django.models import Fence  # noqa: PLC0415 - needs the app registry

    return router.db_for_write(Fence)
