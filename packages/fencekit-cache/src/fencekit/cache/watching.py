"""Who tells the hooks what a cache does."""

from __future__ import annotations

from typing import Any, Literal

from fencekit.cache.definition import Definition
from fencekit.cache.hooks import (
    CacheFenced,
    CacheHit,
    CacheLoaded,
    CacheMiss,
    CacheNegative,
    CacheStale,
    CacheWaited,
)
from fencekit.errors import FenceKitError

__all__ = ["Observer"]


class Observer:
    """Tells the hooks of a class, if it has some, of what one of its methods does."""

    __slots__ = ("_cache", "_habit", "_hooks", "_what")

    def __init__(self, definition: Definition[Any], what: str) -> None:
        self._hooks = definition.hooks
        self._habit = definition.habit
        self._cache = definition.policy.domain
        self._what = what

    def looked(self, key: str, state: Literal["value", "negative", "miss"]) -> None:
        """An entry was looked for."""
        hooks = self._hooks
        if hooks is None:
            return
        if state == "value":
            if hooks.on_hit is not None:
                hooks.fire(hooks.on_hit, CacheHit(cache=self._cache, key=key))
        elif state == "negative":
            if hooks.on_negative is not None:
                hooks.fire(hooks.on_negative, CacheNegative(cache=self._cache, key=key))
        elif hooks.on_miss is not None:
            hooks.fire(hooks.on_miss, CacheMiss(cache=self._cache, key=key))

    def loaded(self, key: str, seconds: float) -> None:
        """A load has succeeded here."""
        hooks = self._hooks
        if hooks is not None and hooks.on_loaded is not None:
            hooks.fire(hooks.on_loaded, CacheLoaded(cache=self._cache, key=key, seconds=seconds))

    def waited(self, key: str, seconds: float) -> None:
        """Another's load was waited for."""
        hooks = self._hooks
        if hooks is not None and hooks.on_waited is not None:
            hooks.fire(hooks.on_waited, CacheWaited(cache=self._cache, key=key, seconds=seconds))

    def fenced(self, key: str) -> None:
        """A value was not stored: it may be older than an invalidation."""
        hooks = self._hooks
        if hooks is not None and hooks.on_fenced is not None:
            hooks.fire(hooks.on_fenced, CacheFenced(cache=self._cache, key=key))

    def stale(self, key: str, error: str | None = None) -> None:
        """A stale value was served."""
        hooks = self._hooks
        if hooks is not None and hooks.on_stale is not None:
            hooks.fire(hooks.on_stale, CacheStale(cache=self._cache, key=key, error=error))

    def load_failed(self, key: str, error: Exception) -> None:
        """A load failed here, and the old value is served instead."""
        self._habit.load_failed(self._what, key, error)
        self.stale(key, type(error).__name__)

    def trouble(self, what: str, error: FenceKitError) -> None:
        """The server could not be asked.

        Raises:
            StoreError: the application wants to know.
        """
        self._habit.note(what, error)
