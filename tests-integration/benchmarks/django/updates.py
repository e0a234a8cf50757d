"""A fenced update against a plain one: one statement each, in autocommit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.django.ground import ALIAS, ledger
from benchmarks.figures import Figure, Scenario, Target, at_least, exactly, race
from benchmarks.stand import Stand
from fencekit import FenceToken

__all__ = ["UPDATES"]

_COUNTED = 20


def _durable(stand: Stand) -> Iterator[Figure]:
    del stand
    with ledger(durable=True):
        yield from _figures(at_least(0.9))


def _hasty(stand: Stand) -> Iterator[Figure]:
    del stand
    with ledger(durable=False):
        yield from _figures(at_least(0.85, aim=0.9))


def _figures(target: Target) -> Iterator[Figure]:
    from django.db import connections  # noqa: PLC0415 - Django is set up by `ledger`
    from django.test.utils import CaptureQueriesContext  # noqa: PLC0415 - Django is set up by `ledger`

    from fencekit.django import fenced_update  # noqa: PLC0415 - Django is set up by `ledger`
    from ledger.curios.models import Guest, Place  # noqa: PLC0415 - Django is set up by `ledger`

    place = Place.objects.create(name="p")
    fenced_row, plain_row = (Guest.objects.create(place=place).pk for _ in range(2))
    token = FenceToken(10**15, resource="guest:1")

    def plain(cycles: int) -> None:
        for value in range(cycles):
            Guest.objects.filter(pk=plain_row).update(value=value)

    def compared(cycles: int) -> None:
        for value in range(cycles):
            rows = Guest.objects.filter(pk=plain_row, fence_token__lte=int(token))
            rows.update(value=value, fence_token=int(token))

    def fenced(cycles: int) -> None:
        for value in range(cycles):
            fenced_update(Guest.objects.filter(pk=fenced_row), token, updates={"value": value})

    def by_join(cycles: int) -> None:
        for value in range(cycles):
            rows = Guest.objects.filter(pk=fenced_row, place__name="p")
            fenced_update(rows, token, updates={"value": value})

    def plain_by_join(cycles: int) -> None:
        for value in range(cycles):
            Guest.objects.filter(pk=plain_row, place__name="p").update(value=value)

    contenders: dict[str, Any] = {
        "plain": plain,
        "compared": compared,
        "fenced": fenced,
        "plain by join": plain_by_join,
        "fenced by join": by_join,
    }
    timings = race(contenders, rounds=120, cycles=15)
    with CaptureQueriesContext(connections[ALIAS]) as captured:
        fenced(_COUNTED)
    note = timings.note("fenced", "compared", "plain")
    yield Figure(
        "fenced update, of the same filter and update written plainly",
        timings.speed("fenced", "compared"),
        "×",
        at_least(0.9),
        note,
    )
    yield Figure("fenced update, of an unfenced one", timings.speed("fenced", "plain"), "×", target)
    yield Figure(
        "the same by a join, of a plain one",
        timings.speed("fenced by join", "plain by join"),
        "×",
        note=timings.note("fenced by join", "plain by join"),
    )
    yield Figure("statements per fenced update", len(captured) / _COUNTED, "", exactly(1))


UPDATES = (
    Scenario("updates", "one row by its key, autocommit, as PostgreSQL is by default", _durable),
    # Where nothing waits for a disk, the same work in Python shows most.
    Scenario("hasty updates", "the same, and no commit waits for the disk", _hasty),
)
