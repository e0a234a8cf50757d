"""A message that is put off comes back as it was, to where it was."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

import pytest
from kombu import common, entity

from fencekit import (
    DistributedLock,
    IdempotencyGuard,
)
from fencekit.celery import StillBusy, idempotent_task
from harness.by_hand import Hand, queued

_common: Any = common  # without types
_entity: Any = entity
HOUR = timedelta(hours=1)
# Celery 5.6 with redis-py 8.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")


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
