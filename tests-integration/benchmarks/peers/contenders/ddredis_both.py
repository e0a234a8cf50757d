"""ddredis: `RedisLock` and `GenericCache`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import redis.asyncio
from ddutils.connections import ConnectionManagerFactory
from ddutils.scoped_registry import ScopedRegistry, process_loop_scope

from benchmarks.profile import Profile


def _factory(url: str) -> Any:
    registry = ScopedRegistry(
        create_func=partial(redis.asyncio.Redis.from_url, url),
        scope_func=process_loop_scope,
        destructor_method_name="aclose",
    )
    return ConnectionManagerFactory({"redis": registry}, default="redis")


class alock:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        from ddredis.lock import RedisLock  # noqa: PLC0415 - the cache is asked without it

        del client
        self.lock = RedisLock(_factory(url), name, timeout=lease, blocking=True)

    async def acquire(self) -> None:
        await self.lock.acquire()

    async def release(self, held: None) -> None:
        del held
        await self.lock.release()


class acache:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str) -> None:
        from ddredis.cache import GenericCache  # noqa: PLC0415 - the lock is asked without it

        del client
        factory = _factory(url)

        class Profiles(GenericCache[Profile]):  # type: ignore[misc]
            ttl = 600
            client_factory = factory

        self.cache = Profiles()

    async def get(self, key: str) -> Any:
        return await self.cache.get(key=key)

    async def set(self, key: str, value: Profile) -> None:
        await self.cache.create(key=key, value=value)

    async def forget(self, key: str) -> None:
        await self.cache.delete(key=key)

    async def load(self, key: str, load: Callable[[], Awaitable[Profile]]) -> Profile:
        """By hand: it has nothing for it."""
        value = await self.cache.get(key=key)
        if value is None:
            value = await load()
            await self.cache.create(key=key, value=value)
        return value  # type: ignore[no-any-return]
