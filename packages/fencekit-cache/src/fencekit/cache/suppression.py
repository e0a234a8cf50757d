"""What to do about a server that cannot be asked: go on without it, and say so, not too often."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import redis.exceptions

from fencekit.cache.hooks import CacheError, CacheHooks
from fencekit.errors import FenceKitError, StoreError, StoreRefused

__all__ = ["Habit", "is_transient", "suppress_redis_errors"]

_log = logging.getLogger("fencekit.cache")

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)

# How often one kind of error of one cache or function is logged, seconds.
_LOG_EVERY = 30.0

_TRANSIENT_CODES = frozenset(
    {"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY"}
)
_PERMANENT = frozenset(
    {"AuthenticationError", "AuthorizationError", "AuthenticationWrongNumberOfArgsError"}
)
_TRANSIENT = frozenset({"ConnectionError", "TimeoutError", "ReadOnlyError", "TryAgainError"})
_TRANSIENT_CLUSTER = frozenset({"ClusterDownError", "MasterDownError", "BusyLoadingError"})

_CURES = {
    "AuthenticationError": "give the client the right user and password",
    "AuthorizationError": "give the ACL user the cache's keys, commands and channels",
    "NOAUTH": "give the client a user and password",
    "WRONGPASS": "give the client the right user and password",
    "NOPERM": "give the ACL user the cache's keys, commands and channels",
    "WRONGTYPE": "choose another prefix or name: a key of this one belongs to something else",
    "OOM": "raise maxmemory, or let the server evict (maxmemory-policy allkeys-lru)",
    "MISCONF": "look at the server's disk",
}


def is_transient(error: BaseException) -> bool:
    """Whether an error of the server may pass by itself: it is away, busy, or failing over.

    A wrong password, a missing permission, a key of another type and full memory do not.
    """
    if isinstance(error, StoreRefused):
        return error.code in _TRANSIENT_CODES
    if isinstance(error, StoreError):
        cause = error.__cause__
        return not isinstance(cause, _redis_errors()) or is_transient(cause)
    names = {base.__name__ for base in type(error).__mro__}
    if names & _PERMANENT or not isinstance(error, _redis_errors()):
        return False
    return bool(names & (_TRANSIENT | _TRANSIENT_CLUSTER))


def _redis_errors() -> tuple[type[Exception], ...]:
    """The base errors of the client libraries; valkey's only if somebody imported it."""
    valkey = sys.modules.get("valkey.exceptions")
    if valkey is None:
        return (redis.exceptions.RedisError,)
    return (redis.exceptions.RedisError, valkey.ValkeyError)


class _Throttle:
    """Lets one message of a kind pass in a while, and counts the others."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._kept: dict[str, int] = {}

    def passes(self, kind: str) -> int | None:
        """How many were kept back since the last one that passed; None for one more."""
        now = time.monotonic()
        last = self._last.get(kind)
        if last is not None and now - last < _LOG_EVERY:
            self._kept[kind] = self._kept.get(kind, 0) + 1
            return None
        self._last[kind] = now
        return self._kept.pop(kind, 0)


def _report(throttle: _Throttle, where: str, error: BaseException) -> None:
    kind = _kind_of(error)
    kept = throttle.passes(kind)
    if kept is None:
        return
    more = f" ({kept} more like it since the last message)" if kept else ""
    if is_transient(error):
        _log.warning("%s went on without Redis: %s%s", where, error, more)
    else:
        cure = _CURES.get(kind, "this does not pass by itself")
        _log.error("%s went on without Redis: %s; %s%s", where, error, cure, more)


def _kind_of(error: BaseException) -> str:
    if isinstance(error, StoreRefused):
        return error.code
    cause = error.__cause__ if isinstance(error, StoreError) else error
    if isinstance(cause, _redis_errors()) and not is_transient(error):
        first = str(cause).partition(" ")[0]
        return first if first in _CURES else type(cause).__name__
    return type(error).__name__


class Habit:
    """A cache's habit with errors of the server: a miss, or a write that is dropped; and a log.

    Attributes:
        strict: whether errors that do not pass by themselves are raised.
    """

    def __init__(self, cache: str, hooks: CacheHooks | None, *, strict: bool) -> None:
        self.strict = strict
        self._cache = cache
        self._hooks = hooks
        self._throttle = _Throttle()

    def note(self, operation: str, error: FenceKitError) -> None:
        """Log an error, at most one of a kind in half a minute.

        Raises:
            StoreError: the very error, where it does not pass by itself and the cache is strict.
        """
        transient = is_transient(error)
        if self._hooks is not None and self._hooks.on_error is not None:
            self._hooks.fire(
                self._hooks.on_error,
                CacheError(
                    cache=self._cache,
                    operation=operation,
                    error=type(error).__name__,
                    transient=transient,
                ),
            )
        if self.strict and not transient:
            raise error
        _report(self._throttle, f"cache {self._cache!r}: {operation}", error)

    def load_failed(self, operation: str, key: str, error: Exception) -> None:
        """Log that a load failed and the old value is served; at most one in half a minute."""
        if self._throttle.passes("load") is not None:
            _log.warning(
                "cache %r: %s of %r failed (%s); the old value is served within its grace",
                self._cache,
                operation,
                key,
                type(error).__name__,
            )


class Suppressing(Protocol[D_co]):
    """A decorator whose functions may return the default too."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | D_co]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | D_co]: ...


