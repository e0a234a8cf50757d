"""redis-py's own `Lock`."""

from __future__ import annotations

from typing import Any


class lock:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del url
        self.lock = client.lock(name, timeout=lease)

    def acquire(self) -> None:
        self.lock.acquire()

    def release(self, held: None) -> None:
        del held
        self.lock.release()


class alock:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del url
        self.lock = client.lock(name, timeout=lease)

    async def acquire(self) -> None:
        await self.lock.acquire()

    async def release(self, held: None) -> None:
        del held
        await self.lock.release()
