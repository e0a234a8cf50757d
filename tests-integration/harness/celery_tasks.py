"""The tasks that real workers run in tests; what they did is counted in lists of their own.

A task's ``steps`` say what its body does, one word or a word and its argument each:

``sleep S``, ``raise NAME``, ``retry N`` (itself, until it has run N times), ``die N`` (kill its
process, the first N times), ``ignore``, ``reject``, ``open`` (return an open file), ``decimal``
(return a Decimal). The results
``attempt`` and ``which`` stand for what attempt, and which run, it was.
"""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from decimal import Decimal
from typing import Any

import redis
from celery import Celery, signals, states
from celery.backends.redis import RedisBackend
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from fencekit import DistributedLock, IdempotencyGuard, LockHandle
from fencekit.celery import current_claim, idempotent_task, unique_task
from harness.celery_naive import URL, effects, leased, naive, pause_when_told, retrying

STORE = os.environ.get("FENCEKIT_TEST_STORE", URL)
VISIBILITY = float(os.environ.get("FENCEKIT_TEST_VISIBILITY", "3600"))

# Celery has no types.
app: Any = Celery("tasks", broker=URL, backend=URL)
app.conf.update(
    fencekit_redis_url=STORE,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": VISIBILITY,
        # Without these two no redelivery is ever seen in a test's time.
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
    result_backend_transport_options={"visibility_timeout": VISIBILITY},
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_deduplicate_successful_tasks=False,
)


class Declined(Exception):
    """An error after which trying again is no use."""


def work(task: Any, key: str, steps: list[list[Any]], result: Any) -> Any:
    """Do what the steps say, then have the effect."""
    client = effects()
    runs = client.rpush(f"runs:{key}", str(task.request.id))
    running = client.incr(f"running:{key}")
    client.set(f"most:{key}", max(running, int(client.get(f"most:{key}") or 0)))
    try:
        for step in steps:
            result = _take(task, step, runs, result)
    finally:
        client.decr(f"running:{key}")
    client.rpush(f"effects:{key}", str(task.request.id))
    if result == "attempt":
        claim = current_claim()
        return [claim.attempt, claim.reclaimed, threading.current_thread().name]
    return runs if result == "which" else result


def _take(task: Any, step: list[Any], runs: int, result: Any) -> Any:
    word = step[0]
    argument: Any = step[1] if len(step) > 1 else None
    if word == "sleep":
        until = time.monotonic() + float(argument)
        while time.monotonic() < until:
            time.sleep(0.02)
    elif word == "raise":
        raise {"ValueError": ValueError, "Declined": Declined}[str(argument)](str(step))
    elif word == "fail" and runs <= int(argument):
        raise ValueError(str(step))
    elif word == "retry" and runs < int(argument):
        raise task.retry(countdown=0)
    elif word == "die" and runs <= int(argument):
        effects().decr(f"running:{task.request.args[0]}")
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "ignore":
        raise Ignore
    elif word == "reject":
        raise Reject("no", requeue=False)
    elif word == "catch":
        try:
            time.sleep(10)
        except SoftTimeLimitExceeded:
            effects().rpush(f"caught:{task.request.args[0]}", 1)
            raise
    elif word == "open":
        return open(os.devnull)  # noqa: PTH123 - what cannot be serialised
    elif word == "decimal":
        return Decimal("9.50")
    return result


