"""Tasks that run where they are called: eager, or called as functions."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, chain, chord
from celery.local import Proxy

from fencekit import DistributedLock, IdempotencyGuard, IdempotencyInProgress, idempotency_key
from fencekit.celery import NotConfigured, configure, current_claim, idempotent_task
from fencekit.errors import (
    CanonicalizeError,
    IdempotencyExhausted,
    IdempotencyPayloadMismatch,
    LockNotAcquired,
)

HOUR = timedelta(hours=1)


@pytest.fixture
def app(redis_client: Any) -> Iterator[Any]:
    app: Any = Celery("eager", broker="memory://", set_as_current=False)
    app.conf.update(task_always_eager=True, task_eager_propagates=False)
    configure(app, redis=redis_client)
    yield app
    app.close()


def test_the_form_with_guard_and_lock(app: Any, redis_client: Any) -> None:
    guard, lock = IdempotencyGuard(redis_client), DistributedLock(redis_client)

    @app.task(bind=True, shared=False, acks_late=True)
    @idempotent_task(
        guard,
        lock,
        key=lambda batch_id: idempotency_key({"batch_id": batch_id}, namespace="analysis"),
        lock_resource=lambda batch_id: f"analysis:{batch_id}",
        idempotency_ttl=timedelta(hours=24),
        lock_ttl=timedelta(minutes=5),
        retry_on_in_progress=True,
    )
    def analyze_batch(self: Any, batch_id: int) -> dict[str, Any]:
        claim = current_claim()
        claim.check()
        claim.renew()
        assert claim.lock is not None
        assert lock.inspect(f"analysis:{batch_id}") is not None
        return {
            "fence": int(claim.fence),
            "attempt": claim.attempt,
            "lost": claim.lost.is_set(),
            "name": self.name,
        }

    first = analyze_batch.delay(7).get()
    assert first == {
        "fence": first["fence"],
        "attempt": 1,
        "lost": False,
        "name": analyze_batch.name,
    }
    assert analyze_batch.delay(7).get() == first
    key = idempotency_key({"batch_id": 7}, namespace="analysis")
    status = guard.status(key)
    assert status is not None
    assert status.state == "done"
    held = lock.inspect("analysis:7")
    assert held is None or held.owner_id is None


def test_eager_direct_and_canvas(app: Any) -> None:
    runs = []

    @app.task(name="pay", shared=False)
    @idempotent_task(key="order_id", ttl="1h")
    def pay(order_id: str, amount: int = 1) -> Any:
        runs.append(order_id)
        return [order_id, amount]

    @app.task(shared=False)
    def collect(results: Any) -> Any:
        return results

    assert pay.apply(("a",)).get() == pay("a") == pay.delay("a").get() == ["a", 1]
    assert chain(pay.s("a"), collect.s()).apply().get() == ["a", 1]
    assert chord([pay.s("a"), pay.s("b", 2)])(collect.s()).get() == [["a", 1], ["b", 2]]
    assert runs == ["a", "b"]


@pytest.mark.parametrize("bind", [False, True])
def test_the_body_of_a_task_goes_by_the_name_of_its_task(app: Any, *, bind: bool) -> None:
    """Red where a body that is called as a function has a key of its own."""
    runs = []

    def body(name: str) -> str:
        runs.append(name)
        return name

    def bound(self: Any, name: str) -> str:
        return f"{self.name} {body(name)}"

    pay = app.task(name="pay", shared=False, bind=bind)(
        idempotent_task(key="name")(bound if bind else body)
    )

    @app.task(name="other", shared=False)
    def other() -> Any:
        return pay.run("a")

    assert pay.delay("a").get() == other.delay().get()
    assert runs == ["a"]


def test_another_payload_is_told(app: Any) -> None:
    @app.task(shared=False)
    @idempotent_task(key="order_id")
    def pay(order_id: str, amount: int) -> Any:
        return amount if order_id else None

    @app.task(shared=False)
    @idempotent_task(key="order_id", fingerprint=None)
    def pay_any(order_id: str, amount: int) -> Any:
        return amount if order_id else None

    assert pay.apply(("o1", 5)).get() == 5
    with pytest.raises(IdempotencyPayloadMismatch):
        pay.apply(("o1", 500)).get()
    assert pay_any.apply(("o1", 5)).get() == pay_any.apply(("o1", 500)).get() == 5


def test_what_is_taken_is_told(app: Any, redis_client: Any) -> None:
    guard, lock = IdempotencyGuard(redis_client), DistributedLock(redis_client)

    @app.task(shared=False, autoretry_for=(Exception,), default_retry_delay=0)
    @idempotent_task(
        guard, lock, key=lambda name: name, lock_resource=lambda: "till", fingerprint=None
    )
    def pay(name: str) -> str:
        return name

    with guard.begin("one", ttl=HOUR) as claim, lock.hold("till", ttl=HOUR):
        with pytest.raises(IdempotencyInProgress):
            pay("one")
        with pytest.raises(LockNotAcquired):
            pay("two")
        claim.release()
    assert pay("two") == "two"


def test_attempts_are_counted(app: Any) -> None:
    runs = []

    @app.task(shared=False, autoretry_for=(ValueError,), default_retry_delay=0, max_retries=9)
    @idempotent_task(key="name", max_attempts=3)
    def fail(name: str) -> None:
        runs.append(name)
        raise ValueError(name)

    with pytest.raises(IdempotencyExhausted):
        fail.apply(("x",)).get()
    assert len(runs) == 3


@pytest.mark.parametrize(
    ("key", "error", "words"),
    [
        (lambda: None, TypeError, "must return a str"),
        (lambda: {"name": "a"}, TypeError, "returned a dict"),
        (lambda: "", ValueError, "key of the task"),
        (lambda: 1 / 0, ZeroDivisionError, "division"),
        ("name", CanonicalizeError, "name"),
    ],
)
def test_a_bad_key_is_a_clear_error_and_no_retry(
    app: Any, key: Any, error: type[Exception], words: str
) -> None:
    runs = []

    @app.task(shared=False, autoretry_for=(Exception,), default_retry_delay=0)
    @idempotent_task(key=key, fingerprint=None)
    def work(name: Any) -> None:
        runs.append(name)

    with pytest.raises(error, match=words):
        work.apply((object(),)).get()
    assert runs == []


def test_an_argument_that_cannot_be_compared_is_a_clear_error_and_no_retry(app: Any) -> None:
    """Bites where the payload is looked at after the delivery was blamed for the key alone."""
    asked, runs = [], []

    def one() -> str:
        asked.append(1)
        return "one"

    @app.task(shared=False, autoretry_for=(Exception,), default_retry_delay=0)
    @idempotent_task(key=one)
    def work(name: Any) -> None:
        runs.append(name)

    with pytest.raises(CanonicalizeError, match="name"):
        work.apply((object(),)).get()
    assert (asked, runs) == ([1], [])


def test_results_come_back_as_the_serializer_wrote_them(app: Any) -> None:
    app.conf.update(task_serializer="pickle", result_serializer="json")
    app.conf.accept_content = ["json", "pickle"]
    shared = ["same"]

    @app.task(shared=False, serializer="pickle")
    @idempotent_task(key="name")
    def work(name: str) -> Any:
        return {name: Decimal("1.10"), "pair": (shared, shared)}

    first, replay = work.apply(("a",)).get(), work.apply(("a",)).get()
    assert first == replay == {"a": Decimal("1.10"), "pair": (["same"], ["same"])}
    assert replay["pair"][0] is replay["pair"][1]


def test_a_pickle_is_not_loaded_by_a_task_that_uses_json(app: Any) -> None:
    options: dict[str, Any] = {"key": lambda name: name, "fingerprint": None}

    @app.task(shared=False, serializer="pickle")
    @idempotent_task(**options)
    def careless(name: str) -> Any:
        return {name}

    @app.task(shared=False)
    @idempotent_task(**options)
    def careful(name: str) -> Any:
        return name

    assert careless.apply(("a",)).get() == {"a"}
    with pytest.raises(Exception, match="does not read"):
        careful.apply(("a",)).get()


def test_without_a_place_for_records() -> None:
    bare: Any = Celery("bare", broker="memory://", set_as_current=False)

    @bare.task(shared=False)
    @idempotent_task(key="name")
    def work(name: str) -> None: ...

    with pytest.raises(NotConfigured, match="fencekit_redis_url"):
        work.apply(("a",)).get()


def test_an_app_is_configured_also_through_a_proxy_of_it(app: Any, redis_client: Any) -> None:
    @app.task(shared=False)
    @idempotent_task(key="name")
    def work(name: str) -> str:
        return name

    configure(Proxy(lambda: app), redis=redis_client, prefix="proxied")
    assert work.delay("a").get() == "a"
    assert redis_client.keys("proxied:*")


@pytest.mark.parametrize("namespace", ["CELERY", None])
def test_settings_in_capitals_name_the_place_for_records(
    redis_url: str, namespace: str | None
) -> None:
    """Red where they are read with a namespace alone: Django reads no others."""
    prefix = f"{namespace}_" if namespace else ""
    settings = {f"{prefix}BROKER_URL": "memory://", f"{prefix}FENCEKIT_REDIS_URL": redis_url}
    app: Any = Celery("django", set_as_current=False)
    app.config_from_object(SimpleNamespace(**settings), namespace=namespace)

    @app.task(shared=False)
    @idempotent_task(key="name")
    def work(name: str) -> str:
        return name

    assert work.apply(("a",)).get() == "a"
    app.close()


def test_configure_refuses_what_it_cannot_use(app: Any) -> None:
    with pytest.raises(TypeError, match="Celery app"):
        configure("app", redis="redis://localhost")
    with pytest.raises(TypeError):
        configure(app, redis=object())
    with pytest.raises(ValueError, match="scheme"):
        configure(app, redis="localhost")
