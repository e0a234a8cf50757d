"""aiocache on Redis, with its decorator against stampedes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from aiocache import Cache, cached_stampede
from aiocache.serializers import StringSerializer

from benchmarks.profile import Profile


class acache:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str) -> None:
        del client
        parts = urlsplit(url)
        options = {
            "endpoint": parts.hostname,
            "port": parts.port,
            "serializer": StringSerializer(),
        }
        self.cache: Any = Cache(Cache.REDIS, **options)
        self.loader: Any = None

        @cached_stampede(  # type: ignore[untyped-decorator]
            ttl=600,
            key_builder=lambda _function, key: f"profile:{key}",
            lease=2,
            cache=Cache.REDIS,
            **options,
        )
        async def through(key: str) -> Any:
            del key
            return (await self.loader()).model_dump_json()

        self.through = through

    async def get(self, key: str) -> Profile | None:
        raw = await self.cache.get(f"profile:{key}")
        return None if raw is None else Profile.model_validate_json(raw)

    async def set(self, key: str, value: Profile) -> None:
        await self.cache.set(f"profile:{key}", value.model_dump_json(), ttl=600)

    async def forget(self, key: str) -> None:
        await self.cache.delete(f"profile:{key}")

    async def load(self, key: str, load: Callable[[], Awaitable[Profile]]) -> Profile:
        self.loader = load
        return Profile.model_validate_json(await self.through(key))

    async def many(self, keys: Iterable[str]) -> list[Profile]:
        raw = await self.cache.multi_get([f"profile:{key}" for key in keys])
        return [Profile.model_validate_json(each) for each in raw]
