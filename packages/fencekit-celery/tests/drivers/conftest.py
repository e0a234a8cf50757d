"""An app whose messages a test takes by hand, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from fencekit.celery import configure
from harness.by_hand import Hand
from harness.clients import opened
from harness.workers import close_app


@pytest.fixture
def app(redis_url: str) -> Iterator[Any]:
    """Give an app; results in memory have nothing to unsubscribe from when they go."""
    app: Any = Celery("hand", broker=redis_url, backend="cache+memory://", set_as_current=False)
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)
    with opened(redis_url) as client:
        configure(app, redis=client)
        yield app
    close_app(app)


@pytest.fixture
def hand(app: Any) -> Hand:
    """Give what runs its messages."""
    return Hand(app)
