"""The rows of the public reports about caches, each shown first on plain cache-aside.

A scenario is a coroutine on some cache; it passes on ours and fails with an assertion on
`PlainCache`, as most applications write it. Here are races, tags and prefixes; beside it are values
(`test_value_cases`), and processes, loops and servers that are away (`test_trouble_cases`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import pytest

from harness.caches import Kit, Profile, got, tagged

OLD, NEW = Profile(id=1, name="old"), Profile(id=1, name="new")


class Site(Protocol):
    """See conftest."""

    topology: str
    shown_on_plain: Callable[..., Awaitable[None]]
    counting: Callable[[], Callable[[], Any]]
    fill: Callable[[int], None]


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
    kit: Kit, site: Site
) -> None:
    await site.shown_on_plain(load_and_invalidate)
    await load_and_invalidate(kit.declare(), kit)


async def test_cache_django_redis_225_a_group_is_invalidated_with_one_command(
    kit: Kit, site: Site, store: Any
) -> None:
    site.fill(200_000)
    cache = kit.declare(tags=tagged("team"))
    await got(cache.set_many({key: Profile(id=key) for key in range(100)}))

    # What plain code does: look at every key.
    counts = site.counting()
    for _ in store.scan_iter("team:*"):
        pass
    assert counts().total() > 10_000

    counts = site.counting()
    await got(cache.invalidate_tags("team"))
    assert counts() == {"del": 1}
    assert await got(cache.get_many(range(100))) == {}


async def lose_a_tag(store: Any, cache: Any, kit: Kit) -> None:
    del kit
    await got(cache.create(1, OLD))
    assert await got(cache.get(1)) == OLD
    for _ in range(3):
        store.delete("{:profile}:tag:team")
        store.delete("plain:tag:team")
        assert await got(cache.get(1)) is None
        # Another entry makes the tag again: with another nonce, where a counter begins again.
        await got(cache.create(2, NEW))
        assert await got(cache.get(1)) is None


async def test_cache_symfony_21330_a_lost_tag_is_a_miss_and_no_revival(
    kit: Kit, site: Site, store: Any
) -> None:
    await site.shown_on_plain(partial(lose_a_tag, store), Profile, 60, "team")
    await lose_a_tag(store, kit.declare(tags=tagged("team")), kit)


KEYS = ["team-1", "team-1:a", "team-10:a", "team-?", "team-[ab]", "t\\x", "team-1*", "a"]
# Where a prefix is plain text, and ends nowhere, a pattern finds the same.
PLAIN_IS_RIGHT = [("team-1", ""), ("", ":")]


async def only_what_begins_so(
    prefix: str, boundary: str, meant: list[str], cache: Any, _: Kit
) -> None:
    for number, key in enumerate(KEYS):
        await got(cache.create(key, Profile(id=number)))
    found = await got(cache.get_list(prefix, boundary=boundary))
    assert [KEYS[one.id] for one in found] == sorted(meant)
    await got(cache.delete_by_filters(prefix, boundary=boundary))
    left = {key for key in KEYS if await got(cache.get(key)) is not None}
    assert left == set(KEYS) - set(meant)


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
    kit: Kit, site: Site, prefix: str, boundary: str, meant: list[str]
) -> None:
    scenario = partial(only_what_begins_so, prefix, boundary, meant)
    if (prefix, boundary) not in PLAIN_IS_RIGHT:
        await site.shown_on_plain(scenario)
    await scenario(kit.declare(), kit)


async def delete_a_prefix_during_loads(cache: Any, kit: Kit) -> None:
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


async def test_cache_glob_open_loads_are_ended_too(kit: Kit, site: Site) -> None:
    await site.shown_on_plain(delete_a_prefix_during_loads)
    await delete_a_prefix_during_loads(kit.declare(), kit)


async def stampede(cache: Any, kit: Kit) -> None:
    loader = kit.loader(OLD, seconds=0.05)
    running = [kit.start(lambda: cache.get_or_load(1, loader)) for _ in range(100)]
    assert [await one.result() for one in running] == [OLD] * 100
    assert loader.calls == 1


async def test_cache_stampede_one_load(kit: Kit, site: Site) -> None:
    # On a busy machine redis-py's cluster client itself may break under a hundred at once.
    await site.shown_on_plain(stampede, error=(AssertionError, AttributeError))
    await stampede(kit.declare(), kit)


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
