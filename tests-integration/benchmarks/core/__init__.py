"""Benchmarks of fencekit-core: one module for each group of scenarios.

Modules:
    cycles      acquire + release against the bare EVALSHA of the same client, and redis-py's Lock
    claims      begin, complete and replay against the same floor
    writes      the gate's write and a lock's extend against the same floor
    waiting     what a thousand idle waiters cost
    handoff     from a release to the next holder, against a BLPOP of the same client
    memory      what names leave behind, and what a lock takes while it is held
    startup     the import
"""

from __future__ import annotations

from benchmarks.core.claims import CLAIMS
from benchmarks.core.cycles import CYCLES
from benchmarks.core.handoff import HANDOFFS
from benchmarks.core.memory import MEMORY
from benchmarks.core.startup import STARTUP
from benchmarks.core.waiting import WAITING
from benchmarks.core.writes import WRITES

SCENARIOS = (*CYCLES, *CLAIMS, *WRITES, *HANDOFFS, *WAITING, *MEMORY, *STARTUP)
