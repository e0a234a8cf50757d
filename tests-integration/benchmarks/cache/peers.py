"""Side by side with ddredis, cashews, aiocache and dogpile.cache."""

from __future__ import annotations

from benchmarks.peers.beside import beside

__all__ = ["PEERS"]

PEERS = (beside("cache peers", "of the best peer's, each in its own environment", "Caches"),)
