"""Read webhook deliveries, and refuse what is none before anything is started.

One JSON object a line. A provider sends an event until it is acknowledged, so one event comes in
any number of deliveries, in any order, and now and then with another content than before:

    {"delivery": {"id": "dlv_0000001", "attempt": 1},
     "id": "evt_5f0c…", "type": "payment.succeeded", "created": 1767225600,
     "data": {"object": {"id": "pay_81d2…", "account": "acct_017", "amount": 4200,
                         "currency": "eur", "status": "succeeded"}}}

Amounts are in the currency's smallest unit. Further fields are allowed and not looked at.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SIGNS", "BadInput", "Delivery", "Event", "read"]

T = TypeVar("T")

# What an event does to its account's balance.
SIGNS: Final = {
    "payment.succeeded": 1,
    "payment.refunded": -1,
    "payout.paid": -1,
    "dispute.lost": -1,
}
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOST: Final = 10**12
_KINDS: Final = {str: "a string", int: "a whole number", dict: "an object"}


class BadInput(Exception):
    """The deliveries cannot be read; the message names the file, the line and what is wrong."""


@dataclass(frozen=True)
class Event:
    """What happened at the provider; the same in each of its deliveries, or so one hopes.

    Attributes:
        id: the provider's id of the event.
        type: one of `SIGNS`.
        created: when it happened, in seconds since 1970.
        object_id: the payment, refund or payout.
        account: whose.
        amount: in the currency's smallest unit.
        currency: three letters.
        status: as the provider says; not looked at.
    """

    id: str
    type: str
    created: int
    object_id: str
    account: str
    amount: int
    currency: str
    status: str

    @property
    def balance(self) -> str:
        """The balance that it changes: an account has one for each currency."""
        return f"{self.account}:{self.currency}"

    @property
    def change(self) -> int:
        """By how much it changes the balance."""
        return SIGNS[self.type] * self.amount

    @property
    def payload(self) -> dict[str, Any]:
        """What makes two deliveries the same event, as against one id used twice."""
        return asdict(self)


@dataclass(frozen=True)
class Delivery:
    """One arrival of an event.

    Attributes:
        number: its place in the input, counted from 0.
        id: the provider's id of the delivery.
        attempt: which attempt of the provider's it is, counted from 1.
        event: what it delivers.
    """

    number: int
    id: str
    attempt: int
    event: Event


def read(path: Path, limit: int | None = None) -> list[Delivery]:
    """Read the deliveries of a file, or the first so many of them; blank lines are skipped.

    Raises:
        BadInput: the file cannot be read, is empty, or has a line that is no delivery.
    """
    deliveries: list[Delivery] = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if limit is not None and len(deliveries) == limit:
                    break
                if line.strip():
                    deliveries.append(_delivery(f"{path}:{number}", line, len(deliveries)))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    if not deliveries:
        raise BadInput(f"{path}: there are no deliveries in it")
    return deliveries


def _delivery(where: str, line: bytes, number: int) -> Delivery:
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError:
        raise BadInput(f"{where}: is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(f"{where}: is JSON, but not an object")
    fields = _Fields(where, value)
    event = Event(
        id=fields.word("id"),
        type=fields.word("type"),
        created=fields.number("created"),
        object_id=fields.word("data.object.id"),
        account=fields.word("data.object.account"),
        amount=fields.number("data.object.amount"),
        currency=fields.word("data.object.currency"),
        status=fields.word("data.object.status"),
    )
    if event.type not in SIGNS:
        fields.refuse("type", f"is {event.type!r}; known are {', '.join(SIGNS)}")
    return Delivery(number, fields.word("delivery.id"), fields.number("delivery.attempt"), event)


class _Fields:
    """The fields of one line, by their dotted paths."""

    def __init__(self, where: str, value: dict[str, Any]) -> None:
        self._where = where
        self._value = value

    def word(self, path: str) -> str:
        """Return an id or another short word."""
        word = self._get(path, str)
        if not _WORD.fullmatch(word):
            self.refuse(path, "must be 1 to 64 letters, digits or any of '_.-'")
        return word

    def number(self, path: str) -> int:
        """Return a whole number that is not negative."""
        number = self._get(path, int)
        if not 0 <= number <= _MOST:
            self.refuse(path, f"must be between 0 and {_MOST}, and is {number}")
        return number

    def refuse(self, path: str, why: str) -> NoReturn:
        """Say what is wrong with a field."""
        raise BadInput(f"{self._where}: {path} {why}")

    def _get(self, path: str, kind: type[T]) -> T:
        found: Any = self._value
        names = path.split(".")
        for depth, name in enumerate(names, start=1):
            wanted = kind if depth == len(names) else dict
            if name not in found:
                self.refuse(".".join(names[:depth]), "is missing")
            found = found[name]
            # True is an int to Python, but not to JSON.
            if not isinstance(found, wanted) or isinstance(found, bool):
                self.refuse(".".join(names[:depth]), f"must be {_KINDS[wanted]}")
        value: T = found
        return value
