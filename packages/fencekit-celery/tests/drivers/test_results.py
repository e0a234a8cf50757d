"""A result that is stored in the same step as its work is recorded as done, and when it is not."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery import Task, chain, group, states
from celery.backends.redis import RedisBackend
from celery.exceptions import SoftTimeLimitExceeded
from pydantic import BaseModel

from fencekit import IdempotencyGuard, idempotency_key
from fencekit.celery import idempotent_task
from fencekit.claims import Claim
from harness.by_hand import Hand, meta, send
from harness.conditions import forbidden
from harness.workers import close_backend

# Celery 5.6 with redis-py 8.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")
HOUR = timedelta(hours=1)


@pytest.fixture
def results(redis_url: str) -> str:
    """They are where the records are."""
    return redis_url


def once(app: Any, **options: Any) -> Any:
    """A task that returns what it is given."""

    @app.task(name="once", shared=False, **options)
    @idempotent_task(key="name")
    def once(name: str) -> list[str]:
        return [name]

    return once


SETTINGS: dict[str, dict[str, Any]] = {
    "as by default": {},
    "for ever": {"result_expires": None},
    "briefly": {"result_expires": 30},
    "extended": {"result_extended": True},
    "by prefix": {"result_backend_transport_options": {"global_keyprefix": "my_"}},
    "pickled": {"result_serializer": "pickle", "accept_content": ["json", "pickle"]},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_result_is_stored_as_celery_stores_it(
    app: Any, hand: Hand, redis_client: Any, writes: list[str], settings: dict[str, Any]
) -> None:
    app.conf.update(settings)

    @app.task(name="bare", shared=False)
    def bare(name: str) -> list[str]:
        return [name]

    found, texts = [], []
    for task in (bare, once(app)):
        message = send(task.s("a"))
        key = app.backend.get_key_for_task(message).decode()
        with redis_client.pubsub(ignore_subscribe_messages=True) as listener:
            listener.subscribe(key)
            listener.get_message(timeout=5)
            hand.step()
            told = listener.get_message(timeout=5)
        texts.append(told["data"] == redis_client.get(key))
        kept = meta(app, message)
        kept["expires"] = round(redis_client.pttl(key) / 1000)
        assert kept.pop("task_id") == message
        kept.pop("date_done")
        kept.pop("name", None)
        found.append(kept)
    assert found[0] == found[1]
    assert found[1]["result"] == ["a"]
    assert texts == [True, True]
    assert len(writes) == 1, "the idempotent task's was stored with its record"


def test_a_message_whose_result_is_stored_is_known_for_it(
    app: Any, hand: Hand, redis_client: Any
) -> None:
    """Red where the result backend is asked first, and it is lost there."""
    message = send(once(app).s("a"))
    taken = hand.take()
    hand.run(taken)
    redis_client.delete(app.backend.get_key_for_task(message))
    hand.run(taken, redelivered=True)
    assert meta(app, message)["status"] == states.PENDING
    assert hand.ends == ["acknowledged"] * 2
    # Another message is answered from the record, by the backend's own means.
    copy = send(app.tasks["once"].s("a"))
    hand.step()
    assert meta(app, copy)["result"] == ["a"]


class Order(BaseModel):
    name: str


class Loud(Task):  # type: ignore[misc]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return [*super().__call__(*args, **kwargs), "!"]


class Overridden(Task):  # type: ignore[misc]
    name = "once"

    @idempotent_task(key="name")
    def run(self, name: str) -> Any:
        return [name]


class Overriding(Overridden):
    def run(self, name: str) -> Any:
        return [*super().run(name), "!"]


def loud(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return [*function(*args, **kwargs), "!"]

    return wrapper


def dumped(app: Any) -> Any:
    @app.task(name="once", shared=False, pydantic=True)
    @idempotent_task(key="name")
    def once(name: str) -> Order:
        return Order(name=name)

    return once


def wrapped(app: Any) -> Any:
    @app.task(name="once", shared=False)
    @loud
    @idempotent_task(key="name")
    def once(name: str) -> list[str]:
        return [name]

    return once


def patched(app: Any) -> Any:
    task = once(app, autoretry_for=(ValueError,))
    task.run = loud(task.run)
    return task


def locked(app: Any) -> Any:
    @app.task(name="once", shared=False)
    @idempotent_task(key="name", lock_resource="name")
    def once(name: str) -> list[str]:
        return [name]

    return once


MADE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "changed by a decorator": (wrapped, ["a", "!"]),
    "changed by whoever patches the task": (patched, ["a", "!"]),
    "changed by its class": (lambda app: once(app, base=Loud), ["a", "!"]),
    "changed by a subclass": (lambda app: app.register_task(Overriding()), ["a", "!"]),
    "a model that Celery dumps": (dumped, {"name": "a"}),
    "beside a lock that is held": (locked, ["a"]),
}


@pytest.mark.parametrize(("make", "result"), MADE.values(), ids=MADE)
def test_what_may_not_be_the_tasks_own_result_is_stored_by_celery(
    app: Any, hand: Hand, writes: list[str], make: Callable[[Any], Any], result: Any
) -> None:
    """Red where what the function returns is stored."""
    message = send(make(app).s("a"))
    hand.step()
    assert meta(app, message)["result"] == result
    assert len(writes) == 1


def test_what_retries_by_itself_hands_on_its_result(
    app: Any, hand: Hand, writes: list[str]
) -> None:
    message = send(once(app, autoretry_for=(ValueError,)).s("a"))
    hand.step()
    assert meta(app, message)["result"] == ["a"]
    assert writes == []


def test_a_method_that_is_a_tasks_own_hands_on_its_result(
    app: Any, hand: Hand, writes: list[str]
) -> None:
    message = send(app.register_task(Overridden()).s("a"))
    hand.step()
    assert meta(app, message)["result"] == ["a"]
    assert writes == []


def test_what_others_wait_for_is_stored_by_celery(app: Any, hand: Hand, writes: list[str]) -> None:
    """Red where it is stored before they are told, so that they never are."""
    task = once(app)

    @app.task(name="more", shared=False)
    def more(names: list[str]) -> list[str]:
        return [*names, "more"]

    linked = send(task.s("a"), link=more.s())
    for _ in range(2):
        hand.step()
    both = chain(task.s("b"), more.s()).apply_async()
    for _ in range(2):
        hand.step()
    grouped = group(task.s("c"), task.s("d")).apply_async()
    for _ in range(2):
        hand.step()
    assert meta(app, linked)["result"] == ["a"]
    assert len(meta(app, linked)["children"]) == 1
    assert both.result == ["b", "more"]
    assert [one.result for one in grouped.results] == [["c"], ["d"]]
    assert len(writes) == 6


class Elsewhere(RedisBackend):  # type: ignore[misc]
    """May store results in a way of its own."""


@pytest.mark.parametrize("where", ["database", "class", "user"])
def test_results_that_are_kept_elsewhere_are_stored_there(
    app: Any, hand: Hand, redis_url: str, writes: list[str], where: str
) -> None:
    """Red where they are written beside the records."""
    task = once(app)
    if where == "database":
        task.backend = RedisBackend(url=f"{redis_url.rpartition('/')[0]}/1", app=app)
    elif where == "user":
        task.backend = RedisBackend(url=redis_url.replace("//", "//default:@"), app=app)
        task.backend.connparams["username"] = "default"
    else:
        task.backend = Elsewhere(url=redis_url, app=app)
    message = send(task.s("a"))
    hand.step()
    assert task.backend.get_task_meta(message)["result"] == ["a"]
    assert len(writes) == 1
    close_backend(task.backend)


def test_a_result_that_is_ignored_is_not_stored(
    app: Any, hand: Hand, redis_client: Any, writes: list[str]
) -> None:
    """Red where the record hears of its message later, by one more command."""

    def scripts() -> int:
        calls: int = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
        return calls

    task = once(app)
    send(task.s("first"), ignore_result=True)  # has the server learn the scripts
    hand.step()
    redis_client.delete(*redis_client.keys("*:idem"))
    before = scripts()
    message = send(task.s("a"), ignore_result=True)
    taken = hand.take()
    hand.run(taken)
    assert scripts() - before == 2
    (record,) = redis_client.keys("*:idem")
    assert redis_client.hget(record, "published").decode() == f"{message} "
    hand.run(taken, redelivered=True)
    assert redis_client.keys("celery-task-meta-*") == []
    assert writes == []


def test_a_result_that_cannot_be_written_fails_as_it_does_with_celery(app: Any, hand: Hand) -> None:
    @app.task(name="once", shared=False)
    @idempotent_task(key="name")
    def once(name: str) -> Any:
        return {name: object()}

    message = send(once.s("a"))
    hand.step()
    assert meta(app, message)["status"] == states.FAILURE


def test_where_it_is_refused_celery_stores_it_and_it_is_not_tried_again(
    app: Any, hand: Hand, redis_client: Any, writes: list[str]
) -> None:
    task = once(app)
    with forbidden(redis_client, "set"):
        first = send(task.s("a"))
        hand.step()
    second = send(task.s("b"))
    hand.step()
    assert [meta(app, message)["result"] for message in (first, second)] == [["a"], ["b"]]
    assert len(writes) == 2


def test_who_was_replaced_stores_nothing(
    app: Any, hand: Hand, redis_client: Any, writes: list[str]
) -> None:
    """Red where a lost attempt's result is the message's."""
    guard = IdempotencyGuard(redis_client)

    @app.task(name="slow", shared=False)
    @idempotent_task(key="name", fingerprint=None)
    def slow(name: str) -> list[str]:
        key = idempotency_key({"name": name}, namespace="slow")
        redis_client.hset(f"fencekit:{{{key}}}:idem", "lease_until", "1")
        with guard.begin(key, ttl=HOUR) as other:
            other.complete(["other"])
        return ["mine"]

    message = send(slow.s("a"))
    hand.step()
    assert meta(app, message)["status"] == states.PENDING
    hand.step()
    assert meta(app, message)["result"] == ["other"]
    assert len(writes) == 1


def test_a_soft_time_limit_after_it_was_stored_changes_nothing(
    app: Any, hand: Hand, writes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, left = Claim.complete_memo, [1]

    def late(self: Claim, *args: Any, **kwargs: Any) -> None:
        complete(self, *args, **kwargs)
        if left:
            left.pop()
            raise SoftTimeLimitExceeded

    monkeypatch.setattr(Claim, "complete_memo", late)
    message = send(once(app).s("a"))
    hand.step()
    assert meta(app, message)["result"] == ["a"]
    assert writes == []
