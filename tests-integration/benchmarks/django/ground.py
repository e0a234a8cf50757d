"""The ledger on a PostgreSQL of its own, for the length of a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness import postgres
from ledger.routing import using
from ledger.stage import Databases, set_up

__all__ = ["ALIAS", "ledger"]

ALIAS = "postgres"


@contextmanager
def ledger(*, durable: bool) -> Iterator[None]:
    """Have the ledger's tables, empty, as the database in use.

    Args:
        durable: a commit waits for the disk.
    """
    set_up()
    with postgres.start(durable=durable) as server, using(ALIAS):
        databases = Databases(lambda: server)
        try:
            databases.ready(ALIAS)
            yield
        finally:
            databases.close()
