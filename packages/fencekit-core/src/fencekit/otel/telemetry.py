"""Spans and measurements, made of the events that hooks are told."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from fencekit.hooks import (
    ClaimBegun,
    ClaimDone,
    ClaimLost,
    ClaimOutcome,
    FenceAdvanced,
    FenceRejected,
    LockAcquired,
    LockFailed,
    LockLost,
    LockReleased,
)
from fencekit.otel.measures import durations

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.util.types import AttributeValue

__all__ = ["Group", "Telemetry"]

# Leases whose end was never told are forgotten above this many.
_REMEMBERED: Final = 10_000

_T = TypeVar("_T")
Group = Callable[[str], str]


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


class Telemetry:
    """Turns events into spans and measurements.

    Args:
        tracer: makes the spans.
        meter: makes the measurements.
        group: as for `fencekit.otel.instrument`.
    """

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, group: Group | None) -> None:
        self._tracer = tracer
        self._group = group
        # No lock, which a fork would copy as it is: each step on these is one of the interpreter's.
        self._open: dict[_Key, _Open] = {}
        self._known_lost: dict[_Key, None] = {}
        self._waits = durations(
            meter,
            "fencekit.lock.wait.duration",
            "How long it took to be granted or refused a lock.",
        )
        self._holds = durations(
            meter,
            "fencekit.lock.hold.duration",
            "How long locks were held, until released or lost.",
        )
        self._runs = durations(
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
        """A lock was granted: it is open until it is released or lost."""
        self._grants.add(1, self._labels(event.resource))
        told = self._answered(event, "granted", {"fencekit.token": event.token})
        self._opened(("lock", event.resource, event.token), told)

    def failed(self, event: LockFailed) -> None:
        """A lock was not granted."""
        self._refusals.add(1, self._labels(event.resource))
        self._answered(event, "refused", {"fencekit.holder": event.holder})

    def _answered(
        self,
        event: LockAcquired | LockFailed,
        outcome: str,
        more: dict[str, AttributeValue | None],
    ) -> dict[str, AttributeValue]:
        """An acquire ends with one answer; returns what is told of it, but for the outcome."""
        answer: dict[str, AttributeValue] = {"fencekit.outcome": outcome}
        self._waits.record(event.waited_ms / 1000, self._labels(event.resource) | answer)
        told: dict[str, AttributeValue] = {
            "fencekit.resource": event.resource,
            "fencekit.owner_id": event.owner_id,
        }
        told |= {name: value for name, value in more.items() if value is not None}
        self._span("fencekit.lock.acquire", event.waited_ms, told | answer)
        return told

    def lost(self, event: LockLost) -> None:
        """A lease was lost while its lock was held."""
        self._hold_ended(event.resource, event.token, event.held_ms, "lost", released=False)

    def released(self, event: LockReleased) -> None:
        """A lock was released, with whatever verdict."""
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
        """A gate or a database refused a token."""
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
        """A gate let a token pass."""
        self._passed.add(1, self._labels(event.resource))

    # Claims.

    def begun(self, event: ClaimBegun) -> None:
        """An attempt began: it is open until it ends or is lost."""
        told: dict[str, AttributeValue] = {
            "fencekit.key": event.key,
            "fencekit.token": event.fence,
            "fencekit.attempt": event.attempt,
            "fencekit.reclaimed": event.reclaimed,
        }
        self._opened(("claim", event.key, event.fence), told)

    def outcome(self, event: ClaimOutcome) -> None:
        """A claim was answered."""
        self._outcomes.add(1, self._labels(event.key) | {"fencekit.outcome": event.outcome})
        if event.outcome == "already_done":
            trace.get_current_span().add_event(
                "fencekit.claim.replayed", {"fencekit.key": event.key}
            )

    def done(self, event: ClaimDone) -> None:
        """An attempt ended by itself."""
        self._run_ended(event.key, event.fence, event.ran_ms, event.ended)

    def claim_lost(self, event: ClaimLost) -> None:
        """An attempt's lease was lost."""
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


def _remember(memory: dict[_Key, _T], key: _Key, value: _T) -> None:
    memory[key] = value
    if len(memory) > _REMEMBERED:
        # Another thread may be quicker: then there is less to forget.
        with suppress(RuntimeError, StopIteration):
            memory.pop(next(iter(memory)), None)
