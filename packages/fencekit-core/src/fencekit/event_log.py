"""A log record for each event, with a stable name and its facts as fields.

::

    from fencekit.event_log import log_hooks
    from fencekit.hooks import install_hooks

    install_hooks(log_hooks())

Records go to the logger ``fencekit.events``. Each has ``record.event``, a name that stays, such as
``fencekit.lock.lost``, and a ``record.fencekit`` mapping with the facts of the event: what a JSON
formatter writes, and a filter asks for. Names, tokens, times and verdicts; never a payload, a
result or the text of an error.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, Final

from fencekit.hooks import FenceKitHooks

__all__ = ["EVENTS", "log_hooks"]

_log = logging.getLogger("fencekit.events")

EVENTS: Final = {
    "on_acquired": ("fencekit.lock.acquired", logging.DEBUG),
    "on_failed": ("fencekit.lock.refused", logging.DEBUG),
    "on_released": ("fencekit.lock.released", logging.DEBUG),
    "on_lost": ("fencekit.lock.lost", logging.WARNING),
    "on_waited": ("fencekit.lock.waited", logging.DEBUG),
    "on_rejected": ("fencekit.fence.rejected", logging.WARNING),
    "on_advanced": ("fencekit.fence.passed", logging.DEBUG),
    "on_begin": ("fencekit.claim.begun", logging.DEBUG),
    "on_outcome": ("fencekit.claim.answered", logging.DEBUG),
    "on_done": ("fencekit.claim.ended", logging.INFO),
    "on_claim_lost": ("fencekit.claim.lost", logging.WARNING),
}
"""The name and the level of the record of each event, by its hook."""


def log_hooks(logger: logging.Logger | None = None) -> FenceKitHooks:
    """Hooks that write a log record for each event.

    Args:
        logger: where to; ``fencekit.events`` by default.
    """
    chosen = _log if logger is None else logger
    callbacks: dict[str, Any] = {
        hook: _writer(chosen, name, level) for hook, (name, level) in EVENTS.items()
    }
    return FenceKitHooks(**callbacks)


def _writer(logger: logging.Logger, name: str, level: int) -> Callable[[Any], None]:
    def write(event: Any) -> None:
        if logger.isEnabledFor(level):
            facts = dataclasses.asdict(event)
            subject = facts.get("resource", facts.get("key"))
            told = " ".join(f"{field}={fact}" for field, fact in facts.items() if fact != subject)
            logger.log(
                level, "%s %r %s", name, subject, told, extra={"event": name, "fencekit": facts}
            )

    return write
