"""What a fenced update writes, refuses and says, on every database.

Red once each with `filter(fence_token__lte=…).update(…)` in its place, where that is what differs:
see tests/cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import FieldDoesNotExist, FieldError
from django.db import connections, models, transaction
from django.db.models import Count, Exists, F, OuterRef, Subquery, Sum, Window
from django.db.models.functions import RowNumber
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from fencekit import FencedOutError, FenceToken
from fencekit.django import (
    FencedUpdate,
    UnexpectedRows,
    afenced_update,
    fenced_update,
)
from ledger.accounts.models import Account, Branch
from ledger.curios.models import Odd, Place, PlaceProxy, Restaurant
from ledger.stage import together


def token(value: int) -> FenceToken:
    return FenceToken(value, resource="account:1")


def account(**values: Any) -> Account:
    row: Account = Account.objects.create(**{"name": "a", **values})
    return row


def fence(row: models.Model) -> int:
    row.refresh_from_db()
    found: int = row.fence_token  # type: ignore[attr-defined]
    return found


def statements(alias: str) -> CaptureQueriesContext:
    return CaptureQueriesContext(connections[alias])


def writes(captured: CaptureQueriesContext) -> list[str]:
    return [q["sql"] for q in captured.captured_queries if q["sql"].startswith("UPDATE")]


@pytest.mark.usefixtures("alias")
def test_a_fresh_token_writes_and_stays() -> None:
    row = account()
    done = fenced_update(Account.objects.filter(pk=row.pk), token(5), updates={"balance": 7})
    assert done
    assert (done.rows, done.explain()) == (1, "applied")
    assert (fence(row), row.balance) == (5, 7)


@pytest.mark.usefixtures("alias")
def test_the_same_token_writes_again() -> None:
    row = account(fence_token=5, balance=7)
    # The same values too: MySQL could count changed rows instead of matched ones.
    done = fenced_update(Account.objects.filter(pk=row.pk), token(5), updates={"balance": 7})
    assert done.rows == 1


@pytest.mark.usefixtures("alias")
def test_a_lower_token_writes_nothing() -> None:
    row = account(fence_token=9, balance=1)
    done = fenced_update(Account.objects.filter(pk=row.pk), token(5), updates={"balance": 7})
    assert not done
    assert (done.rows, done.explain()) == (0, "stale")
    assert (fence(row), row.balance) == (9, 1)


@pytest.mark.usefixtures("alias")
def test_a_row_that_is_not_there_is_missing() -> None:
    done = fenced_update(Account.objects.filter(pk=404), token(5), updates={"balance": 7})
    assert not done
    assert done.explain() == "missing"
    missing = fenced_update(
        Account.objects.filter(pk=404), token(5), updates={"balance": 7}, raise_on_stale=True
    )
    assert not missing


@pytest.mark.usefixtures("alias")
def test_raise_on_stale_names_the_newer_token() -> None:
    row = account(fence_token=9)
    with pytest.raises(FencedOutError) as caught:
        fenced_update(
            Account.objects.filter(pk=row.pk), token(5), updates={"balance": 7}, raise_on_stale=True
        )
    error = caught.value
    assert (error.resource, error.token, error.current) == ("account:1", 5, 9)


@pytest.mark.usefixtures("alias")
def test_of_many_rows_the_fresh_are_written() -> None:
    fresh, stale = account(fence_token=3), account(fence_token=9)
    done = fenced_update(Account.objects.all(), token(5), updates={"balance": 7})
    assert done.rows == 1
    assert (fence(fresh), fence(stale)) == (5, 9)


@pytest.mark.usefixtures("alias")
def test_raise_on_stale_is_all_or_nothing() -> None:
    fresh = account(fence_token=3)
    account(fence_token=9)
    with pytest.raises(FencedOutError):
        fenced_update(Account.objects.all(), token(5), updates={"balance": 7}, raise_on_stale=True)
    assert (fence(fresh), fresh.balance) == (3, 0)


@pytest.mark.usefixtures("alias")
@pytest.mark.parametrize(
    "same", [F("pk"), Subquery(Account.objects.filter(pk=OuterRef("pk")).values("pk")[:1])]
)
def test_a_primary_key_that_each_row_computes_is_not_one_row(same: Any) -> None:
    fresh, stale = account(fence_token=3), account(fence_token=9)
    rows = Account.objects.filter(pk=same)
    with pytest.raises(FencedOutError):
        fenced_update(rows, token(5), updates={"balance": 7}, raise_on_stale=True)
    assert (fence(fresh), fence(stale), fresh.balance) == (3, 9, 0)


def test_a_stale_row_is_seen_from_a_transaction_with_an_older_snapshot(
    on: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL's REPEATABLE READ: an UPDATE judges what is there now, a SELECT reads what was."""
    alias = on("mariadb")
    connection = connections[alias]
    level = "isolation_level"
    with monkeypatch.context() as patched:
        patched.setitem(connection.settings_dict["OPTIONS"], level, "repeatable read")
        connection.close()
        fresh, stale = account(fence_token=3), account()
        rows, one = Account.objects.all(), Account.objects.filter(pk=stale.pk)
        with transaction.atomic(using=alias):
            assert one.get().fence_token == 0
            together(alias, [lambda: fenced_update(one, token(9), updates={"balance": 9})])
            assert one.get().fence_token == 0
            for these in (rows, one):
                with pytest.raises(FencedOutError):
                    fenced_update(these, token(5), updates={"balance": 7}, raise_on_stale=True)
            assert fenced_update(one, token(5), updates={"balance": 7}).explain() == "stale"
    connection.close()
    assert (fence(fresh), fence(stale), fresh.balance, stale.balance) == (3, 9, 0, 9)


