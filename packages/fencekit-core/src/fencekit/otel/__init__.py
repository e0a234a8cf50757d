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

from typing import TYPE_CHECKING

import fencekit
from fencekit.hooks import FenceKitHooks, install_hooks

try:
    from opentelemetry import metrics, trace
except ImportError as missing:
    _MESSAGE = 'fencekit.otel needs opentelemetry-api: python -m pip install "fencekit-core[otel]"'
    raise ImportError(_MESSAGE) from missing

from fencekit.otel.caches import cache_hooks
from fencekit.otel.measures import SCOPE
from fencekit.otel.telemetry import Group, Telemetry

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["cache_hooks", "hooks", "instrument", "uninstrument"]


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
    told = Telemetry(
        trace.get_tracer(SCOPE, fencekit.__version__, tracer_provider),
        metrics.get_meter(SCOPE, fencekit.__version__, meter_provider),
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


def _checked(group: Group | None) -> Group | None:
    if group is not None and not callable(group):
        raise TypeError(f"group must be callable, not {type(group).__name__}")
    return group
