"""The public reports on Django, each for its whole kind (cases.md).

Each is run on the naive form too (`ledger.naive`), which must fail it where the database lets it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connections, transaction
from django.test import Client

from fencekit import FencedOutError, FenceToken
from fencekit.django import fenced_atomic, fenced_update, once
from ledger.accounts.models import Account, Branch, Transfer
from ledger.curios.models import Guest, Place, Restaurant
from ledger.hands import Hands
from ledger.naive import plain_once, plain_update
from ledger.stage import together

Update = Callable[..., Any]


def token(value: int) -> FenceToken:
    return FenceToken(value, resource="guest:1")


@contextmanager
def before_each_update(alias: str, act: Callable[[], None]) -> Iterator[None]:
    """Have something happen between Django's selecting rows and updating them."""

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001 - as Django calls it
        if sql.startswith("UPDATE"):
            act()
        return execute(sql, params, many, context)

    with connections[alias].execute_wrapper(wrapper):
        yield


def race(alias: str, rows: Callable[[], Any], model: type[Any], late: Update, **values: int) -> int:
    """Let token 5 write while token 9 is writing and has not committed; returns the fence left."""
    written, blocked = threading.Event(), threading.Event()

    def newer() -> None:
        with transaction.atomic(using=alias):
            model.objects.update(fence_token=9)
            written.set()
            blocked.wait(10)
            threading.Event().wait(0.1)

    def older() -> None:
        assert written.wait(10)
        timer = threading.Timer(0.15, blocked.set)
        timer.start()
        try:
            late(rows(), token(5), updates=values)
        except OperationalError as error:  # REPEATABLE READ
            assert "could not serialize" in str(error)  # noqa: PT017 - it need not be raised
        finally:
            timer.join()

    assert together(alias, [newer, older]) == [None, None]
    fence: int = model.objects.values_list("fence_token", flat=True).get()
    return fence


def guest() -> Guest:
    row: Guest = Guest.objects.create(place=Place.objects.create(name="p"))
    return row


def by_join() -> Any:
    return Guest.objects.filter(place__name="p")


def test_join_postgres_read_committed(row_locking_alias: str) -> None:
    guest()
    assert race(row_locking_alias, by_join, Guest, fenced_update, value=1) == 9


def test_join_postgres_read_committed_is_lost_by_the_naive_form(postgres_alias: str) -> None:
    guest()
    assert race(postgres_alias, by_join, Guest, plain_update, value=1) == 5


def test_update_django_19312(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on MySQL: the rows are selected first, and another one writes before they are updated."""
    monkeypatch.setattr(connections[alias].features, "update_can_self_select", False)
    row = guest()

    def newer() -> None:
        # On another connection, as another process would.
        assert together(alias, [lambda: Guest.objects.update(fence_token=9)]) == [1]

    for update, left in ((fenced_update, 9), (plain_update, 5)):
        Guest.objects.update(fence_token=0)
        once_only = iter([newer])
        with before_each_update(alias, lambda acts=once_only: next(acts, lambda: None)()):  # type: ignore[misc]
            update(by_join(), token(5), updates={"value": 1})
        row.refresh_from_db()
        assert row.fence_token == left, update


def test_multi_table_inheritance(row_locking_alias: str) -> None:
    Restaurant.objects.create(name="r")
    with pytest.raises(ValueError, match="fenced_atomic"):
        fenced_update(Restaurant.objects.all(), token(5), updates={"stars": 1})

    # What the error names does it.
    def late(rows: Any, shown: FenceToken, *, updates: Any) -> None:
        with fenced_atomic(shown):
            rows.update(**updates, fence_token=int(shown))

    def newer() -> None:
        with fenced_atomic(token(9)):
            Restaurant.objects.update(fence_token=9, stars=9)

    assert together(row_locking_alias, [newer]) == [None]
    with pytest.raises(FencedOutError):
        late(Restaurant.objects.all(), token(5), updates={"stars": 5})
    assert list(Restaurant.objects.values_list("fence_token", "stars")) == [(9, 9)]


def test_multi_table_inheritance_is_lost_by_the_naive_form(postgres_alias: str) -> None:
    Restaurant.objects.create(name="r")
    assert race(postgres_alias, Restaurant.objects.all, Restaurant, plain_update, stars=1) == 5


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def switch_on(alias: str) -> None:
        for place in (connections.settings[alias], connections[alias].settings_dict):
            monkeypatch.setitem(place, "ATOMIC_REQUESTS", value=True)

    return switch_on


def two_requests(alias: str, path: str) -> int:
    account = Account.objects.create(name="a")
    works = [lambda: Client().post(path.format(account.pk)).status_code] * 2
    assert together(alias, works) == [200, 200]
    account.refresh_from_db()
    balance: int = account.balance
    return balance


@pytest.mark.usefixtures("redis_settings")
def test_release_django_pglocks_15(alias: str, atomic_requests: Callable[[str], None]) -> None:
    atomic_requests(alias)
    assert two_requests(alias, "/accounts/{}/add-one") == 2


@pytest.mark.usefixtures("redis_settings")
def test_release_django_pglocks_15_is_lost_by_the_naive_form(
    postgres_alias: str, atomic_requests: Callable[[str], None]
) -> None:
    atomic_requests(postgres_alias)
    assert two_requests(postgres_alias, "/accounts/{}/add-one-wrongly?linger=0.3") == 1


def test_effect_idempotency_key_61(alias: str) -> None:
    """Two requests with one key, and a third with another body."""
    source, target = (Account.objects.create(name=name, balance=10).pk for name in "st")

    def send(amount: int) -> tuple[int, Any]:
        body = {"source": source, "target": target, "amount": amount}
        answer = Client().post(
            "/transfers",
            json.dumps(body),
            content_type="application/json",
            headers={"Idempotency-Key": "order-1"},
        )
        return answer.status_code, answer.json()

    tries = 0
    while True:  # the view answers a serialisation failure by an error, and the client repeats
        first, second = together(alias, [lambda: send(3)] * 2)
        if not isinstance(first, DatabaseError) and not isinstance(second, DatabaseError):
            break
        tries += 1
        assert tries < 5
    assert first == second
    assert first[0] == 200
    assert send(4)[0] == 422
    assert Transfer.objects.count() == 1
    assert list(Account.objects.order_by("balance").values_list("balance", flat=True)) == [7, 13]


def test_effect_idempotency_key_61_is_lost_by_the_naive_form(postgres_alias: str) -> None:
    gate = threading.Barrier(2)

    def slow() -> None:
        gate.wait(10)
        Branch.objects.create(name="b")

    together(postgres_alias, [lambda: plain_once("s", "k", slow)] * 2)
    assert Branch.objects.count() == 2


@pytest.mark.parametrize("alias", ["default", "postgres", "mariadb"], indirect=True)
def test_effect_django_tasks_189(alias: str, hands: Hands) -> None:
    """Killed between COMMIT and the hook: the effect is recorded, the redelivery replays it."""
    assert hands.run("post", 1, "order", ["in the hook"], alias=alias) == [None]
    assert Branch.objects.count() == 1
    with once("orders", "order") as run:
        assert not run.first
    assert run.result == {"branch": Branch.objects.get().pk, "by": 0}
