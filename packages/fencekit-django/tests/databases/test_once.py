"""Effects that happen once, in every order in which two workers can meet."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from fencekit import CanonicalizeError, IdempotencyInProgress, IdempotencyPayloadMismatch
from fencekit.django import Effect, arun_once, once, run_once
from fencekit.django.retrying import is_worth_retrying
from ledger.accounts.models import Branch
from ledger.routing import using
from ledger.stage import together


def effect(name: str = "b") -> dict[str, Any]:
    return {"branch": Branch.objects.create(name=name).name, "list": (1, 2.5, None)}


REPLAYED = {"branch": "b", "list": [1, 2.5, None]}


@pytest.mark.usefixtures("alias")
def test_the_first_run_does_it_and_the_second_replays() -> None:
    with once("branches", "b") as run:
        assert run.first
        run.result = effect()
    assert run.result == REPLAYED
    with once("branches", "b") as again:
        assert not again.first
    assert again.result == REPLAYED
    assert Branch.objects.count() == 1


@pytest.mark.usefixtures("alias")
def test_a_result_of_none_is_replayed_as_none() -> None:
    assert run_once("branches", "b", lambda: None) is None
    assert run_once("branches", "b", lambda: pytest.fail("again")) is None


@pytest.mark.usefixtures("alias")
def test_a_block_that_raises_leaves_nothing() -> None:
    with pytest.raises(KeyError), once("branches", "b"):
        effect()
        raise KeyError
    assert not Branch.objects.exists()
    assert not Effect.objects.exists()
    assert run_once("branches", "b", effect) == REPLAYED


@pytest.mark.usefixtures("alias")
def test_scopes_keys_and_their_case_are_told_apart() -> None:
    for scope, key in (("a", "bc"), ("ab", "c"), ("a", "BC"), ("a", "bc ")):
        assert run_once(scope, key, lambda: "done") == "done"
    assert Effect.objects.count() == 4


@pytest.mark.usefixtures("alias")
def test_another_payload_is_an_error_and_none_is_not_compared() -> None:
    with once("branches", "b", payload={"name": "b"}) as run:
        run.result = 1
    with once("branches", "b", payload={"name": "b"}) as run:
        assert not run.first
    with once("branches", "b") as run:
        assert not run.first
    with (
        pytest.raises(IdempotencyPayloadMismatch),
        once("branches", "b", payload={"name": "c"}),
    ):
        pytest.fail("entered")


@pytest.mark.usefixtures("alias")
def test_a_replay_that_does_the_effect_again_is_stopped() -> None:
    for _ in range(2):
        try:
            with once("branches", "b") as run:
                run.result = effect()
        except RuntimeError as error:
            assert "if run.first" in str(error)  # noqa: PT017 - it need not be raised
            break
    else:
        pytest.fail("done twice")
    assert Branch.objects.count() == 1


@pytest.mark.usefixtures("alias")
def test_a_result_that_is_no_json_rolls_the_effect_back() -> None:
    for wrong in (object(), float("nan"), {1, 2}):
        with pytest.raises((TypeError, ValueError)), once("branches", "b") as run:
            effect()
            run.result = wrong
    assert not Branch.objects.exists()


@pytest.mark.usefixtures("alias")
def test_inside_itself_it_is_in_progress() -> None:
    with once("branches", "b") as run:
        with pytest.raises(IdempotencyInProgress), once("branches", "b"):
            pytest.fail("entered")
        run.result = effect()
    assert Branch.objects.count() == 1


@pytest.mark.usefixtures("sqlite_alias")
def test_arguments_that_make_no_sense_are_refused() -> None:
    for scope, key in (("", "k"), ("s", ""), ("s" * 256, "k"), ("s", "k" * 513), ("s", "a\0b")):
        with pytest.raises(ValueError, match="characters"), once(scope, key):
            pass
    with pytest.raises(TypeError), once("s", 5):  # type: ignore[arg-type]
        pass
    with pytest.raises(CanonicalizeError), once("s", "k", payload=object()):
        pass
    with pytest.raises(TypeError, match="callable"):
        run_once("s", "k", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="retries"):
        run_once("s", "k", print, retries=-1)

    async def work() -> None: ...

    with pytest.raises(TypeError, match="async"):
        run_once("s", "k", work)


@pytest.mark.usefixtures("alias")
def test_a_broken_transaction_is_said() -> None:
    alias = Branch.objects.all().db
    with transaction.atomic(using=alias):
        transaction.set_rollback(True, using=alias)
        with pytest.raises(TransactionManagementError), once("s", "k"):
            pass


def test_it_costs_two_statements(alias: str) -> None:
    def counted(work: Any) -> int:
        with CaptureQueriesContext(connections[alias]) as captured, transaction.atomic(using=alias):
            work()
        return len(captured)

    def recorded() -> None:
        with once("branches", "b") as run:
            run.result = effect()

    savepoint = 2  # of the atomic block in the outer one, which a plain effect need not have
    assert counted(recorded) - counted(effect) <= 2 + savepoint

    def alone() -> None:
        with once("branches", "c") as run:
            run.result = effect()

    with CaptureQueriesContext(connections[alias]) as captured:
        alone()
    sqls = [q["sql"] for q in captured.captured_queries]
    assert len([sql for sql in sqls if sql not in {"BEGIN", "COMMIT", "BEGIN IMMEDIATE"}]) == 3


def test_a_second_worker_waits_and_replays(alias: str) -> None:
    """Red with a look at the table before the work, `if not Effect…exists(): effect()`."""
    entered = threading.Event()

    def first() -> Any:
        def slow() -> Any:
            entered.set()
            threading.Event().wait(0.15)
            return effect()

        return run_once("branches", "b", slow)

    def second() -> Any:
        entered.wait(10)
        return run_once("branches", "b", effect)

    assert together(alias, [first, second]) == [REPLAYED, REPLAYED]
    with using(alias):
        assert Branch.objects.count() == 1


def test_a_second_worker_takes_over_from_one_that_rolled_back(alias: str) -> None:
    entered = threading.Event()

    def first() -> Any:
        def slow() -> Any:
            effect()
            entered.set()
            threading.Event().wait(0.15)
            raise KeyError

        return run_once("branches", "b", slow)

    def second() -> Any:
        entered.wait(10)
        return run_once("branches", "b", effect)

    failed, done = together(alias, [first, second])
    assert isinstance(failed, KeyError)
    assert done == REPLAYED
    assert Branch.objects.count() == 1


def test_twelve_at_once(alias: str) -> None:
    works = [lambda: run_once("branches", "b", effect, retries=10)] * 12
    assert together(alias, works) == [REPLAYED] * 12
    assert Branch.objects.count() == 1


class Locked(OperationalError):
    """As SQLite says it."""

    def __init__(self) -> None:
        super().__init__("database is locked")


@pytest.mark.usefixtures("alias")
def test_what_can_be_repeated_is_repeated() -> None:
    calls = []

    def work() -> Any:
        calls.append(1)
        found = effect()
        if len(calls) < 3:
            raise Locked
        return found

    assert run_once("branches", "b", work) == REPLAYED
    assert len(calls) == 3
    assert Branch.objects.count() == 1


@pytest.mark.usefixtures("alias")
def test_the_last_error_is_raised() -> None:
    calls = []

    def work() -> Any:
        calls.append(1)
        raise Locked

    with pytest.raises(OperationalError):
        run_once("branches", "b", work, retries=2)
    assert len(calls) == 3


def test_what_cannot_be_repeated_is_not(alias: str) -> None:
    calls = []

    def work(error: Exception) -> Any:
        calls.append(1)
        raise error

    with pytest.raises(OperationalError):
        run_once("branches", "b", work, OperationalError("no space left"))
    assert len(calls) == 1
    # Only the owner of the outer transaction can repeat it.
    with pytest.raises(OperationalError), transaction.atomic(using=alias):
        run_once("branches", "b", work, Locked())
    assert len(calls) == 2


def test_a_transaction_begun_by_hand_is_not_repeated(alias: str) -> None:
    """Only its owner can: MySQL takes all of it back after a deadlock, not just our part."""
    calls = []

    def locked() -> None:
        calls.append(1)
        raise OperationalError("database is locked")

    transaction.set_autocommit(False, using=alias)
    try:
        with pytest.raises(OperationalError):
            run_once("transfers", "o1", locked)
    finally:
        transaction.rollback(using=alias)
        transaction.set_autocommit(True, using=alias)
    assert len(calls) == 1


def test_mariadbs_changed_record_is_repeated() -> None:
    """Its serialisation failure, since 11.6 the default under REPEATABLE READ."""
    error = OperationalError(1020, "Record has changed since last read in table 'a'")
    assert is_worth_retrying(error)


def test_deadlocks_are_repeated(row_locking_alias: str) -> None:
    """Two transactions that lock two rows in opposite orders; one is the victim."""
    rows = [Branch.objects.create(name=name) for name in ("x", "y")]
    gate = threading.Barrier(2)
    tries: list[int] = []

    def work(order: list[Branch]) -> str:
        tries.append(1)
        Branch.objects.filter(pk=order[0].pk).update(name="1")
        if len(tries) <= 2:
            gate.wait(10)
        Branch.objects.filter(pk=order[1].pk).update(name="2")
        return "done"

    works = [
        lambda: run_once("swap", "1", work, rows),
        lambda: run_once("swap", "2", work, rows[::-1]),
    ]
    assert together(row_locking_alias, works) == ["done", "done"]
    assert len(tries) > 2


async def test_async_twin(sqlite_alias: str) -> None:
    del sqlite_alias
    assert await arun_once("numbers", "1", lambda a, b: a + b, 1, b=2) == 3
    assert await arun_once("numbers", "1", lambda a, b: a + b, 5, b=5) == 3
