"""Which database a thread or task uses."""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Router", "current_alias", "using"]

_alias: ContextVar[str | None] = ContextVar("ledger_alias", default=None)


def current_alias() -> str:
    """The database in use: that of `using`, or else LEDGER_ALIAS, or else the default one."""
    return _alias.get() or os.environ.get("LEDGER_ALIAS", "default")


@contextmanager
def using(alias: str) -> Iterator[None]:
    """Use a database for the length of a block, in this thread or task."""
    token = _alias.set(alias)
    try:
        yield
    finally:
        _alias.reset(token)


class Router:
    """Sends everything to the database in use."""

    def db_for_read(self, model: type[Any], **_: object) -> str:
        """Read from the database in use."""
        del model
        return current_alias()

    def db_for_write(self, model: type[Any], **_: object) -> str:
        """Write to the database in use."""
        del model
        return current_alias()

    def allow_relation(self, *_: object, **__: object) -> bool:
        """Allow all: rows of two databases never meet here."""
        return True
