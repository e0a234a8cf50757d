"""Benchmarks of fencekit-fifo.

Modules:
    turns       cycles and hand-offs against the bare EVALSHA of the same client, and idle waiters
    peer        side by side with redis-fifo-lock, each in its own environment
"""

from __future__ import annotations

from benchmarks.fifo.peer import PEER
from benchmarks.fifo.turns import TURNS

SCENARIOS = (*TURNS, *PEER)
