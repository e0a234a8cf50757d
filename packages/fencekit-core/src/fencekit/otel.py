"""Spans and metrics by OpenTelemetry's conventions (extra `otel`).

::

    from fencekit import otel

    otel.instrument()  # where logging is set up, before locks and guards are made

Every lock, gate and guard made from then on reports to the global providers, or to those given.
Names and units are in docs/reference/metrics.md, and stay. Without an SDK nothing is recorded.

A span is made when the thing it is about has ended, with the times at which it began and ended, as
a child of the span in which it began. Spans tell names, tokens and verdicts, never a payload, a
result or the text of an error. Metrics tell no names either, since a backend keeps a series for
each; ``group`` may make a few groups of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

import fencekit
from fencekit.hooks import (
    ClaimBegun,
    ClaimDone,
    ClaimLost,
    ClaimOutcome,
    FenceAdvanced,
    FenceKitHooks,
    FenceRejected,
    LockAcquired,
    LockFailed,
    LockLost,
    LockReleased,
    install_hooks,
)

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.trace import SpanKind, Status, StatusCode
except ImportError as missing:
    _MESSAGE = 'fencekit.otel needs opentelemetry-api: python -m pip install "fencekit-core[otel]"'
    raise ImportError(_MESSAGE) from missing

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

    from fencekit.cache.hooks import CacheHooks

__all__ = ["cache_hooks", "hooks", "instrument", "uninstrument"]

_SCOPE: Final = "fencekit"
# From a round trip to an hour: the SDK's own boundaries are made for milliseconds.
_SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)
# Leases whose end was never told are forgotten above this many.
_REMEMBERED: Final = 10_000

_T = TypeVar("_T")
Group = Callable[[str], str]


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    group: Group | None = None,
) -> FenceKitHooks:
    """Have every lock, gate and guard that is made from now on report; returns the hooks.

    Beside the ``hooks=`` of its own. Objects that were made before are not changed. Caches have
    hooks of another kind, see `cache_hooks`.

    Args:
        tracer_provider: where spans go; the global one by default.
        meter_provider: where metrics go; the global one by default.
        group: turns a resource or key into one of a few words, told with each metric as
            ``fencekit.group``, e.g. ``lambda name: name.partition(":")[0]``.

    Raises:
        TypeError: the group cannot be called.
    """
    chosen = hooks(tracer_provider=tracer_provider, meter_provider=meter_provider, group=group)
    install_hooks(chosen)
    return chosen


def uninstrument() -> None:
    """Objects made from now on report to nobody but their own ``hooks=``."""
    install_hooks(None)


def hooks(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    group: Group | None = None,
) -> FenceKitHooks:
    """Hooks that report, for the objects they are given to; arguments as for `instrument`.

    Raises:
        TypeError: the group cannot be called.
    """
    told = _Telemetry(
        trace.get_tracer(_SCOPE, fencekit.__version__, tracer_provider),
        metrics.get_meter(_SCOPE, fencekit.__version__, meter_provider),
        _checked(group),
    )
    return FenceKitHooks(
        on_acquired=told.acquired,
        on_failed=told.failed,
        on_released=told.released,
        on_lost=told.lost,
        on_rejected=told.rejected,
        on_advanced=told.advanced,
        on_begin=told.begun,
        on_outcome=told.outcome,
        on_done=told.done,
        on_claim_lost=told.claim_lost,
    )


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
    meter = metrics.get_meter(_SCOPE, fencekit.__version__, meter_provider)
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
    loads = _durations(meter, "fencekit.cache.load.duration", "How long loads took.")
    waits = _durations(
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


@dataclass(frozen=True)
class _Open:
    """A lease or an attempt that was granted here and has not ended yet.

    Attributes:
        began_ns: when, nanoseconds of the wall clock.
        context: the span in which it was granted.
        told: what its span will tell.
    """

    began_ns: int
    context: Context
    told: dict[str, AttributeValue]


_Key = tuple[str, str, int]


class _Telemetry:
    """Turns events into spans and measurements."""

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, group: Group | None) -> None:
        self._tracer = tracer
        self._group = group
        # No lock, which a fork would copy as it is: each step on these is one of the interpreter's.
        self._open: dict[_Key, _Open] = {}
        self._known_lost: dict[_Key, None] = {}
        self._waits = _durations(
            meter,
            "fencekit.lock.wait.duration",
            "How long it took to be granted or refused a lock.",
        )
        self._holds = _durations(
            meter,
            "fencekit.lock.hold.duration",
            "How long locks were held, until released or lost.",
        )
        self._runs = _durations(
            meter, "fencekit.claim.run.duration", "How long attempts ran, until ended or lost."
        )
        self._grants = meter.create_counter(
            "fencekit.lock.grants", "{grant}", "Locks that were granted."
        )
        self._refusals = meter.create_counter(
            "fencekit.lock.refusals", "{refusal}", "Locks that were not granted: they were taken."
        )
        self._lost = meter.create_counter(
            "fencekit.lease.lost", "{lease}", "Leases of locks and attempts that were lost."
        )
        self._rejected = meter.create_counter(
            "fencekit.fence.rejections", "{write}", "Writes and checks that a gate refused."
        )
        self._passed = meter.create_counter(
            "fencekit.fence.passes", "{write}", "Writes and checks that a gate let pass."
        )
        self._outcomes = meter.create_counter(
            "fencekit.claim.outcomes",
            "{claim}",
            "Claims, by how they were answered: begun, reclaimed, replayed (already_done), …",
        )

    # Locks.

    def acquired(self, event: LockAcquired) -> None:
        labels = self._labels(event.resource)
        self._grants.add(1, labels)
        self._waits.record(event.waited_ms / 1000, labels | {"fencekit.outcome": "granted"})
        told: dict[str, AttributeValue] = {
            "fencekit.resource": event.resource,
            "fencekit.token": event.token,
            "fencekit.owner_id": event.owner_id,
        }
        self._span("fencekit.lock.acquire", event.waited_ms, told | {"fencekit.outcome": "granted"})
        self._opened(("lock", event.resource, event.token), told)

    def failed(self, event: LockFailed) -> None:
        labels = self._labels(event.resource)
        self._refusals.add(1, labels)
        self._waits.record(event.waited_ms / 1000, labels | {"fencekit.outcome": "refused"})
        told: dict[str, AttributeValue] = {
            "fencekit.resource": event.resource,
            "fencekit.owner_id": event.owner_id,
            "fencekit.outcome": "refused",
        }
        if event.holder is not None:
            told["fencekit.holder"] = event.holder
        self._span("fencekit.lock.acquire", event.waited_ms, told)

    def lost(self, event: LockLost) -> None:
        self._hold_ended(event.resource, event.token, event.held_ms, "lost", released=False)

    def released(self, event: LockReleased) -> None:
        self._hold_ended(event.resource, event.token, event.held_ms, event.verdict, released=True)

    def _hold_ended(
        self, resource: str, token: int, held_ms: float, verdict: str, *, released: bool
    ) -> None:
        """A hold ends when its lease is lost or released, whichever is told first."""
        key = ("lock", resource, token)
        if not released:
            _remember(self._known_lost, key, None)
        found = self._open.pop(key, None)
        if released and self._known_lost.pop(key, self) is None:
            return
        labels = self._labels(resource)
        self._holds.record(held_ms / 1000, labels | {"fencekit.outcome": verdict})
        if verdict == "lost":
            self._lost.add(1, labels | {"fencekit.kind": "lock"})
        told: dict[str, AttributeValue] = {"fencekit.resource": resource, "fencekit.token": token}
        self._ended("fencekit.lock.hold", held_ms, told, verdict, found)

    # Gates.

    def rejected(self, event: FenceRejected) -> None:
        self._rejected.add(1, self._labels(event.resource))
        told: dict[str, AttributeValue] = {
            "fencekit.resource": event.resource,
            "fencekit.token": event.token,
        }
        if event.current is not None:
            told["fencekit.current_token"] = event.current
        # A moment, not a stretch of time: it belongs to the span that it happened in.
        trace.get_current_span().add_event("fencekit.fence.rejected", told)

    def advanced(self, event: FenceAdvanced) -> None:
        self._passed.add(1, self._labels(event.resource))

    # Claims.

    def begun(self, event: ClaimBegun) -> None:
        told: dict[str, AttributeValue] = {
            "fencekit.key": event.key,
            "fencekit.token": event.fence,
            "fencekit.attempt": event.attempt,
            "fencekit.reclaimed": event.reclaimed,
        }
        self._opened(("claim", event.key, event.fence), told)

    def outcome(self, event: ClaimOutcome) -> None:
        self._outcomes.add(1, self._labels(event.key) | {"fencekit.outcome": event.outcome})
        if event.outcome == "already_done":
            trace.get_current_span().add_event(
                "fencekit.claim.replayed", {"fencekit.key": event.key}
            )

    def done(self, event: ClaimDone) -> None:
        self._run_ended(event.key, event.fence, event.ran_ms, event.ended)

    def claim_lost(self, event: ClaimLost) -> None:
        self._lost.add(1, self._labels(event.key) | {"fencekit.kind": "claim"})
        self._run_ended(event.key, event.fence, event.ran_ms, "lost")

    def _run_ended(self, key: str, fence: int, ran_ms: float, ended: str) -> None:
        found = self._open.pop(("claim", key, fence), None)
        self._runs.record(ran_ms / 1000, self._labels(key) | {"fencekit.outcome": ended})
        told: dict[str, AttributeValue] = {"fencekit.key": key, "fencekit.token": fence}
        self._ended("fencekit.claim.run", ran_ms, told, ended, found)

    # Both.

    def _labels(self, name: str) -> dict[str, AttributeValue]:
        return {} if self._group is None else {"fencekit.group": self._group(name)}

    def _opened(self, key: _Key, told: dict[str, AttributeValue]) -> None:
        _remember(self._open, key, _Open(time.time_ns(), contexts.get_current(), told))

    def _ended(
        self,
        name: str,
        took_ms: float,
        told: dict[str, AttributeValue],
        outcome: str,
        found: _Open | None,
    ) -> None:
        if found is not None:
            told = found.told
        self._span(name, took_ms, told | {"fencekit.outcome": outcome}, found)

    def _span(
        self,
        name: str,
        took_ms: float,
        told: dict[str, AttributeValue],
        opened: _Open | None = None,
    ) -> None:
        """Make a span of something that ended just now, as long as it took."""
        took_ns = int(took_ms * 1_000_000)
        began_ns = time.time_ns() - took_ns if opened is None else opened.began_ns
        span = self._tracer.start_span(
            name,
            context=None if opened is None else opened.context,
            kind=SpanKind.INTERNAL,
            attributes=told,
            start_time=began_ns,
        )
        if told.get("fencekit.outcome") == "lost":
            span.set_status(Status(StatusCode.ERROR, "the lease was lost"))
        # By the monotonic clock: the wall clock may have been set meanwhile.
        span.end(began_ns + took_ns)


if TYPE_CHECKING:
    from typing import Protocol

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


def _checked(group: Group | None) -> Group | None:
    if group is not None and not callable(group):
        raise TypeError(f"group must be callable, not {type(group).__name__}")
    return group


def _durations(meter: metrics.Meter, name: str, description: str) -> Histogram:
    return meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=list(_SECONDS)
    )


def _remember(memory: dict[_Key, _T], key: _Key, value: _T) -> None:
    memory[key] = value
    if len(memory) > _REMEMBERED:
        # Another thread may be quicker: then there is less to forget.
        with suppress(RuntimeError, StopIteration):
            memory.pop(next(iter(memory)), None)
