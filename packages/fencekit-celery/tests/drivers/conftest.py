"""An app whose messages a test takes by hand, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.backends.redis import RedisBackend

from fencekit.celery import configure
from harness.by_hand import Hand
from harness.clients import opened
from harness.workers import close_app


@pytest.fixture
def results() -> str:
    """Say where results are; those in memory have nothing to unsubscribe from when they go."""
    return "cache+memory://"


@pytest.fixture
def app(redis_url: str, results: str) -> Iterator[Any]:
    """Give an app."""
    app: Any = Celery("hand", broker=redis_url, backend=results, set_as_current=False)
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)
    with opened(redis_url) as client:
        configure(app, redis=client)
        yield app
    close_app(app)


@pytest.fixture
def hand(app: Any) -> Hand:
    """Give what runs its messages."""
    return Hand(app)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tell of which messages Celery has stored a state by itself."""
    written: list[str] = []
    plain = RedisBackend.store_result

    def store_result(self: Any, task_id: str, *args: Any, **kwargs: Any) -> Any:
        written.append(task_id)
        return plain(self, task_id, *args, **kwargs)

    monkeypatch.setattr(RedisBackend, "store_result", store_result)
    return written
