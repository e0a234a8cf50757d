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

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models
from django.db.models.lookups import Exact
from fencekit.django.fields import fence_problem

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """The rows that a fenced update is about.

    Attributes:
        queryset: the rows, fresh or stale, on the database that is written.
        fence: the name of the field that holds the fence.
    """

    queryset: models.QuerySet[Any]
    fence: str

    @classmethod
    def of(cls, queryset: models.QuerySet[Any], fence_field: str) -> Selection:
        """Check that one statement can write these rows and compare their fences.

        Raises:
            TypeError: not a queryset, or one that is sliced, combined, aggregated or distinct.
            ValueError: multi-table inheritance, or a fence that is null, narrow or not there.
        """
        if not isinstance(queryset, models.QuerySet):
            raise TypeError(
                f"expected a queryset, not {type(queryset).__name__}; of a manager, take .all()"
            )
        _check_query(queryset)
        _check_model(queryset.model, fence_field)
        own = queryset.all()
        # An UPDATE locks its rows by itself, and a sub-select or a look afterwards need not.
        own.query.select_for_update = False
        own._for_write = True  # noqa: SLF001 - as QuerySet.update does
        return cls(own.using(own.db), fence_field)

    @property
    def alias(self) -> str:
        """The database that is written."""
        return self.queryset.db

    def write(self, token: int, values: dict[str, Any]) -> int:
        """Update the rows whose fence is not above the token; returns how many."""
        fresh = self._anchored().filter(**{f"{self.fence}__lte": token})
        # Django's own update, whatever the class of the queryset makes of it: one statement.
        rows: int = models.QuerySet.update(fresh, **values, **{self.fence: token})
        return rows

    def newest(self, token: int) -> int | None:
        """The highest fence among the rows that is above the token; None when none is."""
        above = self.queryset.filter(**{f"{self.fence}__gt": token})
        found: int | None = (
            above.order_by(f"-{self.fence}").values_list(self.fence, flat=True).first()
        )
        return found

    @property
    def is_one_row(self) -> bool:
        """Whether the filter names one row by its primary key."""
        where = self.queryset.query.where
        if where.negated or where.connector != "AND":
            return False
        return any(
            isinstance(child, Exact)
            and getattr(getattr(child.lhs, "target", None), "primary_key", False)
            and child.lhs.alias == self.queryset.model._meta.db_table  # noqa: SLF001
            for child in where.children
        )

    def _anchored(self) -> models.QuerySet[Any]:
        if _is_of_one_table(self.queryset):
            return self.queryset
        keys: Any = self.queryset.order_by().values("pk")
        if not connections[self.alias].features.update_can_self_select:
            keys = list(keys.values_list("pk", flat=True))
        rows: models.QuerySet[Any] = models.QuerySet(self.queryset.model, using=self.alias).filter(
            pk__in=keys
        )
        return rows


def _is_of_one_table(queryset: models.QuerySet[Any]) -> bool:
    query = queryset.query.chain()
    query.get_initial_alias()
    return query.count_active_tables() == 1


def _check_query(queryset: models.QuerySet[Any]) -> None:
    query: Any = queryset.query
    annotations = query.annotations.values()
    for found, what in (
        (query.is_sliced, "a slice"),
        (query.combinator, "a combination of querysets (union, intersection, difference)"),
        (query.distinct, "distinct rows"),
        (query.extra_tables, "extra(tables=…)"),
        (
            query.group_by is not None or any(a.contains_aggregate for a in annotations),
            "an aggregation",
        ),
        (any(a.contains_over_clause for a in annotations), "a window"),
    ):
        if found:
            raise TypeError(
                f"{what} cannot be updated and fenced in one statement: filter by primary keys "
                "instead, e.g. filter(pk__in=[…])"
            )


def _check_model(model: type[models.Model], fence_field: str) -> None:
    meta = model._meta.concrete_model._meta  # type: ignore[union-attr]  # noqa: SLF001
    if meta.parents:
        raise ValueError(
            f"{model.__name__} is stored in several tables (multi-table inheritance), which one "
            "statement cannot write: use fenced_atomic and write as usual inside"
        )
    if not isinstance(fence_field, str):
        raise TypeError(f"fence_field must be a str, not {type(fence_field).__name__}")
    try:
        field = meta.get_field(fence_field)
    except FieldDoesNotExist:
        raise ValueError(
            f"{model.__name__} has no field {fence_field!r}: add a FenceTokenField, or say "
            "fence_field="
        ) from None
    if (problem := fence_problem(field)) is not None:
        raise ValueError(f"{model.__name__}.{fence_field} {problem}")
