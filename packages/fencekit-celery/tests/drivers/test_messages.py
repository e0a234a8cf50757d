"""What becomes of single messages that a worker takes by hand, one at a time."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest
from celery import Celery, Task, chain, chord
from celery.exceptions import SoftTimeLimitExceeded
from kombu import common, entity, serialization
from pydantic import BaseModel, Field

from fencekit import (
    DistributedLock,
    IdempotencyGuard,
    IdempotencyInProgress,
    LockHandle,
    LockNotAcquired,
    idempotency_key,
)
from fencekit.celery import StillBusy, configure, idempotent_task, unique_task
from fencekit.claims import Claim
from harness.by_hand import Hand
from harness.clients import opened
from harness.workers import close_app

_common: Any = common  # without types
_entity: Any = entity
HOUR = timedelta(hours=1)
# Celery 5.6 with redis-py 8.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")


@pytest.fixture
def app(redis_url: str) -> Iterator[Any]:
    # Results in memory have nothing to unsubscribe from when they go.
    app: Any = Celery("hand", broker=redis_url, backend="cache+memory://", set_as_current=False)
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)
    with opened(redis_url) as client:
        configure(app, redis=client)
        yield app
    close_app(app)


@pytest.fixture
def hand(app: Any) -> Hand:
    return Hand(app)


def queued(client: Any) -> list[Any]:
    """The messages that wait, their headers."""
    return [json.loads(raw)["headers"] for raw in client.lrange("celery", 0, -1)]


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


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_message_waits_for_a_lock_no_longer_than_it_may(
    app: Any, hand: Hand, redis_client: Any, protocol: int
) -> None:
    """Red where the waiting is over, and forgotten, before the lock is taken.

    And where it is forgotten that the older protocol has its headers elsewhere.
    """
    app.conf.task_protocol = protocol
    runs = []

    @app.task(name="pay", shared=False)
    @idempotent_task(
        key="name", lock_resource=lambda name: f"till-{name}", lease="1s", busy_timeout="1s"
    )
    def pay(name: str) -> None:
        runs.append(name)

    result = pay.delay("a")
    pauses: list[str] = []
    with DistributedLock(redis_client).hold("till-a", ttl=HOUR):
        while hand.step() is not None and len(pauses) < 10:
            pauses += [headers["fencekit_deferred"] for headers in queued(redis_client)]
    assert isinstance(result.result, StillBusy)
    assert result.result.waited_ms >= 1000
    assert [pause.partition(":")[0] for pause in pauses] == [
        str(at) for at in range(1, len(pauses) + 1)
    ]
    assert runs == []


def test_what_a_message_shows_of_its_arguments_stays_what_its_sender_said(
    app: Any, hand: Hand, redis_client: Any
) -> None:
    """Red where a message is described anew: a secret is in logs and events when it comes back."""

    @app.task(name="pay", shared=False)
    @idempotent_task(key=lambda name: name, fingerprint=None)
    def pay(name: str, card: str) -> None: ...

    with IdempotencyGuard(redis_client).begin("a", ttl=HOUR) as claim:
        pay.apply_async(("a", "4242"), argsrepr="('a', ***)", kwargsrepr="{none}")
        hand.step()
        claim.release()
    (headers,) = queued(redis_client)
    assert headers["fencekit_deferred"]
    assert (headers["argsrepr"], headers["kwargsrepr"]) == ("('a', ***)", "{none}")


class Colour(str, Enum):
    RED = "red"


@pytest.mark.parametrize("accepted", [{"json", "pickle"}, ["application/json", "pickle"]])
@pytest.mark.parametrize("value", [{1: (2, 3)}, Colour.RED, Colour, "text"])
def test_a_message_in_another_encoding_comes_back_with_the_same_arguments(
    app: Any, hand: Hand, redis_client: Any, value: Any, accepted: Any
) -> None:
    """Red where the task's own encoding is taken as long as it does not fail."""
    app.conf.accept_content = accepted
    seen = []

    @app.task(name="pay", shared=False)
    @idempotent_task(key=lambda name: name, fingerprint=None)
    def pay(name: str, value: Any) -> None:
        seen.append(value if name else None)

    with IdempotencyGuard(redis_client).begin("a", ttl=HOUR) as claim:
        pay.apply_async(("a", value), serializer="pickle")
        hand.step()
        claim.release()
    hand.step()
    assert hand.ends == ["acknowledged"] * 2
    assert seen == [value]
    assert type(seen[0]) is type(value)


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


@pytest.mark.parametrize("who", ["its own copy", "another message"])
def test_a_broadcast_is_neither_lost_nor_multiplied(
    app: Any, hand: Hand, redis_client: Any, who: str
) -> None:
    """Red where a copy is put off as it has come: RabbitMQ gives one to each worker, Redis none."""
    app.conf.task_queues = (_entity.Queue("celery"), _common.Broadcast("to-all"))

    @app.task(name="reload", shared=False)
    @idempotent_task(key=lambda name: name, fingerprint=None)
    def reload_cache(name: str) -> str:
        return name

    sent = reload_cache.apply_async(("a",), queue="celery")
    message = hand.take()
    message.delivery_info.update(exchange="to-all", routing_key="celery")
    task_id = sent.id if who == "its own copy" else "other"
    with IdempotencyGuard(redis_client).begin("a", ttl=HOUR, task_id=task_id) as claim:
        hand.run(message)
        claim.release()
    assert len(queued(redis_client)) == (0 if who == "its own copy" else 1)
    assert hand.ends == ["acknowledged"]


@pytest.mark.parametrize("bound", ["once", "twice"])
def test_a_message_that_came_through_a_topic_goes_back_to_its_queue(
    app: Any, hand: Hand, redis_client: Any, bound: str
) -> None:
    """Red where the exchange is not declared on the connection by which it is put off: it is lost.

    By which it is sent, as in another process, it was.
    """
    topic = _entity.Exchange("orders", type="topic")
    orders = _entity.Queue("orders", topic, routing_key="order.#")
    if bound == "twice":
        keys = ("order.#", "refund.#")
        orders = _entity.Queue("orders", [_entity.binding(topic, key) for key in keys])
    app.conf.task_queues = (_entity.Queue("celery"), orders)

    @app.task(name="pay", shared=False)
    @idempotent_task(key=lambda name: name, fingerprint=None)
    def pay(name: str) -> str:
        return name

    with app.connection_for_write() as connection:
        result = pay.apply_async(
            ("a",), queue="orders", routing_key="order.paid", connection=connection
        )
    message = hand.take("orders")
    message.delivery_info.update(exchange="orders", routing_key="order.paid")
    with IdempotencyGuard(redis_client).begin("a", ttl=HOUR) as claim:
        hand.run(message)
        claim.release()
    hand.step("orders")
    assert result.result == "a"


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
