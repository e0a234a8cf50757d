"""cashews: its lock, its commands, and its decorator with the lock against stampedes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from cashews import Cache

from benchmarks.profile import Profile


def _cache(url: str) -> Any:
    made = Cache()
    made.setup(url)
    return made


class alock:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str, name: str, lease: int) -> None:
        del client
        self.cache, self.name, self.lease = _cache(url), name, lease

    async def acquire(self) -> Any:
        held = self.cache.lock(self.name, expire=self.lease)
        await held.__aenter__()
        return held

    async def release(self, held: Any) -> None:
        await held.__aexit__(None, None, None)


class acache:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str) -> None:
        del client
        self.cache = _cache(url)
        self.loader: Any = None

        @self.cache(ttl=600, key="profile:{key}", lock=True)  # type: ignore[untyped-decorator]
        async def through(key: str) -> Any:
            del key
            return (await self.loader()).model_dump_json()

        self.through = through

    async def get(self, key: str) -> Profile | None:
        raw = await self.cache.get(f"profile:{key}")
        return None if raw is None else Profile.model_validate_json(raw)

    async def set(self, key: str, value: Profile) -> None:
        await self.cache.set(f"profile:{key}", value.model_dump_json(), expire=600)

    async def forget(self, key: str) -> None:
        await self.cache.delete(f"profile:{key}")

    async def load(self, key: str, load: Callable[[], Awaitable[Profile]]) -> Profile:
        self.loader = load
        return Profile.model_validate_json(await self.through(key))

    async def many(self, keys: Iterable[str]) -> list[Profile]:
        raw = await self.cache.get_many(*(f"profile:{key}" for key in keys))
        return [Profile.model_validate_json(each) for each in raw]
