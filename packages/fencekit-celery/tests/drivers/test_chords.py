"""Chords whose parts are counted while workers die: the body is sent all the same."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from celery import chord, states
from celery.backends.redis import RedisBackend
from celery.worker.request import Request

from fencekit.celery import idempotent_task
from harness.by_hand import Hand, queued

# Celery 5.6 with redis-py 8.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Call to deprecated:DeprecationWarning", "ignore:Exception raised outside body"
)
NEEDS_COUNTS_FIRST = pytest.mark.skipif(
    not hasattr(Request, "_success_was_stored"),
    reason="Celery 5.6 delivers again what a lost process of its pool has stored",
)


class Death(BaseException):
    """Ends a process where it stands, as far as a test can."""


@pytest.fixture
def results(redis_url: str) -> str:
    return redis_url


def tasks(app: Any, around: Callable[[Any], Any] = lambda function: function) -> tuple[Any, Any]:
    """Give a part and a body."""

    @app.task(name="part", shared=False)
    @around
    @idempotent_task(key="name")
    def part(name: str) -> str:
        return name

    @app.task(name="body", shared=False)
    def body(names: Any) -> Any:
        return names

    return part, body


def loud(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return f"{function(*args, **kwargs)}!"

    return wrapper


def names(client: Any) -> list[str]:
    return [headers["task"] for headers in queued(client)]


def dies_once(plain: Callable[..., Any]) -> Callable[..., Any]:
    left = [1]

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if left:
            left.pop()
            raise Death
        return plain(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("around", [lambda function: function, loud], ids=["plain", "wrapped"])
@pytest.mark.parametrize("step", ["on_chord_part_return", "_unpack_chord_result"])
def test_a_worker_that_dies_between_the_last_part_and_the_body_does_not_lose_the_body(
    app: Any,
    hand: Hand,
    redis_client: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    step: str,
    around: Any,
) -> None:
    """Red where the redelivery is ignored though nobody may go on with the chord yet."""
    part, body = tasks(app, around)
    result = chord([part.s("a"), part.s("b")])(body.s())
    hand.step()
    last = hand.take()
    with monkeypatch.context() as patch:
        patch.setattr(RedisBackend, step, dies_once(getattr(RedisBackend, step)))
        with pytest.raises(Death):
            hand.run(last)
    hand.run(last, redelivered=True)
    for _ in range(3):
        if names(redis_client) == ["part"]:  # it comes back
            hand.step()
    if "body" not in names(redis_client):
        # As if time had passed: the dead one's right to go on with the chord is over.
        redis_client.delete(*redis_client.keys("celery-taskset-meta-*.c"))
        assert names(redis_client) == ["part"]
        hand.step()
    hand.step()
    assert [name.strip("!") for name in sorted(result.result)] == ["a", "b"]
    assert names(redis_client) == []


@NEEDS_COUNTS_FIRST
@pytest.mark.parametrize("replayed", [False, True])
def test_a_part_is_counted_before_its_success_is_stored(
    app: Any, hand: Hand, monkeypatch: pytest.MonkeyPatch, *, replayed: bool
) -> None:
    """Red where a worker that loses its process in between acknowledges the message for good."""
    part, body = tasks(app)
    if replayed:
        for name in ("a", "b"):
            part.delay(name)
            hand.step()
    counted = []
    plain = RedisBackend.on_chord_part_return

    def count(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        counted.append(self.get_state(request.id))
        return plain(self, request, *args, **kwargs)

    monkeypatch.setattr(RedisBackend, "on_chord_part_return", count)
    result = chord([part.s("a"), part.s("b")])(body.s())
    for _ in range(3):
        hand.step()
    assert sorted(result.result) == ["a", "b"]
    assert counted == [states.PENDING] * 2
    assert [one.state for one in result.parent.results] == [states.SUCCESS] * 2


def test_a_chord_that_is_saved_is_read_from_results(app: Any, hand: Hand) -> None:
    """Red where its last part is counted before its result is there: the body never comes."""
    part, body = tasks(app)
    app.conf.result_chord_join_timeout = 1
    result = chord([part.s("a"), part.s("b")])(body.s())
    result.parent.save()  # as Celery does where a part is a group
    for _ in range(3):
        hand.step()
    assert result.result == ["a", "b"]


def test_what_a_part_returns_in_the_end_is_counted(app: Any, hand: Hand) -> None:
    """Red where what its function returned is counted."""
    part, body = tasks(app, loud)
    result = chord([part.s("a"), part.s("b")])(body.s())
    for _ in range(3):
        hand.step()
    assert sorted(result.result) == ["a!", "b!"]


def test_a_part_that_cannot_be_counted_first_is_counted_by_celery(
    app: Any, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, body = tasks(app)
    left, plain = [1, 1], RedisBackend.on_chord_part_return

    def count(self: Any, *args: Any, **kwargs: Any) -> Any:
        if left and hasattr(Request, "_success_was_stored"):
            left.pop()
            raise ConnectionError
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(RedisBackend, "on_chord_part_return", count)
    left.pop()
    result = chord([part.s("a"), part.s("b")])(body.s())
    for _ in range(3):
        hand.step()
    assert sorted(result.result) == ["a", "b"]
