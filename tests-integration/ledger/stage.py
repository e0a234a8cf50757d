"""The ledger's databases, for tests and benchmarks: set up once per process, emptied in between."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import postgres as pg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["ALIASES", "MARIADB_URL", "Databases", "set_up", "together"]

ALIASES = ("default", "postgres", "repeatable", "mariadb")
MARIADB_URL = "FENCEKIT_TEST_MARIADB_URL"


def set_up() -> None:
    """Set Django up for the ledger, in this process only."""
    import django  # noqa: PLC0415 - whoever imports this module need not have it

    if not pg.installed():
        os.environ["LEDGER_WITHOUT_POSTGRES"] = "1"
    # Not left in the environment: other frameworks take it as a sign that they run under Django.
    os.environ["DJANGO_SETTINGS_MODULE"] = "ledger.settings"
    django.setup()
    del os.environ["DJANGO_SETTINGS_MODULE"]


class Databases:
    """The databases of one process, each made and migrated when it is first asked for."""

    def __init__(self, postgres: Callable[[], pg.Postgres]) -> None:
        """Make none of them yet.

        Args:
            postgres: starts the server, or returns the one that runs.
        """
        self._postgres = postgres
        self._ready: set[str] = set()
        self._folder = Path(tempfile.mkdtemp(prefix="fk-ledger-"))
        self.places: dict[str, dict[str, str]] = {}

    def missing(self, alias: str) -> str | None:
        """Why a database cannot be used here; None if it can."""
        if alias in {"postgres", "repeatable"} and not pg.installed():
            return pg.MISSING
        if alias == "mariadb" and not os.environ.get(MARIADB_URL):
            return f"{MARIADB_URL} is not set"
        return None

    def ready(self, alias: str) -> None:
        """Have a database migrated and empty."""
        from django.core.management import call_command  # noqa: PLC0415 - not before Django is set up

        place = "postgres" if alias == "repeatable" else alias
        if place not in self._ready:
            self._place(place)
            call_command("migrate", database=place, verbosity=0)
            self._ready.add(place)
        self.clean(place)

    def clean(self, alias: str) -> None:
        """Delete all rows but those that migrations make."""
        from django.apps import apps  # noqa: PLC0415 - not before Django is set up
        from django.db import connections, transaction  # noqa: PLC0415 - not before Django is set up

        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            tables = [
                connections[alias].ops.quote_name(model._meta.db_table)
                for model in apps.get_models(include_auto_created=True)
                if model._meta.managed
                and not model._meta.proxy
                and model._meta.label not in {"contenttypes.ContentType", "auth.Permission"}
            ]
            if connections[alias].vendor == "postgresql":
                cursor.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY CASCADE")
                return
            if connections[alias].vendor == "sqlite":
                cursor.execute("PRAGMA defer_foreign_keys = on")
            else:
                cursor.execute("SET FOREIGN_KEY_CHECKS = 0")
            for table in tables:
                cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - our own tables, quoted
            if connections[alias].vendor == "mysql":
                cursor.execute("SET FOREIGN_KEY_CHECKS = 1")

    def close(self) -> None:
        """Close all connections of this thread and delete the files."""
        from django.db import connections  # noqa: PLC0415 - not before Django is set up

        connections.close_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _place(self, alias: str) -> None:
        if alias == "default":
            self._move("default", NAME=str(self._folder / "ledger.sqlite3"))
        elif alias == "postgres":
            server = self._postgres()
            name = server.create("ledger")
            for each in ("postgres", "repeatable"):
                self._move(each, HOST=server.host, NAME=name)

    def _move(self, alias: str, **place: str) -> None:
        from django.db import connections  # noqa: PLC0415 - not before Django is set up

        connections[alias].close()
        connections.settings[alias].update(place)
        connections[alias].settings_dict.update(place)
        self.places[alias] = place


@contextmanager
def _closing() -> Iterator[None]:
    from django.db import connections  # noqa: PLC0415 - not before Django is set up

    try:
        yield
    finally:
        connections.close_all()


def together(alias: str, works: Sequence[Callable[[], Any]], *, timeout: float = 60.0) -> list[Any]:
    """Run works at the same time, each with a connection of its own; returns what each returned.

    A work that raised counts as having returned its exception.

    Raises:
        TimeoutError: One did not end in time.
    """
    from ledger.routing import using  # noqa: PLC0415 - not before Django is set up

    found: list[Any] = [None] * len(works)
    gate = threading.Barrier(len(works))

    def run(index: int) -> None:
        with _closing(), using(alias):
            try:
                gate.wait(timeout)
                found[index] = works[index]()
            except BaseException as error:  # noqa: BLE001 - looked at by the test
                found[index] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        if thread.is_alive():
            raise TimeoutError("a work did not end in time")
    return found
