"""What becomes of single messages that a worker takes by hand, one at a time."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery import Task, chord
from celery.exceptions import SoftTimeLimitExceeded
from kombu import serialization
from pydantic import BaseModel, Field

from fencekit import (
    DistributedLock,
    IdempotencyGuard,
    IdempotencyInProgress,
    LockHandle,
    LockNotAcquired,
    idempotency_key,
)
from fencekit.celery import idempotent_task
from fencekit.claims import Claim
from harness.by_hand import Hand, queued

HOUR = timedelta(hours=1)
# Celery 5.6 with redis-py 8.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")


def test_a_function_that_is_handed_a_task_is_not_its_body(
    app: Any, hand: Hand, redis_client: Any
) -> None:
    """Red where whoever gets the running task has its message put off."""

    @idempotent_task(key=lambda name: name, fingerprint=None)
    def helper(task: Any, name: str) -> str:
        return f"{task.name} {name}"

    @app.task(name="plain", shared=False, bind=True)
    def plain(self: Any, name: str) -> str:
        return helper(self, name)

    with IdempotencyGuard(redis_client).begin("a", ttl=HOUR) as claim:
        busy = plain.delay("a")
        hand.step()
        claim.release()
    assert queued(redis_client) == []
    # Red where it is kept as an Exception, which is all that is known of it then.
    assert isinstance(busy.result, IdempotencyInProgress)
    assert busy.result.retry_after_ms > 0
    free = plain.delay("a")
    hand.step()
    assert free.result == "plain a"


def test_a_body_that_is_overridden_is_its_own_tasks(
    app: Any, hand: Hand, redis_client: Any
) -> None:
    """Red where only the outermost body is known: two tasks share a key, and fail while it is busy.

    They must wait instead.
    """
    runs = []

    class Paying(Task):  # type: ignore[misc]
        @idempotent_task(key="name", fingerprint=None)
        def run(self, name: str) -> Any:
            runs.append(self.name)
            return [self.name, name]

    class Charging(Paying):
        name = "charge"

        def run(self, name: str) -> Any:
            return super().run(name)

    class Refunding(Charging):
        name = "refund"

    charge, refund = app.register_task(Charging()), app.register_task(Refunding())
    guard = IdempotencyGuard(redis_client)
    with guard.begin(idempotency_key({"name": "a"}, namespace="charge"), ttl=HOUR) as claim:
        results = [charge.delay("a"), refund.delay("a")]
        hand.step()
        hand.step()
        claim.release()
    assert runs == ["refund"]
    hand.step()
    assert [result.result for result in results] == [["charge", "a"], ["refund", "a"]]


class Order(BaseModel):
    id: str
    amount: int = Field(default=1, alias="sum")


def test_a_model_of_pydantic_is_a_key_and_a_result(app: Any, hand: Hand) -> None:
    """Red where a model has no canonical form, and is not kept: the replay fails."""
    runs = []

    @app.task(name="pay", shared=False, pydantic=True, pydantic_dump_kwargs={"exclude": {"id"}})
    @idempotent_task(key="order")
    def pay(order: Order) -> Order | None:
        runs.append(order.id)
        return order

    results = []
    for _ in range(2):
        results.append(pay.delay({"id": "a", "sum": 5}))
        hand.step()
    assert [result.result for result in results] == [{"amount": 5}] * 2
    assert runs == ["a"]


def late(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step that a soft time limit ends, once."""
    left = [1]

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if left:
            left.pop()
            raise SoftTimeLimitExceeded
        return step(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("step", ["dumps", "complete_memo", "release"])
def test_a_soft_time_limit_that_comes_after_the_work_changes_nothing(
    app: Any, hand: Hand, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Red where it fails a message whose work is done, or leaves its result out."""
    runs = []

    @app.task(name="pay", shared=False)
    @idempotent_task(key="name", lock_resource=lambda name: f"till-{name}")
    def pay(name: str) -> list[str]:
        runs.append(name)
        owner: Any = {"dumps": serialization, "complete_memo": Claim, "release": LockHandle}[step]
        monkeypatch.setattr(owner, step, late(getattr(owner, step)))
        return [name]

    results = []
    for _ in range(2):
        results.append(pay.delay("a"))
        hand.step()
    assert [result.result for result in results] == [["a"]] * 2
    assert runs == ["a"]


def test_a_soft_time_limit_that_comes_after_the_body_failed_leaves_its_error(
    app: Any, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red where the attempt counts as running until its lease is over."""

    @app.task(name="pay", shared=False)
    @idempotent_task(key="name")
    def pay(name: str) -> None:
        monkeypatch.setattr(Claim, "fail", late(Claim.fail))
        raise ValueError(name)

    results = []
    for _ in range(2):
        results.append(pay.delay("a"))
        hand.step()
    assert [type(result.result) for result in results] == [ValueError] * 2


def test_a_chord_that_is_over_stays_so_when_a_message_of_its_header_comes_again(
    app: Any, hand: Hand, redis_client: Any
) -> None:
    """Red where a backend that counts, and forgets, counts it again: the body has failed, it says.

    This is one, which Redis is not.
    """
    errors = []

    @app.task(name="once", shared=False)
    @idempotent_task(key="name")
    def once(name: str) -> str:
        return name

    @app.task(name="body", shared=False)
    def body(names: list[str]) -> list[str]:
        return names

    @app.task(name="errback", shared=False)
    def errback(*_: Any) -> None:
        errors.append(1)

    result = chord([once.s("a"), once.s("b")])(body.s().on_error(errback.s()))
    headers = [hand.take(), hand.take()]
    for message in headers:
        hand.run(message)
    hand.step()
    assert sorted(result.result) == ["a", "b"]
    for key in redis_client.keys("*:idem"):
        redis_client.hdel(key, "published")  # as if its worker had died before it said so
    for message in headers:
        hand.run(message, redelivered=True)
    assert hand.step() is None
    assert errors == []
    assert sorted(result.result) == ["a", "b"]
    assert hand.ends == ["acknowledged"] * 5


@pytest.mark.parametrize(("fingerprint", "end"), [("name", 2), ("args", "TaskPayloadMismatch")])
def test_a_retry_with_other_arguments_needs_a_fingerprint_without_them(
    app: Any, hand: Hand, fingerprint: str, end: Any
) -> None:
    @app.task(name="pay", shared=False, bind=True)
    @idempotent_task(key="name", fingerprint=fingerprint)
    def pay(self: Any, name: str, tries: int = 0) -> int:
        if tries < 2:
            raise self.retry(args=(name, tries + 1), countdown=0)
        return tries

    result = pay.delay("a")
    while hand.step() is not None:
        pass
    assert (result.result if isinstance(end, int) else type(result.result).__name__) == end


@pytest.mark.parametrize("key", ["name", ["name", "amount"]])
def test_a_retry_is_run_by_a_release_that_knows_another_parameter(
    app: Any, hand: Hand, key: Any
) -> None:
    """Red where defaults are compared: the retry fails, as one that was used otherwise before."""

    @app.task(name="pay", shared=False, bind=True)
    @idempotent_task(key=key)
    def pay(self: Any, name: str, amount: int) -> Any:
        raise self.retry(countdown=0, args=(name, amount))

    result = pay.delay("a", 5)
    hand.step()
    del app.tasks["pay"]

    @app.task(name="pay", shared=False)
    @idempotent_task(key=key)
    def newer(name: str, amount: int, note: str = "", *rest: int, **more: int) -> Any:
        return [name, amount, note, len(rest), len(more)]

    hand.step()
    assert result.result == ["a", 5, "", 0, 0]


def test_a_lock_that_a_direct_call_finds_taken_is_told_as_what_it_is(
    app: Any, hand: Hand, redis_client: Any
) -> None:
    """Red where it is kept as an Exception, which is all that is known of it then."""

    @app.task(name="pay", shared=False)
    @idempotent_task(key="name", lock_resource=lambda: "till")
    def pay(name: str) -> str:
        return name

    @app.task(name="outer", shared=False)
    def outer() -> Any:
        return pay("a")

    with DistributedLock(redis_client).hold("till", ttl=HOUR):
        result = outer.delay()
        hand.step()
    assert isinstance(result.result, LockNotAcquired)
    assert result.result.resource == "till"
