"""PostgreSQL itself refuses a fence that goes down, whoever writes.

Red once each with the trigger taken off: `test_without_the_trigger_…`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, migrations, models, transaction
from django.db.migrations.state import ProjectState
from django.db.models.signals import pre_save
from django.test import Client

from fencekit import FencedOutError, FenceToken
from fencekit.django import (
    AddFenceTrigger,
    FenceTokenField,
    RemoveFenceTrigger,
    UnfencedWrite,
    fenced_atomic,
    fenced_update,
)
from ledger.accounts.models import Account
from ledger.curios.models import Strict
from ledger.stage import together

pytestmark = pytest.mark.usefixtures("postgres_alias")


def token(value: int) -> FenceToken:
    return FenceToken(value, resource="r")


def stale_account() -> Account:
    """Read a row, and have somebody with token 9 write it afterwards."""
    row: Account = Account.objects.create(name="a", fence_token=5)
    row.refresh_from_db()
    assert fenced_update(Account.objects.all(), token(9), updates={"balance": 9})
    row.balance = 1
    return row


def by_raw_sql(row: Account) -> None:
    with connections["postgres"].cursor() as cursor:
        cursor.execute(
            "UPDATE accounts_account SET balance = 1, fence_token = 5 WHERE id = %s", [row.pk]
        )


def by_executemany(row: Account) -> None:
    with connections["postgres"].cursor() as cursor:
        cursor.executemany(
            "UPDATE accounts_account SET balance = 1, fence_token = 5 WHERE id = %s", [[row.pk]]
        )


def by_upsert(row: Account) -> None:
    Account.objects.bulk_create(
        [row], update_conflicts=True, unique_fields=["id"], update_fields=["fence_token"]
    )


WAYS: dict[str, Callable[[Account], Any]] = {
    "save": lambda row: row.save(),
    "bulk_update": lambda row: Account.objects.bulk_update([row], ["balance", "fence_token"]),
    "update": lambda row: Account.objects.filter(pk=row.pk).update(fence_token=row.fence_token),
    "update_or_create": lambda row: Account.objects.update_or_create(
        pk=row.pk, defaults={"balance": 1, "fence_token": 5}
    ),
    "upsert": by_upsert,
    "raw SQL": by_raw_sql,
    "executemany": by_executemany,
}


@pytest.mark.parametrize("way", WAYS)
def test_concurrency_django_concurrency_36(way: str) -> None:
    row = stale_account()
    with pytest.raises(FencedOutError) as caught, transaction.atomic(using="postgres"):
        WAYS[way](row)
    error = caught.value
    assert (error.resource, error.token, error.current) == ("accounts_account", 5, 9)
    row.refresh_from_db()
    assert (row.balance, row.fence_token) == (9, 9)


@pytest.fixture
def without_triggers(postgres_alias: str) -> Iterator[None]:
    del postgres_alias
    with connections["postgres"].cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_account DISABLE TRIGGER USER")
        cursor.execute("ALTER TABLE curios_strict DISABLE TRIGGER USER")
    yield
    with connections["postgres"].cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_account ENABLE TRIGGER USER")
        cursor.execute("ALTER TABLE curios_strict ENABLE TRIGGER USER")


@pytest.mark.usefixtures("without_triggers")
@pytest.mark.parametrize("way", WAYS)
def test_without_the_trigger_the_stale_write_wins(way: str) -> None:
    row = stale_account()
    WAYS[way](row)
    row.refresh_from_db()
    assert row.fence_token == 5


def test_the_admins_form_is_refused() -> None:
    """Between the admin's reading the row and its saving it, somebody newer writes."""
    row = Account.objects.create(name="a", fence_token=5)
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))

    def newer(**_: object) -> None:
        rows = Account.objects.all()
        works = [lambda: fenced_update(rows, token(9), updates={"balance": 9}).rows]
        assert together("postgres", works) == [1]

    pre_save.connect(newer, sender=Account)
    try:
        with pytest.raises(FencedOutError):
            client.post(f"/admin/accounts/account/{row.pk}/change/", {"name": "b", "balance": "1"})
    finally:
        pre_save.disconnect(newer, sender=Account)
    row.refresh_from_db()
    assert (row.name, row.balance, row.fence_token) == ("a", 9, 9)


def test_a_write_that_leaves_the_fence_out_passes() -> None:
    row = stale_account()
    row.save(update_fields=["balance"])
    row.refresh_from_db()
    assert (row.balance, row.fence_token) == (1, 9)


