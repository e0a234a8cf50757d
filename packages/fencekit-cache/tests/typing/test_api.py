"""What type checkers make of a cache and its methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import redis
import redis.asyncio
from pydantic import BaseModel
from typing_extensions import assert_type

from fencekit.cache import GenericCache, Lookup, SyncGenericCache, suppress_redis_errors


class Profile(BaseModel):
    id: int


class ProfileCache(GenericCache[Profile]):
    ttl = 10 * 60
    redis_client: ClassVar[redis.asyncio.Redis] = redis.asyncio.Redis()


class SyncProfileCache(SyncGenericCache[Profile]):
    ttl = 10 * 60
    redis_client: ClassVar[redis.Redis] = redis.Redis()


async def load() -> Profile | None:
    return None


async def load_many(keys: list[int]) -> Mapping[int, Profile]:
    return {key: Profile(id=key) for key in keys}


async def uses(cache: ProfileCache) -> None:
    assert_type(await cache.get(key=1), Profile | None)
    assert_type(await cache.lookup(1), Lookup[Profile])
    assert_type(await cache.get_list(key_prefix="a"), list[Profile])
    assert_type(await cache.get_or_load(1, load), Profile | None)
    assert_type(await cache.get_or_load(1, lambda: Profile(id=1)), Profile | None)
    assert_type(await cache.get_many([1, 2]), dict[int, Profile])
    assert_type(await cache.get_many(["a"]), dict[str, Profile])
    assert_type(await cache.get_or_load_many([1], load_many), dict[int, Profile])
    await cache.set_many({1: Profile(id=1)})
    await cache.create(key=1, value=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def uses_sync(cache: SyncProfileCache) -> None:
    assert_type(cache.get(key=1), Profile | None)
    assert_type(cache.get_many(["a"]), dict[str, Profile])
    assert_type(cache.get_or_load(1, lambda: Profile(id=1)), Profile | None)


@suppress_redis_errors
async def bare(key: int) -> int:
    return key


@suppress_redis_errors(default=0)
def configured(key: int) -> int:
    return key


async def decorated() -> None:
    assert_type(await bare(1), int | None)
    assert_type(configured(1), int)


def test_the_classes_are_what_they_say() -> None:
    assert issubclass(ProfileCache, GenericCache)
    assert issubclass(SyncProfileCache, SyncGenericCache)
