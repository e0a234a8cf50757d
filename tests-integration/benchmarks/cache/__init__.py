"""Benchmarks of fencekit-cache.

Modules:
    entries     a hit, a write and many hits, against the bare client, in both colours
    prefixes    get_list among foreign keys, in commands, against SCAN and GET
    memory      what an entry takes beside a plain SET
    peers       ddredis, cashews, aiocache and dogpile.cache, each in its own environment
"""

from __future__ import annotations

from benchmarks.cache.entries import ENTRIES
from benchmarks.cache.memory import MEMORY
from benchmarks.cache.peers import PEERS
from benchmarks.cache.prefixes import PREFIXES

SCENARIOS = (*ENTRIES, *PREFIXES, *MEMORY, *PEERS)