class TestStrict:
    def test_a_write_that_leaves_the_fence_out_is_refused(self) -> None:
        row = Strict.objects.create()
        ways: tuple[Callable[[], Any], ...] = (
            lambda: row.save(update_fields=["value"]),
            lambda: Strict.objects.update(value=1),
            lambda: Strict.objects.bulk_update([row], ["value"]),
        )
        for way in ways:
            with pytest.raises(UnfencedWrite) as caught, transaction.atomic(using="postgres"):
                way()
            assert "fenced_atomic" in str(caught.value)
            assert caught.value.current == 0

    def test_a_fenced_update_passes_and_repeats(self) -> None:
        Strict.objects.create()
        for value in (1, 2):
            assert fenced_update(Strict.objects.all(), token(5), updates={"value": value})
        assert not fenced_update(Strict.objects.all(), token(4), updates={"value": 3})

    def test_a_fenced_update_opens_no_door_for_what_follows(self) -> None:
        Strict.objects.create()
        for value in (5, 5, 6):
            with pytest.raises(UnfencedWrite), transaction.atomic(using="postgres"):
                assert fenced_update(Strict.objects.all(), token(value), updates={"value": 1})
                Strict.objects.update(value=2)

    def test_inside_fenced_atomic_a_write_passes(self) -> None:
        row = Strict.objects.create(fence_token=5)
        with fenced_atomic(token(9)):
            row.value = 1
            row.save(update_fields=["value"])
            Strict.objects.update(value=2)
        row.refresh_from_db()
        assert row.value == 2

    def test_inside_fenced_atomic_with_an_older_token_it_does_not(self) -> None:
        Strict.objects.create(fence_token=9)
        with pytest.raises(FencedOutError) as caught, fenced_atomic(token(5)):
            Strict.objects.update(value=1)
        assert (caught.value.token, caught.value.current) == (5, 9)

    def test_after_the_block_the_ordinary_rule_holds_again(self) -> None:
        row = Strict.objects.create()
        with pytest.raises(UnfencedWrite), transaction.atomic(using="postgres"):
            with fenced_atomic(token(9)):
                Strict.objects.update(value=1)
            row.save(update_fields=["value"])
        with pytest.raises(UnfencedWrite):
            row.save(update_fields=["value"])

    def test_after_a_block_that_was_rolled_back(self) -> None:
        row = Strict.objects.create()
        with pytest.raises(UnfencedWrite), transaction.atomic(using="postgres"):
            with pytest.raises(KeyError), fenced_atomic(token(9)):
                raise KeyError
            row.save(update_fields=["value"])

    def test_an_inner_block_gives_the_outer_token_back(self) -> None:
        Strict.objects.create(fence_token=5)
        with fenced_atomic(token(9)):
            inner = fenced_atomic(FenceToken(3, resource="other"))
            with inner, pytest.raises(FencedOutError), transaction.atomic(using="postgres"):
                Strict.objects.update(value=1)
            Strict.objects.update(value=2)
        assert Strict.objects.get().value == 2

    @pytest.mark.usefixtures("without_triggers")
    def test_without_the_trigger_every_write_wins(self) -> None:
        Strict.objects.create(fence_token=9)
        assert Strict.objects.update(value=1) == 1


def test_other_errors_are_left_alone() -> None:
    from django.db import IntegrityError, ProgrammingError  # noqa: PLC0415 - only this test needs it

    row = Account.objects.create(name="a")
    with pytest.raises(IntegrityError):
        Account.objects.create(pk=row.pk, name="b")
    with pytest.raises(ProgrammingError), connections["postgres"].cursor() as cursor:
        cursor.execute("SELECT no_such")


def test_a_connection_opened_inside_an_execute_wrapper_translates() -> None:
    connection = connections["postgres"]
    row = stale_account()
    connection.close()
    del connection.execute_wrappers[:]
    with connection.execute_wrapper(lambda execute, *args: execute(*args)):
        row.refresh_from_db()
    assert len(connection.execute_wrappers) == 1
    test_concurrency_django_concurrency_36("save")


