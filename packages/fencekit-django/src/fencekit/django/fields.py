"""The column that keeps the highest token a row was written with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core import checks
from django.db import models

if TYPE_CHECKING:
    _Base = models.PositiveBigIntegerField[int, int]
else:  # generic for type checkers only
    _Base = models.PositiveBigIntegerField

__all__ = ["FenceTokenField", "fence_problem"]

# Tokens are microseconds of the server's clock: beyond 32 bits since 1970 and a bit.
_WIDE_ENOUGH = frozenset({"BigIntegerField", "PositiveBigIntegerField"})


class FenceTokenField(_Base):
    """A row's fence: the highest fencing token it was written with, 0 before the first.

    Never null, 64 bits, 0 by default in Python and in the database, so that it can be added to a
    table that has rows, and rows that others insert start unfenced. Not editable: no form writes
    it.
    """

    description = "Fencing token"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make the field; arguments are those of PositiveBigIntegerField."""
        kwargs.setdefault("default", 0)
        kwargs.setdefault("db_default", 0)
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Report a field that can be null, besides what every field reports."""
        found = list(super().check(**kwargs))
        problem = fence_problem(self)
        if problem is not None:
            found.append(
                checks.Error(
                    f"A fence {problem}.",
                    hint="Write FenceTokenField() without null=True.",
                    obj=self,
                    id="fencekit.E001",
                )
            )
        return found


def fence_problem(field: Any) -> str | None:
    """What keeps a field from being a fence, as the end of a sentence; None when nothing does."""
    if not getattr(field, "concrete", False):
        return "must be a column of the model's own table"
    if field.primary_key:
        return "must not be the primary key"
    if field.null:
        return "must not be null: NULL is neither above nor below a token"
    if field.get_internal_type() not in _WIDE_ENOUGH:
        return f"must have 64 bits, and {type(field).__name__} is no BigIntegerField"
    return None