@pytest.mark.usefixtures("alias")
def test_raise_on_stale_writes_all_when_none_is_stale() -> None:
    rows = [account(fence_token=3), account()]
    done = fenced_update(
        Account.objects.all(), token(5), updates={"balance": 7}, raise_on_stale=True
    )
    assert done.rows == 2
    assert [fence(row) for row in rows] == [5, 5]


@pytest.mark.usefixtures("alias")
def test_expect_rows_or_rolled_back() -> None:
    rows = [account(), account()]
    assert fenced_update(Account.objects.all(), token(5), updates={"balance": 1}, expect=2)
    with pytest.raises(UnexpectedRows) as caught:
        fenced_update(Account.objects.all(), token(6), updates={"balance": 2}, expect=1)
    assert (caught.value.expected, caught.value.rows) == (1, 2)
    assert [(fence(row), row.balance) for row in rows] == [(5, 1), (5, 1)]
    with pytest.raises(FencedOutError):
        fenced_update(Account.objects.all(), token(4), updates={"balance": 2}, expect=2)


@pytest.mark.usefixtures("alias")
def test_touch_raises_the_fence_alone_and_sets_what_save_would() -> None:
    row = account(balance=4)
    before = row.changed_at
    assert fenced_update(Account.objects.filter(pk=row.pk), token(5), updates={}, touch=True)
    assert (fence(row), row.balance) == (5, 4)
    assert row.changed_at > before


@pytest.mark.usefixtures("alias")
def test_expressions_are_computed_by_the_database() -> None:
    row = account(balance=4)
    fenced_update(
        Account.objects.filter(pk=row.pk), token(5), updates={"balance": F("balance") + 1}
    )
    fence(row)
    assert row.balance == 5


def test_the_predicate_is_in_the_one_statement(alias: str) -> None:
    row = account()
    with statements(alias) as captured:
        fenced_update(Account.objects.filter(pk=row.pk), token(5), updates={"balance": 7})
    (sql,) = (query["sql"] for query in captured.captured_queries)
    _, _, where = sql.partition("WHERE")
    assert "fence_token" in where
    assert "SELECT" not in sql


def outside_of_selects(condition: str) -> str:
    while (start := condition.find("(SELECT")) >= 0:
        depth, end = 0, start
        for end in range(start, len(condition)):
            depth += {"(": 1, ")": -1}.get(condition[end], 0)
            if depth == 0:
                break
        condition = condition[:start] + condition[end + 1 :]
    return condition


