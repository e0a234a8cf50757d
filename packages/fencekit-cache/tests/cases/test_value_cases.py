"""Rows about what is cached, and for how long; see `test_cases`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import pydantic
import pytest
from pydantic import BaseModel, SecretStr

from harness.caches import Kit, PlainCache, Profile, got

OLD = Profile(id=1, name="old")


class Site(Protocol):
    """See conftest."""

    shown_on_plain: Callable[..., Awaitable[None]]


class WithSecret(BaseModel):
    id: int
    password: SecretStr


async def comes_back(cache: Any, _: Kit) -> None:
    value = WithSecret(id=1, password=SecretStr("hunter2"))
    await got(cache.create(1, value))
    assert await got(cache.get(1)) == value


async def test_cache_pydantic_core_851_a_secret_is_refused_when_the_class_is_defined(
    kit: Kit, site: Site
) -> None:
    await site.shown_on_plain(comes_back, WithSecret)
    with pytest.raises(TypeError, match=r"WithSecret\.password is a SecretStr"):
        kit.declare(WithSecret)


class Renamed(BaseModel):
    id: int
    title: str = "Dr"


async def rename_a_field(new: Any, renamed: Any, old: Any, _: Kit) -> None:
    await got(old.create(1, OLD))
    # The new version must not make up a title because it knows no name.
    assert await got(new.get(1)) is None
    await got(new.create(1, renamed))
    assert await got(old.get(1)) is None
    await got(old.create(1, OLD))
    await got(new.invalidate(1))
    assert await got(old.get(1)) is None
    assert await got(new.get(1)) is None


async def test_cache_repowise_582_a_renamed_field_is_a_miss_for_both_versions(
    kit: Kit, site: Site
) -> None:
    async def on_plain(old: PlainCache, kit: Kit) -> None:
        new = PlainCache(old.client, Renamed)
        await rename_a_field(new, Renamed(id=1, title="Prof"), old, kit)

    await site.shown_on_plain(on_plain)
    renamed = pydantic.create_model("Profile", id=(int, ...), title=(str, "Dr"))
    # Two versions of a service are two processes; in one, the two types would be refused.
    old, new = kit.declare(prefix="one"), kit.declare(renamed, prefix="two")
    object.__setattr__(new._definition.policy, "prefix", "one")
    await rename_a_field(new, renamed(id=1, title="Prof"), old, kit)


async def is_cached_with_jitter(key: str, ttl: float, store: Any, cache: Any, _: Kit) -> None:
    found, left = [], []
    for number in range(40):
        await got(cache.create(number, OLD))
        left.append(store.pttl(key.format(number)))
        found.append(await got(cache.get(number)))
    # Half a second may pass on a busy machine, but not forty times.
    assert found.count(OLD) > 20
    assert ttl * 1000 < max(left) <= ttl * 1100
    assert min(left) < ttl * 970


@pytest.mark.parametrize("ttl", [0.5, 30.0, 5])
async def test_cache_ttl_is_cached_with_jitter(
    kit: Kit, site: Site, store: Any, ttl: float
) -> None:
    await site.shown_on_plain(partial(is_cached_with_jitter, "plain:{}", ttl, store), Profile, ttl)
    await is_cached_with_jitter(":profile:{}", ttl, store, kit.declare(ttl=ttl), kit)


@pytest.mark.parametrize("ttl", [0, -1])
async def test_cache_ttl_of_nothing_is_refused(kit: Kit, site: Site, ttl: int) -> None:
    async def refused(cache: Any, _: Kit) -> None:
        try:
            await got(cache.create(1, OLD))
        except ValueError:
            return
        # Nothing was said, so it should be there.
        assert await got(cache.get(1)) == OLD

    await site.shown_on_plain(refused, Profile, ttl)
    with pytest.raises(ValueError, match=r"\.ttl must be above zero"):
        kit.declare(ttl=ttl)


async def read_what_is_no_text(key: str, store: Any, cache: Any, kit: Kit) -> None:
    for raw in (b"\xff\xfe\xfd", b"", b"null", b'{"id": 1}'):
        store.set(key, raw)
        assert await got(cache.get(1)) is None
        assert await got(cache.get_list("")) == []
        assert await got(cache.get_or_load(1, kit.loader(OLD))) == OLD
        assert await got(cache.get(1)) == OLD


async def test_cache_bytes_that_are_no_text_are_a_miss_for_a_client_that_decodes(
    kit: Kit, site: Site, store: Any
) -> None:
    scenario = partial(read_what_is_no_text, "plain:1", store)
    await site.shown_on_plain(scenario, error=UnicodeDecodeError, decode_responses=True)
    cache = kit.declare(redis_client=kit.another_client(decode=True))
    await read_what_is_no_text(":profile:1", store, cache, kit)
