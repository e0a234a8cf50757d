"""py-redis-semaphore's `Mutex`, which renews itself."""

from __future__ import annotations

from typing import Any

from redis_semaphore import Mutex


class lock:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del url
        self.lock = Mutex(client, name, lock_timeout=lease)

    def acquire(self) -> None:
        assert self.lock.acquire().success

    def release(self, held: None) -> None:
        del held
        assert self.lock.release()


class alock:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del url
        self.lock = Mutex(client, name, lock_timeout=lease)

    async def acquire(self) -> None:
        assert (await self.lock.aacquire()).success

    async def release(self, held: None) -> None:
        del held
        assert await self.lock.arelease()
