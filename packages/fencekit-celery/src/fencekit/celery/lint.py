"""What a worker says at its start about settings that void the guarantee.

A worker that has an idempotent task without a place for its records does not start. One whose
Redis is down does: its messages are put off until it is back.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from celery import Celery, Task, signals
from fencekit.celery.errors import NotConfigured
from fencekit.celery.execution import Execution, execution_in, execution_of
from fencekit.celery.stores import store_of

__all__ = ["complaints"]

_log = logging.getLogger("fencekit.celery")

# What kombu's transports for Redis and SQS use where nothing is set, seconds.
_VISIBILITY: Final = {"redis": 3600.0, "rediss": 3600.0, "sentinel": 3600.0, "sqs": 1800.0}
# Far beyond any visibility timeout.
_MOST_DOUBLINGS: Final = 40


def complaints(app: Celery) -> Iterator[str]:
    """What is wrong with the settings of an app's idempotent tasks, a sentence each.

    Raises:
        NotConfigured: a task has no place for its records.
        TypeError, ValueError: the place that the app names is none.
    """
    visibility = _visibility_timeout(app)
    for name, task in sorted(app.tasks.items()):
        execution = execution_of(task)
        if execution is None:
            if _is_hidden(task):
                yield (
                    f"{name}: a decorator above @idempotent_task hides it, so no message waits for "
                    "another: have that decorator use functools.wraps"
                )
            continue
        if execution.guard is None or (execution.locks and execution.lock is None):
            store_of(app, name)
        yield from _about_task(task, execution, visibility)


def _is_hidden(task: Task) -> bool:
    """Whether the function of a task has one in it that is an idempotent task's."""
    function = getattr(task.run, "__func__", task.run)
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # it is empty
            inner = cell.cell_contents
            if inspect.isfunction(inner) and execution_in(inner) is not None:
                return True
    return False


def _about_task(task: Task, execution: Execution, visibility: float | None) -> Iterator[str]:
    if not task.acks_late:
        yield (
            f"{task.name}: acks_late is off, so a worker that dies takes its message with it: set "
            "acks_late=True on the task, or task_acks_late = True"
        )
    if not task.reject_on_worker_lost:
        yield (
            f"{task.name}: reject_on_worker_lost is off, so a message whose pool process dies is "
            "marked as failed and not run again: set reject_on_worker_lost=True on the task, or "
            "task_reject_on_worker_lost = True"
        )
    if visibility is None:
        return
    limit = timedelta(seconds=visibility)
    if execution.terms.lease >= limit:
        yield (
            f"{task.name}: its lease ({execution.terms.lease}) is not below the visibility timeout "
            f"({limit}), so the redelivery after a lost worker only comes to wait: set a shorter "
            "lease=, or a longer visibility_timeout in broker_transport_options"
        )
    delay = _longest_delay(task)
    if delay >= visibility:
        yield (
            f"{task.name}: its retries wait up to {timedelta(seconds=delay)}, which is not below "
            f"the visibility timeout ({limit}), so each is delivered several times: set a longer "
            "visibility_timeout in broker_transport_options, or a shorter default_retry_delay, "
            "countdown in retry_kwargs, or retry_backoff_max"
        )


def _longest_delay(task: Task) -> float:
    """How long a retry of a task may wait, seconds; what its body asks for is not known."""
    usual = float(task.default_retry_delay or 0)
    if not getattr(task, "autoretry_for", ()):
        return usual
    options = {"max_retries": task.max_retries, **getattr(task, "retry_kwargs", {})}
    backoff = float(getattr(task, "retry_backoff", False))
    if not backoff:
        return float(options.get("countdown") or usual)
    longest = float(getattr(task, "retry_backoff_max", 600))
    if options["max_retries"] is None:
        return longest
    doublings = min(max(options["max_retries"] - 1, 0), _MOST_DOUBLINGS)
    return min(longest, max(backoff, 1.0) * 2.0 ** int(doublings))


def _visibility_timeout(app: Celery) -> float | None:
    """How long the broker waits before it delivers again, seconds; None where it waits for ever."""
    url = app.conf.broker_read_url or app.conf.broker_url or ""
    if isinstance(url, (list, tuple)):  # the others are tried where the first one is down
        url = url[0]
    known = _VISIBILITY.get(str(url).partition(":")[0].partition("+")[0])
    if known is None:
        return None
    options = app.conf.broker_transport_options or {}
    return float(options.get("visibility_timeout") or known)


def _check(conf: Any = None, instance: Any = None, **_: Any) -> None:
    del conf
    try:
        for complaint in complaints(instance.app):
            _log.warning("%s", complaint)
    except (NotConfigured, TypeError, ValueError) as error:
        # A worker that cannot keep a record would fail every message it takes. Celery swallows
        # the exceptions of receivers, and not this one.
        raise SystemExit(f"fencekit: {error}") from error


signals.celeryd_after_setup.connect(_check, weak=False)
