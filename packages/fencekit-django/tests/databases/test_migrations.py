"""The system checks and the migrations: nothing to say, complete, forward and back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.core.management import call_command
from django.db import connections

from ledger.stage import Databases

APPS = ("fencekit", "accounts", "curios")


@pytest.mark.parametrize("command", ["check --fail-level WARNING", "makemigrations --check"])
def test_manage_py_has_nothing_to_say(command: str) -> None:
    """As a user runs it: every warning is an error."""
    env = {"LEDGER_WITHOUT_POSTGRES": "1", "LEDGER_SQLITE": ":memory:"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "ledger", *command.split()],
        env={**os.environ, **env, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_forward_and_back(alias: str, databases: Databases) -> None:
    def tables() -> set[str]:
        names = connections[alias].introspection.table_names()
        return {name for name in names if name.startswith(APPS)}

    def guards() -> set[str]:
        if connections[alias].vendor != "postgresql":
            return set()
        with connections[alias].cursor() as cursor:
            cursor.execute(
                "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal UNION "
                "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
            )
            return {name for (name,) in cursor.fetchall()}

    before = tables(), guards()
    assert {"fencekit_fence", "fencekit_effect", "accounts_account"} <= before[0]
    for app in APPS:
        call_command("migrate", app, "zero", database=alias, verbosity=0)
    assert (tables(), guards()) == (set(), set())
    for app in APPS:
        call_command("migrate", app, database=alias, verbosity=0)
    assert (tables(), guards()) == before
    databases.clean("postgres" if alias == "repeatable" else alias)


def test_rows_that_others_insert_start_unfenced(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("INSERT INTO curios_strict (value) VALUES (3)")
        cursor.execute("SELECT fence_token FROM curios_strict")
        assert cursor.fetchone() == (0,)