@overload
def suppress_redis_errors(
    function: Callable[P, Coroutine[Any, Any, R]], /
) -> Callable[P, Coroutine[Any, Any, R | None]]: ...


@overload
def suppress_redis_errors(function: Callable[P, R], /) -> Callable[P, R | None]: ...


@overload
def suppress_redis_errors(
    *, only: Callable[[BaseException], bool] | None = None
) -> Suppressing[None]: ...


@overload
def suppress_redis_errors(
    *, default: D, only: Callable[[BaseException], bool] | None = None
) -> Suppressing[D]: ...


def suppress_redis_errors(
    function: Callable[..., Any] | None = None,
    /,
    *,
    default: Any = None,
    only: Callable[[BaseException], bool] | None = None,
) -> Any:
    """Let a function return None, or ``default``, where Redis cannot be asked.

    ::

        @suppress_redis_errors
        async def visits(user_id: int) -> int | None: ...


        @suppress_redis_errors(default=0, only=is_transient)
        def visits(user_id: int) -> int: ...

    Suppressed are redis-py's ``RedisError``, valkey-py's ``ValkeyError`` and fencekit's
    `StoreError`, and logged at most twice a minute; everything else propagates.

    Args:
        function: the function, sync or async, where the decorator is used bare.
        default: what it returns instead.
        only: which of these errors; `is_transient` lets a wrong password through, for example.

    Raises:
        TypeError: it decorates what is no function, or a generator, which returns before it runs;
            or ``only`` is no function.
    """
    if only is not None and not callable(only):
        msg = f"only must be a function that takes the error, not {type(only).__name__}"
        raise TypeError(msg)
    if function is None:
        return functools.partial(_suppressing, default=default, only=only)
    return _suppressing(function, default=default, only=only)


def _check_function(function: Callable[..., Any]) -> None:
    if not callable(function):
        msg = f"suppress_redis_errors decorates functions, not {function!r}"
        raise TypeError(msg)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        msg = "suppress_redis_errors cannot decorate a generator: it returns before it runs"
        raise TypeError(msg)
    if isinstance(function, staticmethod):
        msg = "suppress_redis_errors goes under @staticmethod: it decorates the function itself"
        raise TypeError(msg)


def _suppressing(
    function: Callable[..., Any],
    *,
    default: Any,
    only: Callable[[BaseException], bool] | None,
) -> Callable[..., Any]:
    _check_function(function)
    throttle = _Throttle()
    where = getattr(function, "__qualname__", repr(function))

    def suppress(error: Exception) -> bool:
        if not isinstance(error, (StoreError, *_redis_errors())):
            return False
        if only is not None and not only(error):
            return False
        _report(throttle, where, error)
        return True

    async def outcome(coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await coroutine
        except Exception as error:
            if suppress(error):
                return default
            raise

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            return await outcome(function(*args, **kwargs))

        return asynchronous

    @functools.wraps(function)
    def synchronous(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            if suppress(error):
                return default
            raise
        # Not every function that returns a coroutine looks like one: another decorator's wrapper.
        return outcome(result) if inspect.iscoroutine(result) else result

    return synchronous
