"""Rows about servers that are away, loops that end, and forks; see `test_cases`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import pytest
from redis.exceptions import RedisError

from conformance.forks import in_a_fork
from fencekit.cache import GenericCache, SyncGenericCache
from fencekit.drivers import delivery
from fencekit.drivers.sync import SyncDriver
from fencekit.errors import StoreError
from harness import clients
from harness.caches import Kit, PlainCache, Profile, got, opened_kit
from harness.clients import Colour, Topology

VALUE = Profile(id=1)


class Site(Protocol):
    """See conftest."""

    url: str
    topology: Topology
    shown_on_plain: Callable[..., Awaitable[None]]
    lose: Callable[[], None]
    find_again: Callable[[], None]


async def invalidate_while_away(site: Site, cache: Any, _: Kit) -> None:
    await got(cache.create(1, VALUE))
    assert await got(cache.get(1)) == VALUE
    told = False
    site.lose()
    try:
        await got(cache.invalidate(1))
    except StoreError:
        told = True
    finally:
        site.find_again()
    assert told, "nobody knows that the old value is still there"
    await got(cache.invalidate(1))
    assert await got(cache.get(1)) is None


async def test_cache_notifications_utils_1120_an_invalidation_that_is_lost_is_told(
    colour: Colour, distant_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_BUDGET", 0.5)
    await distant_site.shown_on_plain(partial(invalidate_while_away, distant_site))
    async with opened_kit(colour, distant_site.url, distant_site.topology) as kit:
        await invalidate_while_away(distant_site, kit.declare(), kit)


async def use(cache: Any) -> None:
    await cache.create(1, VALUE)
    assert await cache.get(1) == VALUE
    await cache.invalidate(1)
    assert await cache.get_or_load(1, lambda: VALUE) == VALUE


def in_two_loops_on_plain(site: Site) -> None:
    cache = PlainCache(clients.make(site.url, colour="async", topology=site.topology))
    asyncio.run(use(cache))
    # Its connection is another loop's; how that breaks differs.
    with pytest.raises((RuntimeError, RedisError, AssertionError)):
        asyncio.run(use(cache))


def test_cache_asyncio_run_twice_and_a_factory_for_each_loop(site: Site) -> None:
    in_a_fork(lambda: in_two_loops_on_plain(site))  # where it leaves its connection behind
    made: list[Any] = []

    def connect() -> Any:
        made.append(clients.make(site.url, colour="async", topology=site.topology))
        return made[-1]

    class Shared(GenericCache[Profile]):
        redis_client = clients.make(site.url, colour="async", topology=site.topology)

    class Made(GenericCache[Profile]):
        redis_client = connect

    for _ in range(3):
        for cache in (Shared(), Made()):
            asyncio.run(use(cache))
    assert len(made) == 3


def test_cache_prefork_each_child_connects_for_itself(site: Site) -> None:
    """Not seen red: redis-py's own pools notice a fork, so that plain code is right as well."""
    pids: list[int] = []

    def connect() -> Any:
        pids.append(os.getpid())
        return clients.make(site.url, colour="sync", topology=site.topology)

    class Profiles(SyncGenericCache[Profile]):
        redis_client = connect

    cache = Profiles()
    cache.create(1, VALUE)

    def child() -> None:
        assert cache.get(1) == VALUE
        assert cache.get_or_load(2, lambda: VALUE) == VALUE
        assert pids[-1] == os.getpid()

    in_a_fork(child)
    in_a_fork(child)
    assert cache.get(2) == VALUE
    assert len(pids) == 1
    client = Profiles._definition.source.access().client
    SyncDriver.of(client).close()
    clients.close(client)
