"""Which querysets one statement can update, and how the statement is made.

The fence must be compared by the statement that writes. Django keeps a plain filter there only as
long as one table is concerned: for a filter through a join it writes ``WHERE id IN (SELECT …)``
with the whole filter inside, or selects the ids first and updates them in a second statement
(MySQL). PostgreSQL, when it has waited for another transaction, looks again at the conditions of
the row but not into the sub-select; so there a filter on the fence is judged by what was true
before the wait, and a lower token is written over a higher one.

So a selection of several tables is *re-anchored*: it only names primary keys, and the fence is a
condition of the updated table itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models
from django.db.models.lookups import Exact
from django.db.models.sql.where import AND, WhereNode
from fencekit.django.fields import fence_problem

__all__ = ["Selection"]


class Selection:
    """The rows that a fenced update is about, fresh or stale, on the database that is written."""

    __slots__ = ("_fence", "_field", "_queryset")

    def __init__(self, queryset: models.QuerySet[Any], fence_field: str) -> None:
        """Check that one statement can write these rows and compare their fences.

        Args:
            queryset: the rows.
            fence_field: the name of the field that holds the fence.

        Raises:
            TypeError: not a queryset, or one that is sliced, combined, aggregated or distinct.
            ValueError: multi-table inheritance, or a fence that is null, narrow or not there.
        """
        if not isinstance(queryset, models.QuerySet):
            raise TypeError(
                f"expected a queryset, not {type(queryset).__name__}; of a manager, take .all()"
            )
        if not isinstance(fence_field, str):
            raise TypeError(f"fence_field must be a str, not {type(fence_field).__name__}")
        _check_query(queryset)
        model: Any = queryset.model
        self._field = _fence_of(model, fence_field)
        self._queryset = queryset
        self._fence = fence_field

    @property
    def alias(self) -> str:
        """The database that is written."""
        alias: str = _to_write(self._queryset.all()).db
        return alias

    def write(self, token: int, values: dict[str, Any]) -> int:
        """Update the rows whose fence is not above the token; returns how many."""
        rows = self._queryset
        if not _is_of_one_table(rows):
            rows = self._anchored()
        own: Any = rows.query
        # A shallow copy, for Django's update makes a whole one before it changes anything.
        query = object.__new__(type(own))
        query.__dict__.update(own.__dict__)
        query.select_for_update = False  # an UPDATE locks its rows by itself
        fresh: Any = _NotAbove(self._field, token)
        query.where = WhereNode([own.where, fresh], AND)
        # Django's own update, whatever the class of the queryset makes of it: one statement.
        update: Any = models.QuerySet(rows.model, query, rows._db, rows._hints).update  # type: ignore[attr-defined]  # noqa: SLF001 - as a copy has them
        written: int = update(**values, **{self._fence: token})
        return written

    def newest(self, token: int) -> int | None:
        """The highest fence among the rows that is above the token; None when none is."""
        above = _to_write(self._queryset.filter(**{f"{self._fence}__gt": token}))
        if _reads_the_past(connections[above.db]):
            above = above.select_for_update()
        found: int | None = (
            above.order_by(f"-{self._fence}").values_list(self._fence, flat=True).first()
        )
        return found

    @property
    def is_one_row(self) -> bool:
        """Whether the filter names one row by its primary key."""
        where = self._queryset.query.where
        if where.negated or where.connector != "AND":
            return False
        return any(
            isinstance(child, Exact)
            and child.rhs_is_direct_value()  # otherwise each row compares a value of its own
            and getattr(getattr(child.lhs, "target", None), "primary_key", False)
            and child.lhs.alias == self._queryset.model._meta.db_table  # noqa: SLF001 - documented
            for child in where.children
        )

    def _anchored(self) -> models.QuerySet[Any]:
        keys: Any = _to_write(self._queryset.order_by()).values("pk")
        alias = self.alias
        if not connections[alias].features.update_can_self_select:
            keys = list(keys.values_list("pk", flat=True))
        rows: Any = models.QuerySet(self._queryset.model, using=alias)
        anchored: models.QuerySet[Any] = rows.filter(pk__in=keys)
        return anchored


class _NotAbove:
    """The condition that a fence is not above a token, for the table that an UPDATE writes.

    As ``filter(fence__lte=token)``, which would look up at each call what does not change.
    """

    contains_aggregate = contains_over_clause = False

    def __init__(self, field: Any, token: int) -> None:
        self._field = field
        self._token = token

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        """Spell it for a database."""
        quoted = connection.ops.quote_name
        table, column = quoted(compiler.query.base_table), quoted(self._field.column)
        return f"{table}.{column} <= %s", [self._field.get_db_prep_value(self._token, connection)]


def _reads_the_past(connection: Any) -> bool:
    # In a transaction of MySQL's a plain read sees a snapshot, which may be older than what an
    # UPDATE has just judged; a read that locks sees what is there. Only READ COMMITTED has none.
    if connection.vendor != "mysql" or not connection.in_atomic_block:
        return False
    return bool(connection.isolation_level != "read committed")


def _to_write(own: Any) -> Any:
    """Make a queryset of ours one of the database that is written."""
    own._for_write = True  # noqa: SLF001 - as QuerySet.update does
    # An UPDATE locks its rows by itself, and a sub-select or a look afterwards need not.
    own.query.select_for_update = False
    return own


def _is_of_one_table(queryset: models.QuerySet[Any]) -> bool:
    return sum(map(bool, queryset.query.alias_refcount.values())) <= 1


def _check_query(queryset: models.QuerySet[Any]) -> None:
    query: Any = queryset.query
    annotations = query.annotations.values()
    if query.is_sliced:
        what = "a slice"
    elif query.combinator:
        what = "a combination of querysets (union, intersection, difference)"
    elif query.distinct:
        what = "a queryset of distinct rows"
    elif query.extra_tables:
        what = "extra(tables=…)"
    elif query.group_by is not None or any(each.contains_aggregate for each in annotations):
        what = "an aggregation"
    elif any(each.contains_over_clause for each in annotations):
        what = "a window"
    else:
        return
    raise TypeError(
        f"{what} cannot be updated and fenced in one statement: filter by primary keys instead, "
        "e.g. filter(pk__in=[…])"
    )


@lru_cache(maxsize=512)
def _fence_of(model: type[models.Model], fence_field: str) -> Any:
    meta = model._meta.concrete_model._meta  # type: ignore[union-attr]  # noqa: SLF001 - documented
    if meta.parents:
        raise ValueError(
            f"{model.__name__} is stored in several tables (multi-table inheritance), which one "
            "statement cannot write: use fenced_atomic and write as usual inside"
        )
    try:
        field = meta.get_field(fence_field)
    except FieldDoesNotExist:
        raise ValueError(
            f"{model.__name__} has no field {fence_field!r}: add a FenceTokenField, or say "
            "fence_field="
        ) from None
    if (problem := fence_problem(field)) is not None:
        raise ValueError(f"{model.__name__}.{fence_field} {problem}")
    return field
