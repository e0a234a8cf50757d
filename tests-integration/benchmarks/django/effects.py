"""An effect that happens once against the effect alone: statements, and transactions a second."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.django.ground import ALIAS, ledger
from benchmarks.figures import Figure, Scenario, at_most, race
from benchmarks.stand import Stand

__all__ = ["EFFECTS"]


def _measure(stand: Stand) -> Iterator[Figure]:
    del stand
    with ledger(durable=True):
        yield from _figures()


def _figures() -> Iterator[Figure]:
    from django.db import connections, transaction  # noqa: PLC0415 - Django is set up by `ledger`
    from django.test.utils import CaptureQueriesContext  # noqa: PLC0415 - Django is set up by `ledger`

    from fencekit.django import run_once  # noqa: PLC0415 - Django is set up by `ledger`
    from ledger.accounts.models import Branch  # noqa: PLC0415 - Django is set up by `ledger`

    keys = itertools.count()

    def effect() -> int:
        made: int = Branch.objects.create(name="b").pk
        return made

    def alone(cycles: int) -> None:
        for _ in range(cycles):
            with transaction.atomic(using=ALIAS):
                effect()

    def first(cycles: int) -> None:
        for _ in range(cycles):
            run_once("bench", str(next(keys)), effect)

    def replayed(cycles: int) -> None:
        for _ in range(cycles):
            run_once("bench", "0", effect)

    def statements(work: Callable[[int], None]) -> int:
        with CaptureQueriesContext(connections[ALIAS]) as captured:
            work(1)
        return len(captured)

    contenders: dict[str, Any] = {"alone": alone, "once": first, "replay": replayed}
    timings = race(contenders, rounds=24, cycles=40)
    extra = statements(first) - statements(alone)
    yield Figure("statements besides the effect", extra, "", at_most(2))
    note = timings.note("once", "alone", "replay")
    yield Figure("once, of the effect alone", timings.speed("once", "alone"), "×", note=note)
    yield Figure("a replay, of the effect alone", timings.speed("replay", "alone"), "×")


EFFECTS = (Scenario("effects", "one INSERT as the effect, durable commits, PostgreSQL", _measure),)