class TestOperation:
    """The operation on a table of its own, forward and back."""

    @pytest.fixture
    def state(self) -> Iterator[ProjectState]:
        state = ProjectState()
        operation = migrations.CreateModel(
            "Thing",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("fence_token", FenceTokenField(db_column="The Fence's")),
                ("narrow", models.IntegerField(default=0)),
            ],
        )
        self.forwards(operation, state)
        yield state
        with connections["postgres"].cursor() as cursor:
            cursor.execute("DROP TABLE things_thing")

    def forwards(self, operation: Any, state: ProjectState) -> ProjectState:
        before = state.clone()
        operation.state_forwards("things", state)
        with connections["postgres"].schema_editor() as editor:
            operation.database_forwards("things", editor, before, state)
        return before

    def backwards(self, operation: Any, state: ProjectState, before: ProjectState) -> None:
        with connections["postgres"].schema_editor() as editor:
            operation.database_backwards("things", editor, state, before)

    def triggers(self) -> list[str]:
        with connections["postgres"].cursor() as cursor:
            cursor.execute(
                "SELECT tgname FROM pg_trigger WHERE tgrelid = 'things_thing'::regclass ORDER BY 1"
            )
            return [name for (name,) in cursor.fetchall()]

    def test_forward_and_back(self, state: ProjectState) -> None:
        operation = AddFenceTrigger("Thing")
        before = self.forwards(operation, state)
        assert self.triggers() == ["fencekit_2_refuse"]
        model = state.apps.get_model("things", "Thing")
        row = model.objects.using("postgres").create(fence_token=9)
        row.fence_token = 5
        with pytest.raises(FencedOutError) as caught:
            row.save(using="postgres")
        assert (caught.value.token, caught.value.current) == (5, 9)
        self.backwards(operation, state, before)
        assert self.triggers() == []
        row.save(using="postgres")

    def test_a_renamed_column_stays_guarded(self, state: ProjectState) -> None:
        self.forwards(AddFenceTrigger("Thing"), state)
        with connections["postgres"].cursor() as cursor:
            cursor.execute('ALTER TABLE things_thing RENAME COLUMN "The Fence\'s" TO guard')
            cursor.execute("INSERT INTO things_thing (guard, narrow) VALUES (9, 0)")
        with pytest.raises(FencedOutError), connections["postgres"].cursor() as cursor:
            cursor.execute("UPDATE things_thing SET guard = 5")

    def test_what_was_replaced_is_put_back(self, state: ProjectState) -> None:
        self.forwards(AddFenceTrigger("Thing"), state)
        stricter = AddFenceTrigger("Thing", strict=True)
        before = self.forwards(stricter, state)
        assert len(self.triggers()) == 3
        self.backwards(stricter, state, before)
        assert self.triggers() == ["fencekit_2_refuse"]
        state = before
        remove = RemoveFenceTrigger("Thing")
        before = self.forwards(remove, state)
        assert self.triggers() == []
        self.backwards(remove, state, before)
        assert self.triggers() == ["fencekit_2_refuse"]

    def test_what_was_replaced_is_put_back_under_a_new_name(self, state: ProjectState) -> None:
        self.forwards(AddFenceTrigger("Thing", strict=True), state)
        self.forwards(migrations.RenameField("Thing", "fence_token", "guard"), state)
        again = AddFenceTrigger("Thing", strict=True, fence_field="guard")
        before = self.forwards(again, state)
        self.backwards(again, state, before)
        assert len(self.triggers()) == 3

    def test_functions_go_with_the_last_trigger(self) -> None:
        def functions() -> int:
            with connections["postgres"].cursor() as cursor:
                cursor.execute("SELECT count(*) FROM pg_proc WHERE proname LIKE 'fencekit%'")
                return int(cursor.fetchone()[0])

        assert functions() == 3
        call_command("migrate", "accounts", "0001", database="postgres", verbosity=0)
        assert functions() == 3
        call_command("migrate", "curios", "0001", database="postgres", verbosity=0)
        assert functions() == 0
        call_command("migrate", database="postgres", verbosity=0)
        assert functions() == 3

    def test_what_is_no_fence_is_refused(self, state: ProjectState) -> None:
        for field in ("narrow", "no_such"):
            with pytest.raises(ValueError, match="AddFenceTrigger"):
                AddFenceTrigger("Thing", fence_field=field).state_forwards("things", state)
        with pytest.raises(LookupError):
            AddFenceTrigger("NoSuch").state_forwards("things", state)
        with pytest.raises(TypeError):
            AddFenceTrigger(Account)  # type: ignore[arg-type]

    def test_descriptions(self) -> None:
        operation = AddFenceTrigger("Thing", strict=True)
        assert operation.describe() == "Add a strict fence trigger to Thing"
        assert operation.migration_name_fragment == "thing_fence_trigger"
        assert operation.deconstruct() == ("AddFenceTrigger", ("Thing",), {"strict": True})
        assert operation.references_model("thing", "things")
        assert RemoveFenceTrigger("Thing").describe() == "Remove the fence trigger of Thing"
