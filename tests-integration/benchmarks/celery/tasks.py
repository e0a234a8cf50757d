"""The tasks that are compared: bare, idempotent, and with a lock besides."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from fencekit.celery import idempotent_task

URL = os.environ.get("FENCEKIT_TEST_URL", "redis://localhost:6379/0")

app: Any = Celery("bench", broker=URL, backend=URL)
app.conf.update(
    fencekit_redis_url=URL,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_connection_retry_on_startup=True,
)


@app.task(name="bare", shared=False)
def bare(key: str) -> str:
    """Do nothing."""
    return key


@app.task(name="once", shared=False)
@idempotent_task(key="key", ttl="5m")
def once(key: str) -> str:
    """Do nothing, once."""
    return key


@app.task(name="locked", shared=False)
@idempotent_task(key="key", lock_resource=lambda key: f"till-{key}", ttl="5m")
def locked(key: str) -> str:
    """Do nothing, once, under a lock."""
    return key
