"""Durations as a decorator takes them: a timedelta, or text such as ``"30s"`` or ``"24h"``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, TypeAlias

from fencekit.durations import milliseconds

__all__ = ["Duration", "duration"]

Duration: TypeAlias = "timedelta | str"

_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])\s*")


def duration(value: Duration, what: str) -> timedelta:
    """Read a positive duration.

    Raises:
        TypeError: neither a timedelta nor a str. A bare number has no unit.
        ValueError: text that is no duration; not positive, or longer than ten years.
    """
    if isinstance(value, str):
        value = _read(value, what)
    elif not isinstance(value, timedelta):
        msg = f'{what} must be a timedelta or text such as "30s", not {type(value).__name__}'
        raise TypeError(msg)
    milliseconds(value, what)
    return value


def _read(text: str, what: str) -> timedelta:
    total, at = timedelta(0), 0
    stripped = text.strip()
    while at < len(stripped):
        part = _PART.match(stripped, at)
        if part is None:
            at = 0
            break
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if not at:
        msg = f'{what} must be a number with a unit of ms, s, m, h, d or w, as "90s" or "1h30m"'
        raise ValueError(f"{msg}, not {text!r}")
    return total
