"""fencekit itself, from the sources beside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

from benchmarks.profile import Profile
from fencekit import AsyncDistributedLock, DistributedLock
from fencekit.cache import GenericCache, SyncGenericCache
from fencekit.fifo import FifoLock
from fencekit.idempotency import AsyncIdempotencyGuard, IdempotencyGuard

_KEEP = timedelta(minutes=5)


class lock:  # noqa: N801 - a role is called like a function
    """`DistributedLock`."""

    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del url
        self.locks, self.name, self.ttl = DistributedLock(client), name, timedelta(seconds=lease)

    def acquire(self) -> Any:
        return self.locks.acquire(self.name, ttl=self.ttl, wait=timedelta.max)

    def release(self, held: Any) -> None:
        self.locks.release(held)


class alock:  # noqa: N801 - a role is called like a function
    """`AsyncDistributedLock`."""

    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del url
        self.locks, self.name = AsyncDistributedLock(client), name
        self.ttl = timedelta(seconds=lease)

    async def acquire(self) -> Any:
        return await self.locks.acquire(self.name, ttl=self.ttl, wait=timedelta.max)

    async def release(self, held: Any) -> None:
        await self.locks.release(held)


def fifo(client: Any, url: str, name: str, lease: int) -> Any:
    """`FifoLock`."""
    del url
    return FifoLock(client, name, lease_ms=1000 * lease)


def jobs(client: Any, url: str, work: Callable[[], Any]) -> Callable[[str], Any]:
    """`IdempotencyGuard.run`, renewed while the work runs."""
    del url
    guard = IdempotencyGuard(client)
    return lambda key: guard.run(key, work, ttl=_KEEP)


def ajobs(client: Any, url: str, work: Callable[[], Any]) -> Callable[[str], Awaitable[Any]]:
    """`AsyncIdempotencyGuard.run`."""
    del url
    guard = AsyncIdempotencyGuard(client)
    return lambda key: guard.run(key, work, ttl=_KEEP)


class cache:  # noqa: N801 - a role is called like a function
    """`SyncGenericCache`."""

    def __init__(self, client: Any, url: str) -> None:
        del url

        class Profiles(SyncGenericCache[Profile]):
            redis_client = client

        self.cache = Profiles()
        self.get, self.load = self.cache.get, self.cache.get_or_load
        self.set, self.forget = self.cache.create, self.cache.invalidate

    def many(self, keys: Iterable[str]) -> list[Profile]:
        return list(self.cache.get_many(keys).values())


class acache:  # noqa: N801 - a role is called like a function
    """`GenericCache`."""

    def __init__(self, client: Any, url: str) -> None:
        del url

        class Profiles(GenericCache[Profile]):
            redis_client = client

        self.cache = Profiles()
        self.get, self.load = self.cache.get, self.cache.get_or_load
        self.set, self.forget = self.cache.create, self.cache.invalidate

    async def many(self, keys: Iterable[str]) -> list[Profile]:
        return list((await self.cache.get_many(keys)).values())
