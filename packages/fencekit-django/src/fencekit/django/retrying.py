"""Which errors of a database say: nothing was done, and trying again may work."""

from __future__ import annotations

from django.db import OperationalError

__all__ = ["is_worth_retrying"]

# Serialisation failure, deadlock: the transaction was rolled back for the sake of another.
_SQLSTATES = frozenset({"40001", "40P01"})
# Deadlock, lock wait timeout, and "Record has changed since last read": a serialisation failure.
_MYSQL_ERRORS = frozenset({1213, 1205, 1020})
_SQLITE_TEXTS = ("database is locked", "database table is locked")


def is_worth_retrying(error: OperationalError) -> bool:
    """Whether a transaction that ended in this error can be repeated as it is."""
    cause = error.__cause__
    # psycopg calls it sqlstate, psycopg2 pgcode.
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if state is not None:
        return state in _SQLSTATES
    if error.args and isinstance(error.args[0], int):
        return error.args[0] in _MYSQL_ERRORS
    return any(text in str(error) for text in _SQLITE_TEXTS)