@app.task(bind=True, shared=False, name="plain")
def plain(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Nothing protects it."""
    return work(self, key, list(steps), result)


guard = IdempotencyGuard(redis.Redis.from_url(URL))


@app.task(bind=True, shared=False, name="guarded")
def guarded(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Its work is a guard's, which keeps results as JSON."""
    ttl = timedelta(minutes=5)
    return guard.run(f"guarded:{key}", lambda: work(self, key, list(steps), result), ttl=ttl)


@app.task(bind=True, shared=False, name="guessed")
@naive
def guessed(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """The naive decorator."""
    return work(self, key, list(steps), result)


@app.task(bind=True, shared=False, name="leased")
@leased
def leased_once(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """A lease and a record, not quite right."""
    return work(self, key, list(steps), result)


@app.task(bind=True, shared=False, name="retrying", max_retries=2)
@retrying
def retrying_once(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Spends its retries on waiting."""
    return work(self, key, list(steps), result)


@app.task(bind=True, shared=False, name="once")
@idempotent_task(key="key", fingerprint="result", lease="1s", ttl="5m", terminal_for=(Declined,))
def once(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """The ordinary case."""
    return work(self, key, list(steps), result)


@app.task(
    bind=True,
    shared=False,
    name="auto",
    autoretry_for=(Exception,),
    max_retries=5,
    default_retry_delay=0,
)
@idempotent_task(key="key", lease="1s", ttl="5m", busy_timeout="1s", max_attempts=3)
def auto(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Retried for everything, and capped."""
    return work(self, key, list(steps), result)


@app.task(
    bind=True, shared=False, name="autoplain", autoretry_for=(Exception,), default_retry_delay=0
)
@naive
def autoplain(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Retried for everything, under the naive decorator."""
    return work(self, key, list(steps), result)


@app.task(bind=True, shared=False, name="patient", max_retries=2, default_retry_delay=0)
@idempotent_task(key="key", lease="1s", ttl="5m")
def patient(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Has few retries to spend."""
    return work(self, key, list(steps), result)


@app.task(bind=True, shared=False, name="capped")
@idempotent_task(key="key", lease="1s", ttl="5m", max_attempts=3)
def capped(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Three attempts in all."""
    return work(self, key, list(steps), result)


@app.task(bind=True, shared=False, name="dropped")
@idempotent_task(key="key", lease="1s", ttl="5m", retry_on_in_progress=False, on_done="ignore")
def dropped(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Copies are dropped."""
    return work(self, key, list(steps), result)


@app.task(bind=True, shared=False, name="locked")
@idempotent_task(key="key", lock_resource=lambda key: f"till-{key[:5]}", lease="1s", ttl="5m")
def locked(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Holds a lock that is coarser than its key."""
    return work(self, key, list(steps), result)


class SlowLock(DistributedLock):
    """Pauses before it is taken, once, where a test has asked for it."""

    def acquire(self, resource: str, **options: Any) -> LockHandle:
        """Take it."""
        pause_when_told(resource)
        return super().acquire(resource, **options)


@app.task(bind=True, shared=False, name="paused")
@idempotent_task(
    lock=SlowLock(redis.Redis.from_url(URL)),
    key="key",
    lock_resource=lambda key: key,
    lease="1s",
    ttl="5m",
)
def paused(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Holds a lock that it takes late."""
    return work(self, key, list(steps), result)


@app.task(bind=True, shared=False, name="unique")
@unique_task(key="key")
@idempotent_task(key="key", lease="1s", ttl="5m")
def unique(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Is sent once while it is on its way."""
    return work(self, key, list(steps), result)


@app.task(bind=True, shared=False, name="limited", soft_time_limit=1, time_limit=2)
@idempotent_task(key="key", lease="1s", ttl="5m", terminal_for=(Exception,))
def limited(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Has time limits."""
    return work(self, key, list(steps), result)


@app.task(bind=True, shared=False, name="brief", time_limit=1)
@idempotent_task(key="key", lease="1s", ttl="5m", fingerprint="result")
def brief(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
    """Has a hard time limit."""
    return work(self, key, list(steps), result)


@app.task(shared=False, name="collect")
def collect(results: Any, key: str) -> Any:
    """The body of a chord, or a step of a chain: keeps what it was given."""
    effects().rpush(f"collected:{key}", repr(results))
    return results


@app.task(shared=False, name="errback")
def errback(*_: Any, key: str) -> None:
    """Counts failures."""
    effects().rpush(f"errors:{key}", 1)


def die_when_told(sender: Any, **_: Any) -> None:
    """Kill the worker, its pool included, right after the result was published, once."""
    args = sender.request.args
    if args and effects().delete(f"die-after-success:{args[0]}"):
        os.killpg(os.getpgrp(), signal.SIGKILL)


signals.task_success.connect(die_when_told)


def publish_slowly(sender: Any, body: Any, **_: Any) -> None:
    """Take long to send the next step of a chain, once."""
    if sender == "collect" and effects().delete(f"slow-publish:{body[0][-1]}"):
        time.sleep(2.5)


signals.before_task_publish.connect(publish_slowly)


_set_with_state = RedisBackend._set_with_state


def set_slowly(self: Any, key: Any, value: Any, state: str) -> Any:
    """Take long to write the state RETRY, once, having seen that there is no result yet."""
    if state == states.RETRY and effects().delete("slow-retry"):
        time.sleep(2)
    return _set_with_state(self, key, value, state)


# Not a backend of our own: its results would not be stored together with their records.
RedisBackend._set_with_state = set_slowly
