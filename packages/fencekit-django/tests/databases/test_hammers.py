"""Many connections at once: a fence never goes down, no increment is lost, an effect happens once.

The short forms run in a second or two; the long ones are marked slow. Each is run on the naive form
too, which must fail it: the hammer bites.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.db.models import F

from fencekit import FenceToken
from fencekit.django import Effect, fenced_update
from harness.servers import Server
from ledger.accounts.models import Account, Branch
from ledger.curios.models import Guest, Place
from ledger.hands import STEPS, Hands
from ledger.naive import plain_update
from ledger.routing import using
from ledger.stage import together

WRITERS, INCREMENTERS, RACERS = 8, 8, 12
SHORT, LONG = 1.0, 20.0


def hammer(alias: str, update: Callable[..., Any], seconds: float) -> tuple[int, bool]:
    """Write with tokens that rise, and are late, from eight connections.

    Returns the highest token that was applied less the fence that is left, and whether a watcher
    saw the fence go down.
    """
    row = Guest.objects.create(place=Place.objects.create(name="p"))
    tokens, end = itertools.count(1), time.monotonic() + seconds
    lowered, over = threading.Event(), threading.Event()

    def write() -> int:
        highest = 0
        while time.monotonic() < end:
            shown = FenceToken(next(tokens), resource="guest:1")
            time.sleep(random.random() / 500)
            rows = random.choice(
                [Guest.objects.filter(pk=row.pk), Guest.objects.filter(place__name="p")]
            )
            try:
                with transaction.atomic(using=alias):
                    done = update(rows, shown, updates={"value": int(shown)})
                    # Others wait for this row meanwhile, and have chosen it before they wait.
                    time.sleep(random.random() / 500)
            except OperationalError:  # REPEATABLE READ
                continue
            if done:
                highest = int(shown)
        return highest

    def watch() -> None:
        seen = 0
        while not over.is_set():
            fence = Guest.objects.values_list("fence_token", flat=True).get()
            if fence < seen:
                lowered.set()
            seen = fence

    def write_all() -> list[int]:
        try:
            return together(alias, [write] * WRITERS)
        finally:
            over.set()

    _, highest = together(alias, [watch, write_all])
    assert all(isinstance(one, int) for one in highest), highest
    row.refresh_from_db()
    assert row.value == row.fence_token
    return max(highest) - row.fence_token, lowered.is_set()


def test_a_fence_never_goes_down(alias: str) -> None:
    assert hammer(alias, fenced_update, SHORT) == (0, False)


def test_a_fence_goes_down_by_the_naive_form(postgres_alias: str) -> None:
    for _ in range(10):
        off, lowered = hammer(postgres_alias, plain_update, SHORT)
        if off or lowered:
            return
        Guest.objects.all().delete()
    pytest.fail("the hammer does not bite")


@pytest.mark.slow
def test_a_fence_never_goes_down_for_twenty_seconds(alias: str) -> None:
    assert hammer(alias, fenced_update, LONG) == (0, False)


def incremented(hands: Hands, alias: str, server: Server, view: str, times: int) -> int:
    """Send requests from eight processes under ATOMIC_REQUESTS; returns the balance at the end."""
    account = Account.objects.create(name="a")
    path = f"/accounts/{account.pk}/{view}"
    answered = hands.run(
        "request",
        INCREMENTERS,
        path,
        times,
        alias=alias,
        redis_url=server.url,
        atomic_requests=True,
    )
    assert answered == [times] * INCREMENTERS
    account.refresh_from_db()
    balance: int = account.balance
    return balance


EACH_SERVER = pytest.mark.parametrize("alias", ["default", "postgres", "mariadb"], indirect=True)


@EACH_SERVER
def test_no_increment_is_lost(alias: str, hands: Hands, server: Server) -> None:
    assert incremented(hands, alias, server, "add-one", 6) == INCREMENTERS * 6


def test_increments_are_lost_when_the_lock_is_released_before_the_commit(
    postgres_alias: str, hands: Hands, server: Server
) -> None:
    view = "add-one-wrongly?linger=0.05"
    assert incremented(hands, postgres_alias, server, view, 3) < INCREMENTERS * 3


@pytest.mark.slow
@EACH_SERVER
def test_two_thousand_increments(alias: str, hands: Hands, server: Server) -> None:
    assert incremented(hands, alias, server, "add-one", 250) == 2000


def check_one_effect(found: list[Any], order: str) -> None:
    assert Branch.objects.filter(name=order).count() == 1
    assert Effect.objects.filter(key=order).count() == 1
    told = [one for one in found if one is not None]
    assert told
    assert all(one == told[0] for one in told), told


def test_twelve_workers_that_crash_between_all_steps(
    alias: str, hands: Hands, server: Server
) -> None:
    steps: list[str | None] = [*STEPS, *STEPS, None, None]
    found = hands.run("post", RACERS, "o", steps, alias=alias)
    server.call("FLUSHALL")
    # Those that were killed are redelivered; here by one more process.
    found += hands.run("post", 1, "o", [None], alias=alias)
    check_one_effect(found, "o")


@pytest.mark.slow
def test_twelve_workers_crash_in_every_order(alias: str, hands: Hands, server: Server) -> None:
    for number in range(10):
        steps = [random.choice([*STEPS, None]) for _ in range(RACERS)]
        found = hands.run("post", RACERS, str(number), steps, alias=alias)
        server.call("FLUSHALL")
        found += hands.run("post", 1, str(number), [None], alias=alias)
        check_one_effect(found, str(number))


def test_plain_increments_are_the_databases_own(alias: str) -> None:
    """What needs no fence: an increment that the database computes is not lost either."""
    row = Account.objects.create(name="a")
    works = [lambda: Account.objects.filter(pk=row.pk).update(balance=F("balance") + 1)] * 4

    def repeated(work: Callable[[], Any]) -> Any:
        while True:
            try:
                return work()
            except OperationalError:
                connections[alias].close()

    assert together(alias, [lambda w=w: repeated(w) for w in works]) == [1] * 4  # type: ignore[misc]
    with using(alias):
        row.refresh_from_db()
    assert row.balance == 4
