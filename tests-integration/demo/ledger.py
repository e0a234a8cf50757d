"""Where the effects go: a SQLite file whose rows carry a fence.

A *fence* is the highest token that a row was shown; a lower one is refused, by the statement that
writes. An account's row is fenced by the tokens of its lock, an event's row by the tokens of its
claims: tokens of different names are not compared.

The event's row also keeps the result, in the same transaction as the effect. So when a worker dies
right after COMMIT, the next one finds that the effect has happened, and what it was.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fencekit import FencedOutError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from demo.deliveries import Event
    from fencekit import FenceToken

__all__ = ["Ledger", "StaleRow"]

# No effect is forbidden by a constraint: what happens twice shall be seen twice.
_SCHEMA = """
CREATE TABLE accounts (balance TEXT PRIMARY KEY, amount INTEGER NOT NULL, fence INTEGER NOT NULL);
CREATE TABLE events (event TEXT PRIMARY KEY, fence INTEGER NOT NULL, result TEXT);
CREATE TABLE effects (
    number INTEGER PRIMARY KEY,
    event TEXT NOT NULL,
    balance TEXT NOT NULL,
    change INTEGER NOT NULL,
    fence INTEGER NOT NULL
);
"""
_ACCOUNT_FENCE = "SELECT fence FROM accounts WHERE balance = ?"
_EVENT_FENCE = "SELECT fence FROM events WHERE event = ?"
_BUSY_SECONDS = 30.0


class StaleRow(FencedOutError):
    """The ledger refused a token: it was shown a newer one."""


class Ledger:
    """The ledger, as one process sees it."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        # In WAL mode what is committed survives the death of the process that committed it.
        self._db.execute("PRAGMA synchronous = NORMAL")

    @classmethod
    def create(cls, path: Path, balances: Iterable[str]) -> Ledger:
        """Make a ledger in which all balances are zero."""
        ledger = cls(path)
        ledger._db.execute("PRAGMA journal_mode = WAL")
        ledger._db.executescript(_SCHEMA)
        with ledger.transaction():
            ledger._db.executemany(
                "INSERT INTO accounts VALUES (?, 0, 0)", [(balance,) for balance in balances]
            )
        return ledger

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Have everything in the block happen, or nothing of it."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def amount(self, balance: str) -> int:
        """Read a balance."""
        row = self._db.execute("SELECT amount FROM accounts WHERE balance = ?", (balance,))
        amount: int = row.fetchone()[0]
        return amount

    def result(self, event: str) -> dict[str, Any] | None:
        """Read what an event's effect was, or None if it had none yet."""
        row = self._db.execute("SELECT result FROM events WHERE event = ?", (event,)).fetchone()
        return json.loads(row[0]) if row and row[0] else None

    # With tokens.

    def enter_account(self, token: FenceToken, balance: str) -> int:
        """Read a balance, and from here on refuse every older holder of its lock.

        To fence the read as well matters: a predecessor that wrote between our read and our write
        would be overwritten.

        Raises:
            StaleRow: a newer holder has been here.
        """
        rows = self._db.execute(
            "UPDATE accounts SET fence = :token WHERE balance = :balance AND fence <= :token"
            " RETURNING amount",
            {"token": token.value, "balance": balance},
        ).fetchall()
        if not rows:
            raise self._refusal(token, _ACCOUNT_FENCE, balance)
        amount: int = rows[0][0]
        return amount

    def enter_event(self, token: FenceToken, event: str) -> dict[str, Any] | None:
        """Read an event's result, and refuse every older attempt at it from here on.

        Raises:
            StaleRow: a newer attempt has been here.
        """
        rows = self._db.execute(
            "INSERT INTO events (event, fence) VALUES (:event, :token) ON CONFLICT (event)"
            " DO UPDATE SET fence = :token WHERE fence <= :token RETURNING result",
            {"token": token.value, "event": event},
        ).fetchall()
        if not rows:
            raise self._refusal(token, _EVENT_FENCE, event)
        return json.loads(rows[0][0]) if rows[0][0] else None

    def post(self, token: FenceToken, event: Event, amount: int) -> dict[str, Any]:
        """Write an event's effect, the balance that follows from it, and the result.

        Raises:
            StaleRow: the lock of the account has a newer holder.
        """
        written = self._db.execute(
            "UPDATE accounts SET amount = :amount WHERE balance = :balance AND fence = :token",
            {"amount": amount, "balance": event.balance, "token": token.value},
        )
        if written.rowcount == 0:
            raise self._refusal(token, _ACCOUNT_FENCE, event.balance)
        return self._append(event, amount, token.value)

    def _refusal(self, token: FenceToken, query: str, name: str) -> StaleRow:
        (current,) = self._db.execute(query, (name,)).fetchone()
        return StaleRow(token.resource, token=token, current=current)

    # Without.

    def post_unfenced(self, event: Event, amount: int) -> dict[str, Any]:
        """Write the same rows, asking nobody."""
        self._db.execute(
            "UPDATE accounts SET amount = ? WHERE balance = ?", (amount, event.balance)
        )
        self._db.execute("INSERT OR IGNORE INTO events (event, fence) VALUES (?, 0)", (event.id,))
        return self._append(event, amount, 0)

    def _append(self, event: Event, amount: int, fence: int) -> dict[str, Any]:
        number = self._db.execute(
            "INSERT INTO effects (event, balance, change, fence) VALUES (?, ?, ?, ?)",
            (event.id, event.balance, event.change, fence),
        ).lastrowid
        result = {"effect": number, "balance": event.balance, "amount": amount}
        self._db.execute(
            "UPDATE events SET result = ? WHERE event = ?", (json.dumps(result), event.id)
        )
        return result
