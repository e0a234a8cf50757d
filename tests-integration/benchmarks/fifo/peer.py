"""Side by side with redis-fifo-lock, the only other that serves in order of arrival."""

from __future__ import annotations

from benchmarks.peers.beside import beside

__all__ = ["PEER"]

PEER = (beside("fifo-peer", "of redis-fifo-lock's, each in its own environment", "FIFO locks"),)
