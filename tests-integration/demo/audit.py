"""Judge a run by what it left behind: the ledger's rows, the balances in Redis, the answers given.

Nothing here asks fencekit, or believes what the workers told about what they did.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redis import Redis

    from demo.deliveries import Delivery

__all__ = ["Findings", "examine"]


@dataclass(frozen=True)
class Findings:
    """What is wrong; zeros where all is well.

    Attributes:
        events: how many there are.
        effects: rows in the ledger.
        missing: events without an effect.
        doubled: events with more than one.
        extra: effects beyond the first of each event.
        conflicting: effects of another payload than the event's first.
        invented: effects that follow from no delivery.
        wrong_balances: balances that are not the sum of the first effects.
        overwritten: balances that are not even the sum of the effects in the ledger.
        drift: by how much all balances together are off, in smallest units.
        fences_down: rows whose fence is not above that of the row before, on one account.
        mirrors: balances in Redis that are not those of the ledger.
        answers: events that were answered differently, or otherwise than the ledger has it.
    """

    events: int
    effects: int
    missing: int
    doubled: int
    extra: int
    conflicting: int
    invented: int
    wrong_balances: int
    overwritten: int
    drift: int
    fences_down: int
    mirrors: int
    answers: int

    @property
    def exactly_once(self) -> bool:
        """Whether every event took effect exactly once, and everybody agrees on it."""
        return self.effects == self.events and not any(
            (
                self.missing,
                self.doubled,
                self.invented,
                self.wrong_balances,
                self.overwritten,
                self.fences_down,
                self.mirrors,
                self.answers,
            )
        )


def examine(
    path: Path,
    redis: Redis,
    deliveries: Sequence[Delivery],
    answers: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Findings:
    """Examine the ledger of a run of these deliveries."""
    with closing(sqlite3.connect(path)) as db:
        effects = db.execute(
            "SELECT event, balance, change, fence FROM effects ORDER BY number"
        ).fetchall()
        amounts = dict(db.execute("SELECT balance, amount FROM accounts"))
        latest = dict(db.execute("SELECT balance, fence FROM accounts"))
        results = dict(db.execute("SELECT event, result FROM events"))

    delivered: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for delivery in deliveries:
        event = delivery.event
        delivered[event.id].add((event.balance, event.change))

    first: dict[str, tuple[str, int]] = {}
    times: dict[str, int] = defaultdict(int)
    expected: dict[str, int] = dict.fromkeys(amounts, 0)
    posted: dict[str, int] = dict.fromkeys(amounts, 0)
    fences: dict[str, int] = defaultdict(int)
    conflicting = invented = fences_down = 0
    for event_id, balance, change, fence in effects:
        times[event_id] += 1
        invented += (balance, change) not in delivered[event_id]
        posted[balance] += change
        if event_id not in first:
            first[event_id] = balance, change
            expected[balance] += change
        conflicting += first[event_id] != (balance, change)
        # Without tokens there is no order to break.
        fences_down += fence != 0 and fence <= fences[balance]
        fences[balance] = fence
    fences_down += sum(latest[balance] < fence for balance, fence in fences.items())

    return Findings(
        events=len(delivered),
        effects=len(effects),
        missing=sum(event_id not in times for event_id in delivered),
        doubled=sum(number > 1 for number in times.values()),
        extra=sum(number - 1 for number in times.values()),
        conflicting=conflicting,
        invented=invented,
        wrong_balances=sum(amounts[balance] != expected[balance] for balance in amounts),
        overwritten=sum(amounts[balance] != posted[balance] for balance in amounts),
        drift=sum(abs(amounts[balance] - expected[balance]) for balance in amounts),
        fences_down=fences_down,
        mirrors=sum(_mirror(redis, balance) != amounts[balance] for balance in amounts),
        answers=sum(
            any(answer != json.loads(results.get(event_id) or "null") for answer in given)
            for event_id, given in answers.items()
        ),
    )


def _mirror(redis: Redis, balance: str) -> int:
    value = redis.get(f"balance:{balance}")
    return int(value) if isinstance(value, bytes) else 0
