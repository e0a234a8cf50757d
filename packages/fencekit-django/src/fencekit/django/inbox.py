"""The statements of `once`: insert the record, and find the one that was there before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models.constants import OnConflict
from django.db.models.sql import InsertQuery

if TYPE_CHECKING:
    from fencekit.django.models import Effect

__all__ = ["find", "insert", "settle"]


def insert(effect: Effect, alias: str) -> bool:
    """Insert the record, waiting for a transaction that inserts the same; False if it is there.

    As `bulk_create(ignore_conflicts=True)`, which does not tell whether it inserted. An INSERT that
    fails would cost a savepoint around it.
    """
    query = InsertQuery(type(effect), on_conflict=OnConflict.IGNORE)
    query.insert_values(effect._meta.concrete_fields, [effect], raw=False)  # noqa: SLF001 - documented
    inserted = 0
    with connections[alias].cursor() as cursor:
        compiler: Any = query.get_compiler(using=alias)
        for sql, params in compiler.as_sql():
            cursor.execute(sql, params)
            inserted += cursor.rowcount
    return inserted > 0


def find(effect: Effect, alias: str) -> Effect:
    """Read the record that was there before."""
    rows = type(effect).objects.using(alias)
    if connections[alias].vendor == "mysql":
        # Under REPEATABLE READ a plain read sees the snapshot, which may be older than the record.
        rows = rows.select_for_update()
    return rows.get(digest=effect.digest)


def settle(effect: Effect, memo: str, alias: str) -> None:
    """Write the result into the record."""
    type(effect).objects.using(alias).filter(digest=effect.digest).update(result=memo)
