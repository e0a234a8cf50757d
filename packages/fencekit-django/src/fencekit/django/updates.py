"""Updates that a replaced worker cannot make.

::

    if not fenced_update(Account.objects.filter(pk=pk), handle.token, updates={"balance": 5}):
        ...  # somebody newer has written this row

The token is compared with the row's fence, and becomes it, in the statement that writes. This
protects the *write*. A value that was read before is protected too if the read raised the fence
(``updates={}, touch=True``), or if both happen inside `fenced_atomic`: otherwise a predecessor may
commit between the successor's read and write, and is overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal

from asgiref.sync import sync_to_async

from django.db import models, transaction
from fencekit.django.errors import UnexpectedRows
from fencekit.django.selections import Selection
from fencekit.errors import FencedOutError
from fencekit.hooks import tell_rejected
from fencekit.protocol.token import FenceToken, check_token

__all__ = ["FencedUpdate", "afenced_update", "fenced_update"]


class FencedUpdate:
    """What became of a fenced update; true when at least one row was written.

    Attributes:
        rows: how many rows were written.
    """

    __slots__ = ("_selection", "_token", "rows")

    def __init__(self, rows: int, token: FenceToken, selection: Selection) -> None:
        self.rows = rows
        self._token = token
        self._selection = selection

    def __bool__(self) -> bool:
        return self.rows > 0

    def __repr__(self) -> str:
        return f"<FencedUpdate: {self.rows} rows with token {int(self._token)}>"

    def explain(self) -> Literal["applied", "stale", "missing"]:
        """Say why nothing was written, by looking now: costs a query unless rows were written.

        ``"stale"``: a row of the selection was written with a newer token. ``"missing"``: none was,
        so no row matches.
        """
        if self.rows:
            return "applied"
        return "missing" if self._selection.newest(self._token) is None else "stale"

    async def aexplain(self) -> Literal["applied", "stale", "missing"]:
        """Say why nothing was written, from async code; see `explain`."""
        return await sync_to_async(self.explain)()


def fenced_update(
    queryset: models.QuerySet[Any],
    token: FenceToken,
    *,
    updates: Mapping[str, Any],
    fence_field: str = "fence_token",
    raise_on_stale: bool = False,
    expect: int | None = None,
    touch: bool = False,
) -> FencedUpdate:
    """Update the rows that no newer token has written, and leave the token as their fence.

    One statement on every database, for every queryset that is accepted. As with
    `QuerySet.update`, no signals are sent and no ``save()`` is called.

    Args:
        queryset: which rows. Filters may go through joins.
        token: the token of the lock that these rows are written under. A row fenced by tokens of a
            lock must not also be fenced by tokens of claims: each has its own record, and a higher
            number of one says nothing about the other.
        updates: values or expressions by field name, as for ``update()``.
        fence_field: the name of the fence.
        raise_on_stale: raise when any row of the queryset has a newer fence, and write none of
            them. A queryset that matches no row still returns a false result.
        expect: how many rows must be written; otherwise everything is rolled back and an error
            raised.
        touch: also set the ``auto_now`` fields, as ``save()`` would; ``updates`` may then be empty,
            which raises the fence and nothing else: do so before reading what you will write.

    Raises:
        FencedOutError: with ``raise_on_stale`` or ``expect``: a newer token has been there.
        UnexpectedRows: not as many rows as ``expect``, and none of them stale.
        TypeError: not a token, not a queryset, or one that is sliced, combined, distinct or
            aggregated.
        ValueError: multi-table inheritance (use `fenced_atomic`); a fence that is null, has fewer
            than 64 bits or does not exist; updates that name the fence, or nothing.
        FieldDoesNotExist, FieldError: as for ``update()``.
        TransactionManagementError: the transaction is broken and must be rolled back.
        DatabaseError: whatever the database raises, e.g. a serialisation failure.
    """
    check_token(token)
    if expect is not None and (not isinstance(expect, int) or isinstance(expect, bool)):
        raise TypeError(f"expect must be an int or None, not {type(expect).__name__}")
    if expect is not None and expect < 0:
        raise ValueError(f"expect must not be negative, and is {expect}")
    selection = Selection(queryset, fence_field)
    values = _checked(queryset.model, updates, fence_field, touch=touch)
    if expect is None and (not raise_on_stale or selection.is_one_row):
        rows = selection.write(token, values)
        if rows == 0 and raise_on_stale:
            _refuse_stale(selection, token)
        return FencedUpdate(rows, token, selection)
    with transaction.atomic(using=selection.alias):
        rows = selection.write(token, values)
        if raise_on_stale or rows != expect:
            _refuse_stale(selection, token)
        if expect is not None and rows != expect:
            raise UnexpectedRows(expected=expect, rows=rows)
    return FencedUpdate(rows, token, selection)


async def afenced_update(
    queryset: models.QuerySet[Any],
    token: FenceToken,
    *,
    updates: Mapping[str, Any],
    fence_field: str = "fence_token",
    raise_on_stale: bool = False,
    expect: int | None = None,
    touch: bool = False,
) -> FencedUpdate:
    """Update the rows that no newer token has written, from async code; see `fenced_update`.

    Raises:
        FencedOutError, UnexpectedRows, TypeError, ValueError, FieldDoesNotExist, FieldError,
            TransactionManagementError, DatabaseError: as there.
    """
    return await sync_to_async(fenced_update)(
        queryset,
        token,
        updates=updates,
        fence_field=fence_field,
        raise_on_stale=raise_on_stale,
        expect=expect,
        touch=touch,
    )


def _refuse_stale(selection: Selection, token: FenceToken) -> None:
    # Right after the write: a row that was stale then is stale now, for fences only rise.
    current = selection.newest(token)
    if current is not None:
        tell_rejected(token.resource, token, current)
        raise FencedOutError(token.resource, token=token, current=current)


def _checked(
    model: type[models.Model], updates: Mapping[str, Any], fence_field: str, *, touch: bool
) -> dict[str, Any]:
    if not isinstance(updates, Mapping):
        raise TypeError(f"updates must be a mapping, not {type(updates).__name__}")
    values = dict(updates)
    if not values and not touch:
        raise ValueError("updates names nothing; to raise the fence alone, say touch=True")
    if fence_field in values:
        raise ValueError(f"updates names the fence {fence_field!r}, which takes the token")
    if touch:
        for field in model._meta.concrete_fields:  # noqa: SLF001 - documented
            if getattr(field, "auto_now", False) and field.name not in values:
                instance: Any = SimpleNamespace()
                values[field.name] = field.pre_save(instance, add=False)
    return values
