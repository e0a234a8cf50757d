"""Migrations of the app: complete, forward and back, on every database."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connections

from ledger.stage import Databases


@pytest.mark.usefixtures("sqlite_alias", "postgres_alias")
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_forward_and_back(alias: str, databases: Databases) -> None:
    def tables() -> set[str]:
        return {
            name
            for name in connections[alias].introspection.table_names()
            if name.startswith("fencekit")
        }

    assert tables() == {"fencekit_fence", "fencekit_effect"}
    call_command("migrate", "fencekit", "zero", database=alias, verbosity=0)
    assert tables() == set()
    call_command("migrate", "fencekit", database=alias, verbosity=0)
    assert tables() == {"fencekit_fence", "fencekit_effect"}
    databases.clean("postgres" if alias == "repeatable" else alias)


def test_rows_that_others_insert_start_unfenced(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("INSERT INTO curios_strict (value) VALUES (3)")
        cursor.execute("SELECT fence_token FROM curios_strict")
        assert cursor.fetchone() == (0,)
