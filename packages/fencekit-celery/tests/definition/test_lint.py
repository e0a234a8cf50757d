"""What a worker complains of; each complaint is gone when its setting is set."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import functools
from typing import Any

import pytest
from celery import Celery

from fencekit.celery import NotConfigured, idempotent_task
from fencekit.celery.lint import complaints

GOOD: dict[str, Any] = {"acks_late": True, "reject_on_worker_lost": True}
NOWHERE = "redis://localhost:1/0"


def said(
    task: dict[str, Any] | None = None,
    terms: dict[str, Any] | None = None,
    conf: dict[str, Any] | None = None,
) -> list[str]:
    app: Any = Celery("lint", broker="redis://localhost:1/0", set_as_current=False)
    app.conf.update({"fencekit_redis_url": NOWHERE, **(conf or {})})

    @app.task(name="other", shared=False)
    def other() -> None: ...

    @app.task(name="pay", shared=False, **{**GOOD, **(task or {})})
    @idempotent_task(key="name", **(terms or {}))
    def pay(name: str) -> None: ...

    return list(complaints(app))


def test_nothing_is_said_of_good_settings() -> None:
    assert said() == []
    assert said({"acks_late": None}, conf={"task_acks_late": True}) == []


def test_nothing_is_said_of_a_delay_that_no_retry_comes_to() -> None:
    """Red where the longest delay of all is taken for that of three retries."""
    backoff = {"autoretry_for": (OSError,), "retry_backoff": 2, "retry_backoff_max": 7200}
    assert said({**backoff, "max_retries": 3}) == []
    assert said({**backoff, "retry_kwargs": {"max_retries": 0}}) == []
    assert len(said({**backoff, "max_retries": 12})) == 1


@pytest.mark.parametrize(
    ("task", "terms", "conf", "words"),
    [
        ({"acks_late": False}, {}, {}, "acks_late=True"),
        ({"reject_on_worker_lost": False}, {}, {}, "reject_on_worker_lost=True"),
        ({}, {"lease": "1h"}, {}, "visibility_timeout"),
        ({"default_retry_delay": 7200}, {}, {}, "default_retry_delay"),
        ({}, {"lease": "1h"}, {"broker_url": ["redis://a", "redis://b"]}, "visibility_timeout"),
        ({}, {"lease": "1h"}, {"broker_url": "sentinel://a;sentinel://b"}, "visibility_timeout"),
        (
            {"autoretry_for": (OSError,), "retry_kwargs": {"countdown": 7200}},
            {},
            {},
            "retry_kwargs",
        ),
        (
            {
                "autoretry_for": (OSError,),
                "retry_backoff": True,
                "retry_backoff_max": 90,
                "max_retries": None,
            },
            {},
            {"broker_transport_options": {"visibility_timeout": 60}},
            "retry_backoff_max",
        ),
    ],
)
def test_one_complaint_with_its_cure(
    task: dict[str, Any], terms: dict[str, Any], conf: dict[str, Any], words: str
) -> None:
    (complaint,) = said(task, terms, conf)
    assert complaint.startswith("pay: ")
    assert words in complaint


def test_a_broker_that_waits_for_ever_has_no_such_limits() -> None:
    assert said({"default_retry_delay": 7200}, conf={"broker_url": "amqp://localhost"}) == []


@pytest.mark.parametrize("bind", [False, True])
def test_a_decorator_that_hides_the_idempotent_task_is_complained_of(*, bind: bool) -> None:
    """Red where it is not seen, and a message that should wait fails."""
    app: Any = Celery("lint", broker=NOWHERE, set_as_current=False)
    app.conf.fencekit_redis_url = NOWHERE

    def hiding(function: Any) -> Any:
        def hidden(*args: Any) -> Any:
            return function(*args) if args else later

        if not function:
            later = None  # never: a cell of the decorator's that is empty

        return hidden

    @idempotent_task(key="name")
    def pay(name: str) -> None: ...

    app.task(name="pay", shared=False, bind=bind, **GOOD)(hiding(pay))
    kept = app.task(name="kept", shared=False, **GOOD)(functools.wraps(pay)(hiding(pay)))

    @app.task(name="other", shared=False)
    def other() -> Any:
        return kept("a")

    (complaint,) = complaints(app)
    assert complaint.startswith("pay: ")
    assert "functools.wraps" in complaint


def test_no_place_for_records_is_an_error() -> None:
    with pytest.raises(NotConfigured, match="pay"):
        said(conf={"fencekit_redis_url": None})
