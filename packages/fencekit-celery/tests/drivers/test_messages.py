"""What becomes of single messages that a worker takes by hand, one at a time."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery

from fencekit import DistributedLock
from fencekit.celery import StillBusy, configure, idempotent_task
from harness.by_hand import Hand
from harness.clients import opened
from harness.workers import close_app

HOUR = timedelta(hours=1)
# Celery 5.6 with redis-py 8.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")


@pytest.fixture
def app(redis_url: str) -> Iterator[Any]:
    app: Any = Celery("hand", broker=redis_url, backend=redis_url, set_as_current=False)
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


def test_a_message_waits_for_a_lock_no_longer_than_it_may(
    app: Any, hand: Hand, redis_client: Any
) -> None:
    """Red where the waiting is over, and forgotten, before the lock is taken."""
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
