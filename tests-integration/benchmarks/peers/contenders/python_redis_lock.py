"""python-redis-lock, without its renewing thread."""

from __future__ import annotations

from typing import Any

import redis_lock


class lock:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del url
        self.lock = redis_lock.Lock(client, name, expire=lease)

    def acquire(self) -> None:
        self.lock.acquire()

    def release(self, held: None) -> None:
        del held
        self.lock.release()
