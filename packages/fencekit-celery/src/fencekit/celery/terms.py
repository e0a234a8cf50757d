"""What a task's decorator was told, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from fencekit.celery.durations import Duration, duration
from fencekit.durations import milliseconds

__all__ = ["Terms", "make_terms"]


@dataclass(frozen=True)
class Terms:
    """On what terms a task runs.

    Attributes:
        ttl_ms: how long the record is kept, counted from completion, milliseconds.
        lease: how long an attempt, and its lock, are protected without a renewal.
        lease_ms: the same in milliseconds.
        busy_timeout: how long a message is put off in all for what others hold.
        max_attempts: attempts to make in all; 0: no limit.
        drops_busy: whether a copy that finds another message at work is dropped.
        replays: whether a copy that finds the work done is answered with its result.
        terminal_for: exceptions after which no attempt is made any more.
    """

    ttl_ms: int
    lease: timedelta
    lease_ms: int
    busy_timeout: timedelta
    max_attempts: int
    drops_busy: bool
    replays: bool
    terminal_for: tuple[type[BaseException], ...]


def make_terms(
    *,
    ttl: Duration | None,
    idempotency_ttl: Duration | None,
    lease: Duration | None,
    lock_ttl: Duration | None,
    busy_timeout: Duration,
    max_attempts: int | None,
    on_busy: Literal["defer", "drop"] | None,
    retry_on_in_progress: bool | None,
    on_done: Literal["replay", "ignore"],
    terminal_for: Iterable[type[BaseException]],
) -> Terms:
    """Check what a decorator was told.

    Raises:
        TypeError: an argument of another type, or one thing said twice.
        ValueError: a word, number or duration that makes no sense.
    """
    lease_time = duration(_one(lease, lock_ttl, "lease", "lock_ttl", "30s"), "lease")
    busy = duration(busy_timeout, "busy_timeout")
    if busy < lease_time:
        msg = f"busy_timeout ({busy}) must be at least the lease ({lease_time}): until that is over"
        raise ValueError(f"{msg} nobody can tell a holder that died from one that works")
    if max_attempts is not None:
        if not isinstance(max_attempts, int) or isinstance(max_attempts, bool):
            raise TypeError(f"max_attempts must be an int or None, not {max_attempts!r}")
        if max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, and is {max_attempts}")
    if on_busy is not None and retry_on_in_progress is not None:
        raise TypeError("on_busy and retry_on_in_progress say the same: give one of them")
    if on_busy not in (None, "defer", "drop"):
        raise ValueError(f"on_busy must be 'defer' or 'drop', not {on_busy!r}")
    if on_done not in ("replay", "ignore"):
        raise ValueError(f"on_done must be 'replay' or 'ignore', not {on_done!r}")
    kept = duration(_one(ttl, idempotency_ttl, "ttl", "idempotency_ttl", "24h"), "ttl")
    return Terms(
        ttl_ms=milliseconds(kept, "ttl"),
        lease=lease_time,
        lease_ms=milliseconds(lease_time, "lease"),
        busy_timeout=busy,
        max_attempts=max_attempts or 0,
        drops_busy=on_busy == "drop" or retry_on_in_progress is False,
        replays=on_done == "replay",
        terminal_for=_exceptions(terminal_for),
    )


def _one(
    first: Duration | None, second: Duration | None, name: str, other: str, default: Duration
) -> Duration:
    if first is not None and second is not None:
        raise TypeError(f"{name} and {other} say the same: give one of them")
    return first if first is not None else second if second is not None else default


def _exceptions(kinds: Iterable[Any]) -> tuple[type[BaseException], ...]:
    checked = tuple(kinds) if isinstance(kinds, Iterable) else (kinds,)
    for kind in checked:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise TypeError(f"terminal_for must be exception classes, and has {kind!r}")
    return checked
