"""Callbacks for what a cache does: to count it, time it or trace it.

Events tell the cache, the key and times; never a value. See `fencekit.hooks` for what a callback
may and may not do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencekit.hooks import Hooks

__all__ = [
    "CacheError",
    "CacheFenced",
    "CacheHit",
    "CacheHooks",
    "CacheLoaded",
    "CacheMiss",
    "CacheNegative",
    "CacheStale",
    "CacheWaited",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """What every event tells.

    Attributes:
        cache: the cache's name, as in its keys.
        key: the key, as text.
    """

    cache: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheHit(_Event):
    """A value was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMiss(_Event):
    """Nothing of use was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheNegative(_Event):
    """It was found on record that there is nothing to be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStale(_Event):
    """A value past its ttl was served within its grace.

    Attributes:
        error: the class of the exception for which a load failed here, or None where another load
            is under way.
    """

    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLoaded(_Event):
    """A load succeeded here.

    Attributes:
        seconds: how long it took.
    """

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheWaited(_Event):
    """The load of another was waited for.

    Attributes:
        seconds: how long.
    """

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFenced(_Event):
    """A loaded value was not stored: something was invalidated meanwhile, or its lease was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheError:
    """The server could not be asked, and the caller went on without it.

    Attributes:
        cache: the cache's name, as in its keys.
        operation: the method that was called.
        error: the class of the error.
        transient: whether it may pass by itself.
    """

    cache: str
    operation: str
    error: str
    transient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheHooks(Hooks):
    """Callbacks to be told of a cache's events; each is optional.

    Attributes:
        on_hit: told of each `CacheHit`.
        on_miss: told of each `CacheMiss`.
        on_negative: told of each `CacheNegative`.
        on_stale: told of each `CacheStale`.
        on_loaded: told of each `CacheLoaded`.
        on_waited: told of each `CacheWaited`.
        on_fenced: told of each `CacheFenced`.
        on_error: told of each `CacheError`.

    Raises:
        TypeError: a callback cannot be called, or is asynchronous: nothing would await it.
    """

    on_hit: Callable[[CacheHit], object] | None = None
    on_miss: Callable[[CacheMiss], object] | None = None
    on_negative: Callable[[CacheNegative], object] | None = None
    on_stale: Callable[[CacheStale], object] | None = None
    on_loaded: Callable[[CacheLoaded], object] | None = None
    on_waited: Callable[[CacheWaited], object] | None = None
    on_fenced: Callable[[CacheFenced], object] | None = None
    on_error: Callable[[CacheError], object] | None = None
