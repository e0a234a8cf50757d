"""Runs in the peers' environment: each cache as its documentation uses it, on one server.

Tells JSON: for each cache the speed of a hit and of a write as a part of the bare client's, the
loader calls in a stampede, and stale values after loads that were invalidated under way.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import redis.asyncio

from benchmarks.figures import arace
from benchmarks.profile import Profile, profile
from fencekit.cache import GenericCache

_STAMPEDE = 200
_RACES = 50


class Contender:
    """A cache: how it reads, writes, forgets, and reads through a loader."""

    async def get(self) -> Any:
        raise NotImplementedError

    async def set(self, value: Profile) -> None:
        raise NotImplementedError

    async def invalidate(self) -> None:
        raise NotImplementedError

    async def get_or_load(self, load: Callable[[], Awaitable[Profile]]) -> Any:
        """Read, or load and write: by hand, where the cache has nothing of its own."""
        value = await self.get()
        if value is None:
            value = await load()
            await self.set(value)
        return value


class Bare(Contender):
    def __init__(self, client: Any) -> None:
        self.client = client

    async def get(self) -> Any:
        raw = await self.client.get("bare")
        return None if raw is None else Profile.model_validate_json(raw)

    async def set(self, value: Profile) -> None:
        await self.client.set("bare", value.model_dump_json(), ex=600)

    async def invalidate(self) -> None:
        await self.client.delete("bare")


class Fencekit(Contender):
    def __init__(self, client: Any) -> None:
        class Profiles(GenericCache[Profile]):
            redis_client = client

        self.cache = Profiles()

    async def get(self) -> Any:
        return await self.cache.get(1)

    async def set(self, value: Profile) -> None:
        await self.cache.create(1, value)

    async def invalidate(self) -> None:
        await self.cache.invalidate(1)

    async def get_or_load(self, load: Callable[[], Awaitable[Profile]]) -> Any:
        return await self.cache.get_or_load(1, load)


class Ddredis(Contender):
    def __init__(self, url: str) -> None:
        from ddredis.cache import GenericCache as PeerCache  # noqa: PLC0415 - only in its turn
        from ddutils.connections import ConnectionManagerFactory  # noqa: PLC0415 - only in its turn
        from ddutils.scoped_registry import ScopedRegistry, process_loop_scope  # noqa: PLC0415 - only in its turn

        registry = ScopedRegistry(
            create_func=partial(redis.asyncio.Redis.from_url, url),
            scope_func=process_loop_scope,
            destructor_method_name="aclose",
        )
        factory = ConnectionManagerFactory({"cache": registry}, default="cache")

        class Profiles(PeerCache[Profile]):  # type: ignore[misc]
            ttl = 600
            client_factory = factory

        self.cache = Profiles()

    async def get(self) -> Any:
        return await self.cache.get(key=1)

    async def set(self, value: Profile) -> None:
        await self.cache.create(key=1, value=value)

    async def invalidate(self) -> None:
        await self.cache.delete(key=1)


class Cashews(Contender):
    def __init__(self, url: str) -> None:
        from cashews import Cache  # noqa: PLC0415 - only in its turn

        self.cache = Cache()
        self.cache.setup(url)
        self.load: Any = None

        @self.cache(ttl=600, key="through", lock=True)
        async def through() -> Any:
            return (await self.load()).model_dump_json()

        self.through = through

    async def get(self) -> Any:
        raw = await self.cache.get("profile")
        return None if raw is None else Profile.model_validate_json(raw)

    async def set(self, value: Profile) -> None:
        await self.cache.set("profile", value.model_dump_json(), expire=600)

    async def invalidate(self) -> None:
        await self.cache.delete("through")

    async def get_or_load(self, load: Callable[[], Awaitable[Profile]]) -> Any:
        self.load = load
        return Profile.model_validate_json(await self.through())


class Aiocache(Contender):
    def __init__(self, url: str) -> None:
        from aiocache import Cache, cached_stampede  # noqa: PLC0415 - only in its turn
        from aiocache.serializers import StringSerializer  # noqa: PLC0415 - only in its turn

        parts = urlsplit(url)
        options = {
            "endpoint": parts.hostname,
            "port": parts.port,
            "serializer": StringSerializer(),
        }
        self.cache: Any = Cache(Cache.REDIS, **options)
        self.load: Any = None

        @cached_stampede(ttl=600, key="through", lease=2, cache=Cache.REDIS, **options)
        async def through() -> Any:
            return (await self.load()).model_dump_json()

        self.through = through

    async def get(self) -> Any:
        raw = await self.cache.get("profile")
        return None if raw is None else Profile.model_validate_json(raw)

    async def set(self, value: Profile) -> None:
        await self.cache.set("profile", value.model_dump_json(), ttl=600)

    async def invalidate(self) -> None:
        await self.through.cache.delete("through")

    async def get_or_load(self, load: Callable[[], Awaitable[Profile]]) -> Any:
        self.load = load
        return Profile.model_validate_json(await self.through())


async def _stampede(contender: Contender) -> int:
    calls = 0

    async def load() -> Profile:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.05)
        return profile()

    await contender.invalidate()
    callers = (contender.get_or_load(load) for _ in range(_STAMPEDE))
    await asyncio.gather(*callers, return_exceptions=True)
    return calls


async def _races(contender: Contender) -> int:
    """Stale values, of loads that read before a change and end after its invalidation."""
    stale = 0
    for number in range(_RACES):
        await contender.invalidate()
        reading, ended = asyncio.Event(), asyncio.Event()

        async def old(
            number: int = number, reading: asyncio.Event = reading, ended: asyncio.Event = ended
        ) -> Profile:
            value = profile(number)
            reading.set()
            await ended.wait()
            return value

        async def new(number: int = number) -> Profile:
            return profile(number + 1_000_000)

        running = asyncio.create_task(contender.get_or_load(old))
        await reading.wait()
        await contender.invalidate()
        ended.set()
        await running
        stale += (await contender.get_or_load(new)).id == number
    return stale


async def main(url: str) -> None:
    client = redis.asyncio.Redis.from_url(url)
    contenders: dict[str, Contender] = {
        "bare": Bare(client),
        "fencekit": Fencekit(client),
        "ddredis": Ddredis(url),
        "cashews": Cashews(url),
        "aiocache": Aiocache(url),
    }
    value = profile()

    def cycles_of(call: Callable[[], Awaitable[Any]]) -> Callable[[int], Awaitable[None]]:
        async def run(cycles: int) -> None:
            for _ in range(cycles):
                await call()

        return run

    for contender in contenders.values():
        await contender.set(value)
    reads = {name: cycles_of(one.get) for name, one in contenders.items()}
    writes = {name: cycles_of(partial(one.set, value)) for name, one in contenders.items()}
    get = await arace(reads, rounds=15, cycles=150)
    write = await arace(writes, rounds=15, cycles=150)
    told = {}
    for name, contender in contenders.items():
        if name != "bare":
            told[name] = {
                "get": get.speed(name, "bare"),
                "set": write.speed(name, "bare"),
                "loads": await _stampede(contender),
                "stale": await _races(contender),
            }
    print(json.dumps(told))
    sys.stdout.flush()
    # The peers' clients have no common way to be closed.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
