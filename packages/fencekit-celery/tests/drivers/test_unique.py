"""What is sent while a message with the same key is on its way.

Red: with a bare task each of the counts of queued messages is higher.
"""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from celery import Celery, chord, group, signals
from celery.exceptions import Ignore, Reject

from fencekit.celery import AlreadyQueued, configure, idempotent_task, unique_task
from harness.clients import opened
from harness.workers import close_app


@pytest.fixture
def app(redis_url: str) -> Iterator[Any]:
    app: Any = Celery("unique", broker=redis_url, backend="cache+memory://", set_as_current=False)
    with opened(redis_url) as client:
        configure(app, redis=client)
        yield app
    close_app(app)


def queued(client: Any) -> int:
    return int(client.llen("celery"))


@pytest.fixture
def export(app: Any) -> Any:
    @app.task(name="export", shared=False)
    @unique_task(key="name")
    @idempotent_task(key="name")
    def export(name: str) -> str:
        """Write a file."""
        return name

    return export


def test_a_duplicate_returns_the_result_that_is_there(export: Any, redis_client: Any) -> None:
    first, second, other = export.delay("a"), export.delay("a"), export.delay("b")
    assert first.id == second.id != other.id
    assert queued(redis_client) == 2
    assert export.__doc__ == "Write a file."
    assert redis_client.pttl(redis_client.keys("*:unique")[0]) > 3_000_000


def test_a_duplicate_raises_when_asked(app: Any, redis_client: Any) -> None:
    @app.task(bind=True, name="bound", shared=False)
    @unique_task(key=lambda name: name, on_duplicate="raise", ttl="5m")
    def bound(self: Any, name: str) -> str:
        return f"{self.name} {name}"

    first = bound.delay("a")
    with pytest.raises(AlreadyQueued) as caught:
        bound.delay("a")
    assert caught.value.task_id == first.id
    assert queued(redis_client) == 1


def test_a_retry_and_a_canvas_are_always_sent(export: Any, redis_client: Any) -> None:
    first = export.delay("a")
    export.apply_async(("a",), task_id=first.id, retries=1)
    group(export.s("a"), export.s("a")).apply_async()
    chord([export.s("a")])(export.s("z"))
    assert queued(redis_client) == 5


def test_the_place_is_freed_when_sending_fails(
    export: Any, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no broker")

    with monkeypatch.context() as broken:
        broken.setattr(export.app, "send_task", fail)
        with pytest.raises(OSError, match="no broker"):
            export.delay("a")
    assert redis_client.keys("*:unique") == []
    export.delay("a")
    assert queued(redis_client) == 1


def test_only_the_owner_frees_the_place(export: Any, redis_client: Any) -> None:
    export.delay("a")
    signals.task_postrun.send(
        sender=export, task_id="another", args=("a",), kwargs={}, state="SUCCESS"
    )
    assert len(redis_client.keys("*:unique")) == 1


@pytest.mark.parametrize(
    ("state", "how", "left"),
    [
        ("SUCCESS", None, 0),
        ("FAILURE", None, 0),
        ("RETRY", None, 1),
        ("IGNORED", Ignore(), 0),
        ("REJECTED", Reject("no"), 0),
        ("REJECTED", Reject("later", requeue=True), 1),
    ],
)
def test_the_end_of_a_run_frees_the_place(
    export: Any, redis_client: Any, state: str, how: Any, left: int
) -> None:
    result = export.delay("a")
    signals.task_postrun.send(
        sender=export, task_id=result.id, args=("a",), kwargs={}, state=state, retval=how
    )
    assert len(redis_client.keys("*:unique")) == left


def test_a_revoked_message_frees_the_place(export: Any, redis_client: Any) -> None:
    result = export.delay("a")
    request = SimpleNamespace(id=result.id, args=["a"], kwargs={})
    signals.task_revoked.send(sender=export, request=request)
    assert redis_client.keys("*:unique") == []


def test_a_transaction_sends_when_it_commits(
    export: Any, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks: list[Callable[[], None]] = []
    django = ModuleType("django.db")
    django.transaction = SimpleNamespace(  # type: ignore[attr-defined]
        get_connection=lambda: SimpleNamespace(in_atomic_block=True), on_commit=hooks.append
    )
    monkeypatch.setitem(sys.modules, "django", ModuleType("django"))
    monkeypatch.setitem(sys.modules, "django.db", django)
    result = export.delay("a")
    assert queued(redis_client) == 0
    assert redis_client.keys("*:unique") == []
    hooks[0]()
    assert queued(redis_client) == 1
    assert redis_client.get(redis_client.keys("*:unique")[0]) == result.id.encode()


def test_eager_tasks_run(export: Any, redis_client: Any) -> None:
    export.app.conf.task_always_eager = True
    assert export.delay("a").get() == export.delay("a").get() == "a"
    assert redis_client.keys("*:unique") == []


def test_what_makes_no_sense_is_refused() -> None:
    def work(name: str) -> str:
        return name

    with pytest.raises(ValueError, match="until"):
        unique_task(key="name", until="end")(work)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_duplicate"):
        unique_task(key="name", on_duplicate="drop")(work)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'nobody'"):
        unique_task(key="nobody")(work)
    with pytest.raises(TypeError, match="30s"):
        unique_task(key="name", ttl=3600)(work)  # type: ignore[arg-type]
