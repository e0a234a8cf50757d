"""What makes no sense is refused before a byte is sent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencekit import AsyncDistributedLock, DistributedLock
from fencekit.errors import CanonicalizeError
from fencekit.idempotency import AsyncIdempotencyGuard, IdempotencyGuard
from harness.clients import make, opened
from harness.guards import Guards
from harness.servers import Server

HOUR = timedelta(hours=1)
NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
def nowhere(make_guards: Callable[..., Guards]) -> Guards:
    """A guard of a server that does not exist: what is sent is noticed."""
    return make_guards(NOWHERE)


@pytest.mark.parametrize("key", ["", "a b", "a\n", "}x", "x" * 513])
def test_keys_that_are_no_names(nowhere: Guards, key: str) -> None:
    for call in (
        ("begin", key),
        ("run", key, lambda: 1),
        ("try_begin", key),
    ):
        with pytest.raises(ValueError, match="the name"):
            nowhere.call(*call, ttl=HOUR)
    for method in ("mark_done", "give_back", "get_result", "status", "clear"):
        with pytest.raises(ValueError, match=r"the name|the key"):
            nowhere.call(method, key)


@pytest.mark.parametrize("key", [None, 1, b"job", ["job"]])
def test_keys_that_are_no_str(nowhere: Guards, key: Any) -> None:
    for method in ("begin", "try_begin"):
        with pytest.raises(TypeError, match="the name must be a str, not"):
            nowhere.call(method, key, ttl=HOUR)
    with pytest.raises(TypeError, match="the key must be a str, not"):
        nowhere.call("mark_done", key)


def test_a_duration_that_no_cache_can_look_up(nowhere: Guards) -> None:
    with pytest.raises(TypeError, match="ttl must be a timedelta, not list"):
        nowhere.call("begin", "job", ttl=[3600])


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("ttl", timedelta(0), ValueError),
        ("ttl", 3600, TypeError),
        ("ttl", None, TypeError),
        ("lease", timedelta(seconds=-1), ValueError),
        ("lease", 30.0, TypeError),
        ("wait", timedelta(seconds=-1), ValueError),
        ("wait", 5, TypeError),
        ("max_attempts", 0, ValueError),
        ("max_attempts", True, TypeError),
        ("max_attempts", "3", TypeError),
        ("payload", {"a": {1}}, CanonicalizeError),
    ],
)
def test_arguments_of_begin(nowhere: Guards, name: str, value: Any, error: type[Exception]) -> None:
    arguments = {"ttl": HOUR, name: value}
    with pytest.raises(error):
        nowhere.call("begin", "job", **arguments)
    with pytest.raises(error):
        nowhere.call("run", "job", lambda: 1, **arguments)


def test_arguments_of_many(nowhere: Guards) -> None:
    with pytest.raises(TypeError, match="not one str"):
        nowhere.call("begin_many", "job", ttl=HOUR)
    with pytest.raises(ValueError, match="2 keys and 1 payloads"):
        nowhere.call("begin_many", ["a", "b"], payloads=[1], ttl=HOUR)
    with pytest.raises(ValueError, match="the name"):
        nowhere.call("begin_many", ["a", ""], ttl=HOUR)
    with pytest.raises(TypeError, match="pairs of a"):
        nowhere.call("complete_many", [("job", 1)])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"prefix": ""}, ValueError),
        ({"prefix": "a{b"}, ValueError),
        ({"owner_id": "a:b"}, ValueError),
        ({"owner_id": 1}, TypeError),
        ({"begin_grace": timedelta(0)}, ValueError),
        ({"begin_grace": 10}, TypeError),
        ({"max_result_bytes": -1}, ValueError),
        ({"max_result_bytes": 1.5}, TypeError),
        ({"max_result_bytes": True}, TypeError),
    ],
    ids=str,
)
def test_arguments_of_a_guard(options: dict[str, Any], error: type[Exception]) -> None:
    client = make(NOWHERE)
    with pytest.raises(error):
        IdempotencyGuard(client, **options)
    client.close()


async def test_clients_of_the_wrong_colour() -> None:
    sync, aio = make(NOWHERE), make(NOWHERE, colour="async")
    with pytest.raises(TypeError, match="async client"):
        IdempotencyGuard(aio)
    with pytest.raises(TypeError, match="sync client"):
        AsyncIdempotencyGuard(sync)
    with pytest.raises(TypeError, match="expected a client"):
        IdempotencyGuard("redis://localhost")
    sync.close()
    await aio.aclose()


async def test_locks_of_the_wrong_colour_and_what_is_no_lock() -> None:
    sync, aio = make(NOWHERE), make(NOWHERE, colour="async")
    guard, twin = IdempotencyGuard(sync), AsyncIdempotencyGuard(aio)
    pair: dict[str, Any] = {"lock_resource": "resource", "ttl": HOUR}
    with pytest.raises(TypeError, match="is an async lock"):
        guard.try_begin_or_reclaim("job", lock=AsyncDistributedLock(aio), **pair)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is a sync lock"):
        await twin.try_begin_or_reclaim("job", lock=DistributedLock(sync), **pair)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a lock"):
        guard.try_begin_or_reclaim("job", lock="resource", **pair)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lock_resource"):
        guard.try_begin_or_reclaim("job", lock=DistributedLock(sync), lock_resource="", ttl=HOUR)
    sync.close()
    await aio.aclose()


async def work() -> int:
    return 1


@pytest.mark.parametrize("func", [None, 5, "work"])
def test_work_that_cannot_be_called(nowhere: Guards, func: Any) -> None:
    """Found here: the attempt was begun, and spent, before the call failed."""
    with pytest.raises(TypeError, match="func must be callable, not"):
        nowhere.call("run", "job", func, ttl=HOUR)


def test_work_that_nothing_awaits_is_not_done() -> None:
    """Found here: the coroutine was made and dropped, and its work was recorded as done."""
    client = make(NOWHERE)
    with pytest.raises(TypeError, match="use AsyncIdempotencyGuard"):
        IdempotencyGuard(client).run("job", work, ttl=HOUR)
    client.close()


def test_work_that_returns_what_nothing_awaits_is_not_done(server: Server) -> None:
    with opened(server.url) as client:
        guard = IdempotencyGuard(client)
        with pytest.raises(TypeError, match="its work is not done"):
            guard.run("job", lambda: work(), ttl=HOUR)  # noqa: PLW0108 - not seen to be async
        assert guard.run("job", lambda: 2, ttl=HOUR) == 2


@pytest.mark.parametrize(
    ("task_id", "error"), [(5, TypeError), (None, TypeError), ("\ud800", ValueError)]
)
def test_ids_of_messages_that_are_no_text(
    nowhere: Guards, task_id: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="task_id"):
        nowhere.call("begin", "job", ttl=HOUR, task_id=task_id)
