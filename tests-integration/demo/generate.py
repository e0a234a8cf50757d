"""Make the deliveries that ship with the project: `python -m demo.generate`.

Of 1,200 events, each comes at least once; 760 deliveries repeat one as it was, at once or much
later; 40 bring an id that was used before, with another amount. Everything follows from the seed.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from demo.deliveries import SIGNS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FILE", "lines"]

FILE: Final = Path(__file__).with_name("deliveries.jsonl")

_SEED: Final = 20260105
_EVENTS: Final = 1200
_REPEATS: Final = 760
_CONFLICTS: Final = 40
_ACCOUNTS: Final = 60
_CURRENCIES: Final = ("eur", "usd", "gbp")
# Mostly payments, as in life.
_TYPES: Final = (*["payment.succeeded"] * 6, *SIGNS)
_OBJECTS: Final = {"payment.succeeded": "pay", "payment.refunded": "ref", "payout.paid": "po"}
_OPENING: Final = 1767571200  # 2026-01-05, midnight UTC


def lines(seed: int = _SEED) -> Iterator[str]:
    """Yield the lines, in the order of their arrival."""
    random = Random(seed)
    events = [_event(random, number) for number in range(_EVENTS)]
    # The network shuffles a little: an event overtakes those of about ten seconds before it.
    arrivals = [(event["created"] + random.random() * 10, event, 1) for event in events]
    attempts = [1] * _EVENTS
    for extra in range(_REPEATS + _CONFLICTS):
        number = random.randrange(_EVENTS)
        arrival, event, _ = arrivals[number]
        attempts[number] += 1
        if extra >= _REPEATS:
            event = _changed(random, event)
        arrivals.append((arrival + _delay(random), event, attempts[number]))
    arrivals.sort(key=lambda arrival: arrival[0])
    for number, (_, event, attempt) in enumerate(arrivals, start=1):
        delivery = {"id": f"dlv_{number:07}", "attempt": attempt}
        yield json.dumps({"delivery": delivery, **event}, separators=(",", ":"))


def _event(random: Random, number: int) -> dict[str, Any]:
    kind = _TYPES[random.randrange(len(_TYPES))]
    account = random.randrange(_ACCOUNTS)
    return {
        "id": f"evt_{random.getrandbits(64):016x}",
        "type": kind,
        "created": _OPENING + 3 * number,
        "data": {
            "object": {
                "id": f"{_OBJECTS.get(kind, 'dis')}_{random.getrandbits(64):016x}",
                "account": f"acct_{account:03}",
                "amount": 100 + random.randrange(50_000),
                "currency": _CURRENCIES[account % len(_CURRENCIES)],
                "status": "succeeded",
            }
        },
    }


def _changed(random: Random, event: dict[str, Any]) -> dict[str, Any]:
    """Return the same event with an amount that it did not have."""
    thing = event["data"]["object"]
    amount = thing["amount"] + 1 + random.randrange(5_000)
    return {**event, "data": {"object": {**thing, "amount": amount}}}


def _delay(random: Random) -> float:
    """Return after how many seconds a repeat comes: some on the heels of the first, some late."""
    return random.random() * (2 if random.random() < 0.3 else 900)


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
    print(f"wrote {FILE}")
