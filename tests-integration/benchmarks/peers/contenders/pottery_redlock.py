"""pottery's Redlock, with one master."""

from __future__ import annotations

from typing import Any

from pottery import AIORedlock, Redlock


class lock:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del url
        self.lock = Redlock(key=name, masters={client}, auto_release_time=lease)

    def acquire(self) -> None:
        assert self.lock.acquire()

    def release(self, held: None) -> None:
        del held
        self.lock.release()


class alock:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del url
        self.lock = AIORedlock(key=name, masters={client}, auto_release_time=lease)

    async def acquire(self) -> None:
        assert await self.lock.acquire()

    async def release(self, held: None) -> None:
        del held
        await self.lock.release()
