"""The rows of the public reports about caches, each shown first on plain cache-aside.

A scenario is a coroutine on some cache; it passes on ours and fails with an assertion on
`PlainCache`, as most applications write it. Rows about types, ttls, errors and loops stand with
what they are about: look for ``test_cases_``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pydantic
import pytest
from pydantic import BaseModel

from harness.caches import Kit, PlainCache, Profile, got, tagged
from harness.clients import Colour, aopened
from harness.servers import Server
from harness.statistics import CommandStats

OLD, NEW = Profile(id=1, name="old"), Profile(id=1, name="new")

Scenario = Callable[[Any, Kit], Awaitable[None]]


async def shown_on_plain(scenario: Scenario, url: str) -> None:
    """Fail a scenario on plain cache-aside: the test bites."""
    async with aopened(url) as client:
        async_kit = Kit("async", url)
        try:
            with pytest.raises(AssertionError):
                await scenario(PlainCache(client), async_kit)
        finally:
            await async_kit.close()


async def load_and_invalidate(cache: Any, kit: Kit) -> None:
    gate = kit.gate(OLD)
    reader = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    # The source changes here, and whoever changed it invalidates.
    await got(cache.invalidate(1))
    gate.opened.set()
    await reader.result()
    assert await got(cache.get(1)) is None
    assert await got(cache.get_or_load(1, kit.loader(NEW))) == NEW


async def test_cache_aiocache_95_guava_1881_what_was_read_before_is_not_stored_after(
    kit: Kit, server: Server
) -> None:
    await shown_on_plain(load_and_invalidate, server.url)
    await load_and_invalidate(kit.declare(), kit)


async def test_cache_django_redis_225_a_group_is_invalidated_with_one_command(
    kit: Kit, store: Any, commandstats: CommandStats
) -> None:
    store.eval("for i = 1, 200000 do redis.call('SET', 'foreign:' .. i, '') end", 0)
    cache = kit.declare(tags=tagged("team"))
    await got(cache.set_many({key: Profile(id=key) for key in range(100)}))

    # What plain code does: look at every key.
    commandstats.restart()
    for _ in store.scan_iter("team:*"):
        pass
    assert commandstats.total() > 10_000

    commandstats.restart()
    await got(cache.invalidate_tags("team"))
    assert commandstats.counts() == {"del": 1}
    assert await got(cache.get_many(range(100))) == {}


async def test_cache_symfony_21330_a_lost_tag_is_a_miss_and_no_revival(
    kit: Kit, store: Any
) -> None:
    cache = kit.declare(tags=tagged("team"))
    await got(cache.create(1, OLD))
    assert await got(cache.get(1)) == OLD
    kept = store.get(":profile:1")
    for _ in range(3):
        store.delete("{:profile}:tag:team")
        assert await got(cache.get(1)) is None
        # Another entry makes the tag again: with another nonce.
        await got(cache.create(2, NEW))
        assert store.get(":profile:1") == kept
        assert await got(cache.get(1)) is None
    # A counter instead of a nonce would begin again, and bring the entry back.
    counters = {"team": 1}
    entry = dict(counters)
    counters.clear()
    counters["team"] = 1
    assert entry == counters


class Renamed(BaseModel):
    id: int
    title: str = "Dr"


async def rename_a_field(old: Any, new: Any, renamed: Any) -> None:
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
    kit: Kit, server: Server
) -> None:
    async with aopened(server.url) as client:
        with pytest.raises(AssertionError):
            await rename_a_field(
                PlainCache(client), PlainCache(client, Renamed), Renamed(id=1, title="Prof")
            )
    renamed = pydantic.create_model("Profile", id=(int, ...), title=(str, "Dr"))
    # Two versions of a service are two processes; in one, the two types would be refused.
    old, new = kit.declare(prefix="one"), kit.declare(renamed, prefix="two")
    object.__setattr__(new._definition.policy, "prefix", "one")
    await rename_a_field(old, new, renamed(id=1, title="Prof"))


KEYS = ["team-1", "team-1:a", "team-10:a", "team-?", "team-[ab]", "t\\x", "team-1*"]


@pytest.mark.parametrize(
    ("prefix", "boundary", "meant"),
    [
        ("?", "", []),
        ("[ab", "", []),
        ("team-?", "", ["team-?"]),
        ("team-[", "", ["team-[ab]"]),
        ("t\\", "", ["t\\x"]),
        ("team-1*", "", ["team-1*"]),
        ("team-1", "", ["team-1", "team-1:a", "team-10:a", "team-1*"]),
        ("team-1", ":", ["team-1", "team-1:a"]),
        ("team-", ":", []),
        ("", ":", KEYS),
    ],
)
async def test_cache_glob_only_what_begins_so_literally(
    kit: Kit, prefix: str, boundary: str, meant: list[str]
) -> None:
    cache = kit.declare()
    values = {key: Profile(id=number) for number, key in enumerate(KEYS)}
    await got(cache.set_many(values))
    found = await got(cache.get_list(prefix, boundary=boundary))
    assert [one.id for one in found] == [values[key].id for key in sorted(meant)]
    await got(cache.delete_by_filters(prefix, boundary=boundary))
    left = await got(cache.get_many(KEYS))
    assert set(left) == set(KEYS) - set(meant)


async def test_cache_glob_open_loads_are_ended_too(kit: Kit) -> None:
    cache = kit.declare()
    near, far = kit.gate(OLD), kit.gate(OLD)
    one = kit.start(lambda: cache.get_or_load("team-1:a", near))
    two = kit.start(lambda: cache.get_or_load("team-10:a", far))
    await kit.entered(near)
    await kit.entered(far)
    await got(cache.delete_by_filters("team-1", boundary=":"))
    near.opened.set()
    far.opened.set()
    await one.result()
    await two.result()
    assert await got(cache.get("team-1:a")) is None
    assert await got(cache.get("team-10:a")) == OLD


async def stampede(cache: Any, kit: Kit) -> None:
    loader = kit.loader(OLD, seconds=0.05)
    running = [kit.start(lambda: cache.get_or_load(1, loader)) for _ in range(100)]
    assert [await one.result() for one in running] == [OLD] * 100
    assert loader.calls == 1


async def test_cache_stampede_one_load(kit: Kit, server: Server, colour: Colour) -> None:
    if colour == "async":
        await shown_on_plain(stampede, server.url)
    await stampede(kit.declare(), kit)


@pytest.mark.parametrize("ttl", [0.5, 30.0, 5])
async def test_cases_ttl_is_cached(kit: Kit, store: Any, ttl: float) -> None:
    cache = kit.declare(ttl=ttl)
    await got(cache.create(1, OLD))
    assert await got(cache.get(1)) == OLD
    assert ttl * 850 < store.pttl(":profile:1") <= ttl * 1100


async def test_a_prefix_delete_misses_no_load_that_ends_meanwhile(kit: Kit) -> None:
    """Loads that end between the steps of the scan are found by the one pass or the other."""
    cache = kit.declare()
    stop = threading.Event()
    source = {"version": 0}

    def body() -> Any:
        return lambda: Profile(id=source["version"])

    async def fill_all() -> None:
        for key in range(60):
            await got(cache.get_or_load(key, body()))

    for _ in range(15):
        running = kit.start(lambda: _fill_forever(cache, kit, source, stop))
        await asyncio.sleep(0.01)
        source["version"] += 1
        version = source["version"]
        await got(cache.invalidate_all())
        found = await got(cache.get_list())
        assert all(one.id >= version for one in found)
        stop.set()
        await running.result()
        stop.clear()
        await fill_all()


def _fill_forever(cache: Any, kit: Kit, source: dict[str, int], stop: threading.Event) -> Any:
    if kit.is_async:

        async def fill() -> None:
            while not stop.is_set():
                await asyncio.gather(
                    *(
                        cache.get_or_load(key, lambda: Profile(id=source["version"]))
                        for key in range(60)
                    )
                )

        return fill()
    while not stop.is_set():
        for key in range(60):
            cache.get_or_load(key, lambda: Profile(id=source["version"]))
    return None
