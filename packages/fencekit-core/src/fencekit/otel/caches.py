"""Metrics of caches: hooks of another kind, made here because core imports no satellite."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from opentelemetry import metrics

import fencekit
from fencekit.otel.measures import SCOPE, durations

if TYPE_CHECKING:
    from typing import Protocol

    from opentelemetry.metrics import MeterProvider

    from fencekit.cache.hooks import CacheHooks

    class _OfCache(Protocol):
        """An event of a cache."""

        @property
        def cache(self) -> str: ...

    class _Timed(_OfCache, Protocol):
        """An event of a cache that took time."""

        @property
        def seconds(self) -> float: ...

    class _Failed(_OfCache, Protocol):
        """A call that went on without Redis."""

        @property
        def operation(self) -> str: ...

        @property
        def error(self) -> str: ...


__all__ = ["cache_hooks"]


def cache_hooks(*, meter_provider: MeterProvider | None = None) -> CacheHooks:
    """Hooks for a cache class (``hooks = otel.cache_hooks()``); needs fencekit-cache.

    Metrics alone: a cache is asked too often for spans. They tell the cache's name.

    Args:
        meter_provider: where metrics go; the global one by default.

    Raises:
        ImportError: fencekit-cache is not installed.
    """
    try:
        # By name: core imports no satellite.
        module = import_module("fencekit.cache.hooks")
    except ImportError as error:
        msg = 'otel.cache_hooks() needs fencekit-cache: python -m pip install "fencekit-cache"'
        raise ImportError(msg) from error
    meter = metrics.get_meter(SCOPE, fencekit.__version__, meter_provider)
    lookups = meter.create_counter(
        "fencekit.cache.lookups", "{lookup}", "Entries that were looked for, by what was found."
    )
    fills = meter.create_counter(
        "fencekit.cache.fills", "{fill}", "Values that were loaded, by whether they may be stored."
    )
    stale = meter.create_counter(
        "fencekit.cache.stale",
        "{value}",
        "Values past their ttl that were served within the grace.",
    )
    loads = durations(meter, "fencekit.cache.load.duration", "How long loads took.")
    waits = durations(
        meter, "fencekit.cache.wait.duration", "How long the load of another was waited for."
    )
    errors = meter.create_counter(
        "fencekit.cache.errors", "{error}", "Calls that went on without Redis."
    )

    def looked(result: str) -> Callable[[_OfCache], None]:
        return lambda event: lookups.add(
            1, {"fencekit.cache": event.cache, "fencekit.result": result}
        )

    def loaded(event: _Timed) -> None:
        fills.add(1, {"fencekit.cache": event.cache, "fencekit.outcome": "loaded"})
        loads.record(event.seconds, {"fencekit.cache": event.cache})

    def fenced(event: _OfCache) -> None:
        fills.add(1, {"fencekit.cache": event.cache, "fencekit.outcome": "fenced"})

    def failed(event: _Failed) -> None:
        told = {
            "fencekit.cache": event.cache,
            "fencekit.operation": event.operation,
            "error.type": event.error,
        }
        errors.add(1, told)

    made: CacheHooks = module.CacheHooks(
        on_hit=looked("hit"),
        on_miss=looked("miss"),
        on_negative=looked("negative"),
        on_stale=lambda event: stale.add(1, {"fencekit.cache": event.cache}),
        on_loaded=loaded,
        on_waited=lambda event: waits.record(event.seconds, {"fencekit.cache": event.cache}),
        on_fenced=fenced,
        on_error=failed,
    )
    return made
