"""The fence row: raised first in a transaction, and locked until its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections
from django.utils import timezone
from fencekit.errors import FencedOutError
from fencekit.hooks import tell_rejected
from fencekit.protocol.token import FenceToken

__all__ = ["raise_fence", "shown"]

# The tokens shown on each connection, innermost last: what a block finds, it puts back.
_SHOWN = "_fencekit_shown"


def raise_fence(token: FenceToken, alias: str) -> None:
    """Raise the fence of the token's resource to the token, and lock it until the commit.

    Must run in a transaction. Waits for another transaction that holds the row.

    Raises:
        FencedOutError: a newer token has been there.
    """
    from fencekit.django.models import Fence, digest_of  # noqa: PLC0415 - needs the app registry

    digest = digest_of(token.record, token.resource)
    rows = Fence.objects.using(alias).filter(digest=digest)
    fresh, now = rows.filter(token__lte=int(token)), timezone.now()
    if fresh.update(token=int(token), updated_at=now):
        return
    # The first time, or stale. Another transaction may be making the row: then this waits for it.
    Fence.objects.using(alias).bulk_create(
        [
            Fence(
                digest=digest,
                resource=token.resource,
                record=token.record,
                token=int(token),
                updated_at=now,
            )
        ],
        ignore_conflicts=True,
    )
    if not fresh.update(token=int(token), updated_at=now):
        current = rows.values_list("token", flat=True).first()
        tell_rejected(token.resource, token, current)
        raise FencedOutError(token.resource, token=token, current=current)


@contextmanager
def shown(token: FenceToken, alias: str) -> Iterator[None]:
    """Show the token to strict triggers for the length of a block, inside a transaction."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        yield
        return
    tokens: list[int] = connection.__dict__.setdefault(_SHOWN, [])
    outermost = not connection.savepoint_ids
    _show(str(int(token)), alias)
    tokens.append(int(token))
    try:
        yield
    finally:
        tokens.pop()
    # Left by an exception, the setting goes with the savepoint; at the outermost COMMIT too.
    if not outermost and not connection.needs_rollback:
        _show(str(tokens[-1]) if tokens else "", alias)


def _show(value: str, alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT set_config('fencekit.token', %s, true)", [value])
