"""redis-fifo-lock: the only peer that serves in order of arrival."""

from __future__ import annotations

from typing import Any

from redis_fifo_lock import FifoLock


def fifo(client: Any, url: str, name: str, lease: int) -> Any:
    del url
    return FifoLock(client, name, lease_ms=1000 * lease)


alock = fifo
