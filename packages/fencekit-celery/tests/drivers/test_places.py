"""Which messages of a unique task have a place, and when it is free."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

import pytest
from celery import chain, chord

from fencekit import (
    IdempotencyGuard,
)
from fencekit.celery import idempotent_task, unique_task
from harness.by_hand import Hand, queued

HOUR = timedelta(hours=1)
# Celery 5.6 with redis-py 8.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")


class Colour(str, Enum):
    RED = "red"


def test_what_others_wait_for_is_sent_also_when_its_place_is_taken(
    app: Any, hand: Hand, redis_client: Any
) -> None:
    """Red where only the options of the first steps are known: the results stay PENDING."""

    @app.task(name="export", shared=False)
    @unique_task(key=lambda: "all of them")
    def export(names: Any) -> Any:
        return names

    @app.task(name="pick", shared=False)
    def pick(name: str) -> str:
        return name

    @app.task(name="stand-in", shared=False, bind=True)
    def stand_in(self: Any, name: str) -> Any:
        return self.replace(export.s(name))

    export.delay("a")
    assert export.delay("a").id == queued(redis_client)[0]["id"]
    hand.take()  # it runs elsewhere, and has its place
    last = chain(pick.s("b"), export.s()).delay()
    body = chord([pick.s("c"), pick.s("d")])(export.s())
    replaced = stand_in.delay("e")
    export.apply_async(("f",), link=pick.s())
    while hand.step() is not None:
        pass
    assert [last.result, body.result, replaced.result] == ["b", ["c", "d"], "e"]
    assert export.delay("a").id not in {last.id, body.id, replaced.id}


def test_a_copy_that_is_dropped_gives_its_place_back(
    app: Any, hand: Hand, redis_client: Any
) -> None:
    """Red where what is ignored is taken for what comes back: nothing is sent for an hour."""

    @app.task(name="copy", shared=False)
    @unique_task(key="name")
    @idempotent_task(key=lambda name: name, on_busy="drop", fingerprint=None)
    def dropped(name: str) -> str:
        return name

    @app.task(name="other", shared=False)
    @unique_task(key="name")
    @idempotent_task(key=lambda name: name, fingerprint=None)
    def put_off(name: str) -> str:
        return name

    with IdempotencyGuard(redis_client).begin("a", ttl=HOUR) as claim:
        first, other = dropped.delay("a"), put_off.delay("a")
        hand.step()
        hand.step()
        assert dropped.delay("a").id != first.id
        assert put_off.delay("a").id == other.id
        claim.release()


def test_the_place_of_a_message_is_freed_whatever_its_arguments_have_become(
    app: Any, hand: Hand, redis_client: Any
) -> None:
    """Red where the place is worked out anew: what was sent as an enum has come as its value."""

    @app.task(name="paint", shared=False)
    @unique_task(key=lambda colour: colour.name)
    def paint(colour: Colour) -> str:
        return colour

    first = paint.delay(Colour.RED)
    assert paint.delay(Colour.RED).id == first.id
    hand.step()
    assert first.result == "red"
    assert redis_client.keys("*:unique") == []
