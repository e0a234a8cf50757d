"""Durations, checked and turned into what the protocol counts in."""

from __future__ import annotations

from datetime import timedelta

__all__ = ["LONGEST_LEASE", "milliseconds", "seconds_to_wait"]

# Ten years: far beyond any lease or record, and exact in Lua's doubles.
LONGEST_LEASE = timedelta(days=3653)
_ZERO = timedelta(0)


def milliseconds(duration: timedelta, what: str) -> int:
    """Turn a positive duration into milliseconds, at least 1.

    Raises:
        TypeError: not a timedelta.
        ValueError: not positive, or longer than ten years.
    """
    if not isinstance(duration, timedelta):
        msg = f"{what} must be a timedelta, not {type(duration).__name__}"
        raise TypeError(msg)
    if not _ZERO < duration <= LONGEST_LEASE:
        msg = f"{what} must be above zero and at most ten years, not {duration}"
        raise ValueError(msg)
    # In integers: a division of timedeltas costs as much as packing a command.
    microseconds = (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds
    return max(1, (microseconds + 500) // 1000)


def seconds_to_wait(wait: timedelta | None, *, blocking: bool) -> float | None:
    """Turn the two arguments about waiting into seconds, None for not waiting at all.

    Raises:
        TypeError: ``wait`` is neither None nor a timedelta.
        ValueError: ``wait`` is negative, or ``blocking`` was asked for without saying how long.
    """
    if wait is None:
        if blocking:
            msg = "blocking=True needs wait=; timedelta.max waits for ever"
            raise ValueError(msg)
        return None
    if not isinstance(wait, timedelta):
        msg = f"wait must be a timedelta or None, not {type(wait).__name__}"
        raise TypeError(msg)
    if wait < _ZERO:
        msg = f"wait must not be negative, and is {wait}"
        raise ValueError(msg)
    return wait.total_seconds()