JOINS: dict[str, Callable[[], Any]] = {
    "filter": lambda: Account.objects.filter(branch__name="b"),
    "exclude": lambda: Account.objects.exclude(branch__name="other"),
    "annotation": lambda: Account.objects.annotate(b=F("branch__name")).filter(b="b"),
    "ordered": lambda: Account.objects.filter(branch__name="b").order_by("branch__name"),
    "related": lambda: Account.objects.filter(branch__in=Branch.objects.all(), branch__name="b"),
    "locked": lambda: Account.objects.filter(branch__name="b").select_for_update(),
}


@pytest.mark.parametrize("shape", JOINS)
def test_joins_are_anchored_on_the_primary_key(alias: str, shape: str) -> None:
    """cases.md: django/django#19312."""
    row = account(branch=Branch.objects.create(name="b"))
    account(branch=Branch.objects.create(name="other"))
    with statements(alias) as captured:
        done = fenced_update(JOINS[shape](), token(5), updates={"balance": 7})
    assert done.rows == 1
    assert fence(row) == 5
    (sql,) = writes(captured)
    assert "fence_token" in outside_of_selects(sql.partition("WHERE")[2]), sql
    assert fenced_update(JOINS[shape](), token(4), updates={"balance": 8}).explain() == "stale"


def test_a_select_before_the_update_leaves_the_predicate_in_the_update(
    alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on MySQL, which cannot select from the table it updates."""
    monkeypatch.setattr(connections[alias].features, "update_can_self_select", False)
    row = account(branch=Branch.objects.create(name="b"))
    with statements(alias) as captured:
        done = fenced_update(
            Account.objects.filter(branch__name="b"), token(5), updates={"balance": 7}
        )
    assert done.rows == 1
    (sql,) = writes(captured)
    assert "fence_token" in sql.partition("WHERE")[2]
    assert "SELECT" not in sql
    assert fence(row) == 5
    nothing = Account.objects.filter(branch__name="nobody's")
    assert fenced_update(nothing, token(5), updates={"balance": 7}).explain() == "missing"


@pytest.mark.usefixtures("alias")
def test_either_of_two_filters_is_fenced() -> None:
    """Red with the predicate added beside the filters, where it would be one more alternative."""
    fresh, stale, other = account(fence_token=3), account(fence_token=9), account()
    either = Account.objects.filter(pk=fresh.pk) | Account.objects.filter(pk=stale.pk)
    assert fenced_update(either, token(5), updates={"balance": 7}).rows == 1
    assert [fence(row) for row in (fresh, stale, other)] == [5, 9, 0]


@pytest.mark.usefixtures("alias")
def test_the_queryset_is_left_as_it_was() -> None:
    rows = Account.objects.filter(pk=account().pk).order_by("name").select_for_update()
    before = str(rows.query)
    assert fenced_update(rows, token(5), updates={"balance": 7})
    assert str(rows.query) == before
    assert rows.query.select_for_update
    assert fenced_update(rows, token(5), updates={"balance": 8}).rows == 1
    assert not fenced_update(rows, token(4), updates={"balance": 9})


@pytest.mark.usefixtures("alias")
def test_subqueries_in_the_filter_are_kept() -> None:
    row = account(branch=Branch.objects.create(name="b"))
    has_branch = Exists(Branch.objects.filter(pk=OuterRef("branch_id"), name="b"))
    assert fenced_update(Account.objects.filter(has_branch), token(5), updates={"balance": 7})
    assert fence(row) == 5


@pytest.mark.usefixtures("alias")
def test_a_queryset_of_nothing_writes_nothing() -> None:
    account()
    assert fenced_update(Account.objects.none(), token(5), updates={"balance": 7}).rows == 0


@pytest.mark.usefixtures("alias")
def test_another_fence_field_in_another_column() -> None:
    row = Odd.objects.create()
    done = fenced_update(Odd.objects.all(), token(5), updates={"text": "x"}, fence_field="guard")
    assert done
    row.refresh_from_db()
    assert (row.guard, row.text) == (5, "x")


@pytest.mark.usefixtures("alias")
def test_a_proxy_and_a_parent_are_of_one_table() -> None:
    place = Place.objects.create(name="p")
    assert fenced_update(PlaceProxy.objects.all(), token(5), updates={"name": "q"})
    assert fenced_update(Place.objects.all(), token(6), updates={"name": "r"})
    assert fence(place) == 6


@pytest.mark.usefixtures("sqlite_alias")
def test_multi_table_inheritance_is_refused() -> None:
    with pytest.raises(ValueError, match="fenced_atomic"):
        fenced_update(Restaurant.objects.all(), token(5), updates={"stars": 1})


REFUSED: dict[str, Callable[[], Any]] = {
    "slice": lambda: Account.objects.all()[:1],
    "union": lambda: Account.objects.all().union(Account.objects.all()),
    "distinct": Account.objects.distinct,
    "aggregation": lambda: Account.objects.annotate(n=Count("branch")),
    "values aggregation": lambda: Account.objects.values("name").annotate(n=Sum("balance")),
    "window": lambda: Account.objects.annotate(n=Window(RowNumber())),
    "extra tables": lambda: Account.objects.extra(tables=["accounts_branch"]),
    "manager": lambda: Account.objects,
    "model": lambda: Account,
}


@pytest.mark.usefixtures("sqlite_alias")
@pytest.mark.parametrize("shape", REFUSED)
def test_querysets_that_one_statement_cannot_write_are_refused(shape: str) -> None:
    with pytest.raises(TypeError):
        fenced_update(REFUSED[shape](), token(5), updates={"balance": 7})


@pytest.mark.usefixtures("sqlite_alias")
def test_arguments_that_make_no_sense_are_refused() -> None:
    rows, odd = Account.objects.all(), Odd.objects.all()
    with pytest.raises(TypeError, match="FenceToken"):
        fenced_update(rows, 5, updates={"balance": 7})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="names the fence"):
        fenced_update(rows, token(5), updates={"fence_token": 7})
    with pytest.raises(ValueError, match="nothing"):
        fenced_update(rows, token(5), updates={})
    with pytest.raises(TypeError, match="mapping"):
        fenced_update(rows, token(5), updates=[("balance", 7)])  # type: ignore[arg-type]
    with pytest.raises(FieldDoesNotExist):
        fenced_update(rows, token(5), updates={"no_such": 7})
    with pytest.raises(FieldError):
        fenced_update(rows, token(5), updates={"balance": Sum("balance")})
    with pytest.raises(ValueError, match="no field"):
        fenced_update(odd, token(5), updates={"text": ""})
    with pytest.raises(ValueError, match="64 bits"):
        fenced_update(odd, token(5), updates={"text": ""}, fence_field="narrow")
    with pytest.raises(ValueError, match="null"):
        fenced_update(odd, token(5), updates={"text": ""}, fence_field="nullable")
    with pytest.raises(ValueError, match="primary key"):
        fenced_update(odd, token(5), updates={"text": ""}, fence_field="id")
    with pytest.raises(TypeError, match="fence_field"):
        fenced_update(odd, token(5), updates={"text": ""}, fence_field=3)  # type: ignore[arg-type]
    for wrong, error in ((True, TypeError), ("1", TypeError), (-1, ValueError)):
        with pytest.raises(error, match="expect"):
            fenced_update(rows, token(5), updates={"balance": 7}, expect=wrong)  # type: ignore[arg-type]


@pytest.mark.usefixtures("alias")
def test_a_broken_transaction_is_said() -> None:
    rows = Account.objects.all()
    alias = rows.db
    with transaction.atomic(using=alias):
        transaction.set_rollback(True, using=alias)
        with pytest.raises(TransactionManagementError):
            fenced_update(rows, token(5), updates={"balance": 7})


@pytest.mark.usefixtures("alias")
def test_methods_of_the_queryset_and_the_manager() -> None:
    row = account()
    done = Account.objects.filter(pk=row.pk).fenced_update(token(5), updates={"balance": 7})
    assert isinstance(done, FencedUpdate)
    assert done
    assert not Account.objects.fenced_update(token(4), updates={"balance": 8})
    assert "0 rows with token 4" in repr(
        Account.objects.fenced_update(token(4), updates={}, touch=True)
    )


async def test_async_twins(sqlite_alias: str) -> None:
    objects = Account.objects.using(sqlite_alias)
    row = await objects.acreate(name="a")
    rows = objects.filter(pk=row.pk)
    done = await afenced_update(rows, token(5), updates={"balance": 7})
    assert done
    done = await rows.afenced_update(token(4), updates={"balance": 8})
    assert await done.aexplain() == "stale"
