"""The slow part of a job: a bank is asked to confirm, over a network that is not there."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo.deliveries import Event

__all__ = ["Bank"]

_FASTEST, _SLOWEST = 0.015, 0.065


class Bank:
    """Takes its time, and always the same time for the same event."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def confirm(self, event: Event) -> None:
        """Wait for the bank. Asking it twice does no harm: its API is idempotent."""
        time.sleep(Random(f"{self._seed}:{event.id}").uniform(_FASTEST, _SLOWEST))
