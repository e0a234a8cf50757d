"""suppress_redis_errors: what becomes None, and what goes on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import redis
import valkey.exceptions

from fencekit.cache import is_transient, suppress_redis_errors
from fencekit.errors import LockNotAcquired, OutcomeUnknown, StoreRefused, StoreUnavailable


def named(value: object) -> str:
    """An id for a parameter: of an error its library too, for two have errors of one name."""
    if not isinstance(value, BaseException):
        return str(value)
    return f"{type(value).__module__.partition('.')[0]}-{type(value).__name__}-{str(value)[:20]}"


SUPPRESSED = [
    redis.ConnectionError("away"),
    redis.TimeoutError("slow"),
    redis.ResponseError("WRONGTYPE x"),
    redis.AuthenticationError("wrong"),
    valkey.exceptions.ConnectionError("away"),
    StoreUnavailable("away"),
    StoreRefused("OOM", "OOM full"),
    OutcomeUnknown("no answer"),
]
OTHERS = [KeyError("x"), ValueError("x"), ConnectionError("of the application's own"), OSError()]


def raising(error: BaseException) -> Any:
    @suppress_redis_errors
    def function() -> int:
        raise error

    return function


@pytest.mark.parametrize("error", SUPPRESSED, ids=named)
def test_an_error_of_the_server_becomes_none(error: Exception) -> None:
    assert raising(error)() is None

    @suppress_redis_errors
    async def coroutine() -> int:
        raise error

    assert asyncio.run(coroutine()) is None


@pytest.mark.parametrize(
    "error",
    [*OTHERS, LockNotAcquired("x", retry_after_ms=1, holder="y"), KeyboardInterrupt()],
    ids=named,
)
def test_everything_else_goes_on(error: BaseException) -> None:
    with pytest.raises(type(error)):
        raising(error)()


def test_arguments_results_names_and_defaults() -> None:
    @suppress_redis_errors(default=0)
    def twice(value: int, *, fail: bool = False) -> int:
        """Double it."""
        if fail:
            raise redis.ConnectionError
        return 2 * value

    assert twice(3) == 6
    assert twice(3, fail=True) == 0
    assert (twice.__name__, twice.__doc__) == ("twice", "Double it.")

    class Service:
        @suppress_redis_errors(default=())
        async def items(self, *, fail: bool) -> tuple[int, ...]:
            if fail:
                raise redis.ConnectionError
            return (1,)

    assert asyncio.run(Service().items(fail=False)) == (1,)
    assert asyncio.run(Service().items(fail=True)) == ()


def test_only_what_is_transient() -> None:
    @suppress_redis_errors(only=is_transient)
    def function(error: Exception) -> int:
        raise error

    assert function(redis.ConnectionError()) is None
    assert function(StoreUnavailable("away")) is None
    for error in (redis.AuthenticationError(), StoreRefused("OOM", "OOM"), redis.ResponseError()):
        with pytest.raises(type(error)):
            function(error)


def caused_by(cause: BaseException) -> StoreUnavailable:
    error = StoreUnavailable(f"not sent: {type(cause).__name__}")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (redis.ConnectionError(), True),
        (redis.TimeoutError(), True),
        (redis.BusyLoadingError(), True),
        (redis.exceptions.ReadOnlyError("read only"), True),
        (redis.exceptions.ClusterDownError("down"), True),
        (redis.AuthenticationError(), False),
        (redis.exceptions.NoPermissionError(), False),
        (redis.exceptions.OutOfMemoryError(), False),
        (valkey.exceptions.TimeoutError(), True),
        (valkey.exceptions.ResponseError(), False),
        (StoreRefused("LOADING", ""), True),
        (StoreRefused("WRONGTYPE", ""), False),
        (OutcomeUnknown(""), True),
        (caused_by(redis.ConnectionError()), True),
        (caused_by(OSError()), True),
        (caused_by(redis.AuthenticationError()), False),
        (KeyError(), False),
    ],
    ids=named,
)
def test_what_may_pass_by_itself(error: Exception, transient: bool) -> None:  # noqa: FBT001
    assert is_transient(error) is transient


def test_what_is_no_function_or_a_generator_is_refused() -> None:
    with pytest.raises(TypeError, match="decorates functions"):
        suppress_redis_errors(5)  # type: ignore[call-overload]

    def numbers() -> Any:
        yield 1

    with pytest.raises(TypeError, match="generator"):
        suppress_redis_errors(numbers)


def test_what_is_given_besides_is_checked_at_once() -> None:
    with pytest.raises(TypeError, match="only must be a function"):
        suppress_redis_errors(only=True)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="under @staticmethod"):
        suppress_redis_errors(staticmethod(print))


def test_what_returns_a_coroutine_is_as_good_as_a_coroutine_function() -> None:
    class Failing:
        def __init__(self, error: Exception) -> None:
            self.error = error

        async def __call__(self) -> int:
            raise self.error

    away = Failing(redis.ConnectionError())
    assert asyncio.run(suppress_redis_errors(away)()) is None
    assert asyncio.run(suppress_redis_errors(default=0)(away)()) == 0
    with pytest.raises(KeyError):
        asyncio.run(suppress_redis_errors(Failing(KeyError()))())


def test_it_is_logged_but_not_each_time(caplog: pytest.LogCaptureFixture) -> None:
    function = raising(redis.ConnectionError("away"))
    for _ in range(5):
        function()
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
