"""What a decorator refuses, and what it leaves of the function."""

from __future__ import annotations

import functools
import inspect
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, Task

from fencekit.celery import current_claim, idempotent_task, unique_task
from fencekit.celery.durations import duration


def pay(order_id: str, amount: int = 1) -> int:
    """Pay an order."""
    return amount if order_id else 0


async def later(order_id: str) -> str:
    return order_id


def test_the_function_stays_as_it_was() -> None:
    wrapped = idempotent_task(key="order_id")(pay)
    assert wrapped.__name__ == "pay"
    assert wrapped.__doc__ == "Pay an order."
    assert inspect.getfullargspec(wrapped) == inspect.getfullargspec(pay)


def test_celery_checks_calls_as_before() -> None:
    app: Any = Celery("t", broker="memory://", set_as_current=False)
    task = app.task(shared=False)(idempotent_task(key="order_id")(pay))
    with pytest.raises(TypeError, match="order_id"):
        task.delay()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"key": "order"}, ValueError, "'order' is no parameter of pay, which has order_id"),
        ({"key": lambda order: order}, ValueError, "'order' is no parameter"),
        ({"key": lambda *order: order}, TypeError, "by name"),
        ({"key": str}, TypeError, "wrap it"),
        ({"key": later}, TypeError, "async"),
        ({"key": ()}, ValueError, "at least one"),
        ({"key": 7}, TypeError, "not int"),
        ({"key": "order_id", "fingerprint": "sum"}, ValueError, "fingerprint: 'sum'"),
        ({"key": "order_id", "lock_resource": "till"}, ValueError, "lock_resource: 'till'"),
        ({"key": "order_id", "ttl": 60}, TypeError, '"30s"'),
        ({"key": "order_id", "ttl": "soon"}, ValueError, "'soon'"),
        ({"key": "order_id", "ttl": "-1s"}, ValueError, "'-1s'"),
        ({"key": "order_id", "lease": timedelta(0)}, ValueError, "lease must be above zero"),
        ({"key": "order_id", "lease": "1s", "lock_ttl": "1s"}, TypeError, "give one"),
        ({"key": "order_id", "lease": "2h"}, ValueError, "busy_timeout"),
        ({"key": "order_id", "max_attempts": 0}, ValueError, "at least 1"),
        ({"key": "order_id", "max_attempts": "3"}, TypeError, "'3'"),
        ({"key": "order_id", "on_busy": "wait"}, ValueError, "'wait'"),
        ({"key": "order_id", "on_done": "skip"}, ValueError, "'skip'"),
        ({"key": "order_id", "on_busy": "drop", "retry_on_in_progress": True}, TypeError, "one"),
        ({"key": "order_id", "terminal_for": ["ValueError"]}, TypeError, "exception classes"),
        ({"key": "order_id", "guard": object()}, TypeError, "guard must be"),
        ({"key": "order_id", "lock": object()}, TypeError, "lock needs lock_resource"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        idempotent_task(**options)(pay)


def test_what_celery_would_not_run_is_refused() -> None:
    class Paying(Task):  # type: ignore[misc]
        def run(self, order_id: str) -> None: ...

    def several(order_id: str) -> Any:
        yield order_id

    with pytest.raises(TypeError, match="async"):
        idempotent_task(key="order_id")(later)
    with pytest.raises(TypeError, match="generator"):
        idempotent_task(key="order_id")(several)
    with pytest.raises(TypeError, match=r"run method of .*Paying"):
        idempotent_task(key="order_id")(Paying)
    with pytest.raises(TypeError, match="not partial"):
        idempotent_task(key="order_id")(functools.partial(pay, amount=2))


@pytest.mark.parametrize("key", ["self", ["self", "order_id"], lambda self: self.name])
def test_the_task_itself_is_no_part_of_a_key(key: Any) -> None:
    def bound(self: Any, order_id: str) -> None: ...

    with pytest.raises(ValueError, match="'self' is the task itself"):
        idempotent_task(key=key)(bound)


def test_a_function_is_decorated_once() -> None:
    """Red where the inner one waits for the outer one: its key is taken."""
    for decorate in (idempotent_task(key="order_id"), unique_task(key="order_id")):
        decorated = decorate(pay)
        with pytest.raises(TypeError, match=r"pay .* already"):
            decorate(decorated)


def test_the_order_of_decorators_is_checked() -> None:
    app: Any = Celery("t", broker="memory://", set_as_current=False)
    with pytest.raises(TypeError, match="below @shared_task"):
        idempotent_task(key="order_id")(app.task(shared=False)(pay))


def test_there_is_no_claim_outside_a_task() -> None:
    with pytest.raises(RuntimeError, match="no idempotent task"):
        current_claim()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("1.5m", 90),
        ("1h30m", 5400),
        (" 2 d ", 172_800),
        ("1w", 604_800),
    ],
)
def test_durations_as_text(text: str, seconds: float) -> None:
    assert duration(text, "ttl") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "s", "5", "5 s x", "1h-3m", "0s"])
def test_text_that_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="ttl must be"):
        duration(text, "ttl")
