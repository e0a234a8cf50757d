"""portalocker's `RedisLock`: held by a subscription, hence without a lease."""

from __future__ import annotations

from typing import Any

import portalocker

_PATIENCE = 60.0  # by default it gives up after five seconds


class lock:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del url, lease
        self.lock = portalocker.RedisLock(
            name, connection=client, timeout=_PATIENCE, interrupt_on_lost=False
        )

    def acquire(self) -> None:
        self.lock.acquire()

    def release(self, held: None) -> None:
        del held
        self.lock.release()
