"""The tasks that are compared: bare, idempotent in three ways, and the floor.

The floor is the least that a record before and a record after can cost: a decorator by hand around
two scripts of one command each, through redis-py. It guarantees nothing.
"""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Final

import redis
from celery import Celery
from celery.backends.redis import RedisBackend

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


_BEGIN: Final = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000)"
_END: Final = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 300000)"


@lru_cache(maxsize=1)
def _scripts() -> tuple[Any, Any]:
    client = redis.Redis.from_url(app.conf.broker_url)
    return client.register_script(_BEGIN), client.register_script(_END)


@app.task(name="floor", shared=False)
def floor(key: str) -> str:
    """Do nothing, between two scripts."""
    begin, end = _scripts()
    begin((f"floor:{key}",), ("running",))
    result = key
    end((f"floor:{key}",), (result,))
    return result


@app.task(name="once", shared=False)
@idempotent_task(key="key", ttl="5m")
def once(key: str) -> str:
    """Do nothing, once."""
    return key


# Results in another database, so that they are not stored in one step with the records.
_APART: Final[Any] = RedisBackend(app=app, url=URL)
_APART.connparams["db"] = 1


@app.task(name="apart", shared=False, backend=_APART)
@idempotent_task(key="key", ttl="5m")
def apart(key: str) -> str:
    """Do nothing, once, with the result kept elsewhere."""
    return key


@app.task(name="locked", shared=False)
@idempotent_task(key="key", lock_resource=lambda key: f"till-{key}", ttl="5m")
def locked(key: str) -> str:
    """Do nothing, once, under a lock."""
    return key
