"""The errors that only a database can be the reason of.

::

    FenceKitError
    ├── UnexpectedRows                    not as many rows as `expect` said; rolled back
    └── FencedOutError
        └── UnfencedWrite                 a strict trigger was shown no token
"""

from __future__ import annotations

from fencekit.errors import FencedOutError, FenceKitError

__all__ = ["UnexpectedRows", "UnfencedWrite"]


class UnexpectedRows(FenceKitError):
    """A fenced update wrote another number of rows than was expected, and was rolled back.

    Attributes:
        expected: how many it should have been.
        rows: how many it would have been.
    """

    def __init__(self, *, expected: int, rows: int) -> None:
        self.expected = expected
        self.rows = rows
        super().__init__(f"{rows} rows would have been written, not {expected}: rolled back")


class UnfencedWrite(FencedOutError):
    """A strict trigger refused a write that showed no token.

    Such a table wants the fence column written, as `fenced_update` does, or the token that
    `fenced_atomic` shows for its block.

    Attributes:
        resource: the table.
        token: 0, none was shown.
        current: the fence of the row.
    """

    def __init__(self, table: str, *, current: int | None) -> None:
        super().__init__(table, token=0, current=current)
        message = (
            f"a write to {table} left the fence column out and showed no token: use fenced_update, "
            "or write inside fenced_atomic"
        )
        self.args = (message,)
