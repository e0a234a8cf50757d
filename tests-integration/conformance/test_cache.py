"""GenericCache and its fills, on every server, through every client, in both colours.

`test_the_bodies_bite` runs a body on plain cache-aside, which serves what was invalidated.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from conformance.stage import Rig, got
from harness.caches import Kit, PlainCache, Profile, opened_kit, tagged

_README = Path(__file__).parents[2] / "packages" / "fencekit-cache" / "README.md"
OLD, NEW = Profile(id=1, name="old"), Profile(id=1, name="new")


@pytest_asyncio.fixture
async def kit(rig: Rig) -> AsyncIterator[Kit]:
    """Caches on the rig's servers, with its clients."""
    found = re.search(r"and the commands\n`([a-z ]+)`", _README.read_text())
    assert found is not None
    patterns = ("~fencekit:app:*", "~{fencekit:app:*", "&fencekit:cache:*")
    rig.backend.allow(*patterns, *(f"+{command}" for command in found[1].split()))
    async with opened_kit(rig.colour, rig.site.url, rig.site.topology, **rig.options) as kit:
        yield kit


def declare(kit: Kit, **attributes: Any) -> Any:
    return kit.declare(prefix="fencekit:app", **attributes)


async def test_what_was_loaded_is_served(kit: Kit) -> None:
    cache, loader = declare(kit), kit.loader(OLD)
    for _ in range(2):
        assert await got(cache.get_or_load(1, loader)) == OLD
    assert loader.calls == 1
    assert await got(cache.get(1)) == OLD
    await got(cache.update(1, NEW))
    assert await got(cache.get(1)) == NEW
    await got(cache.invalidate(1))
    assert await got(cache.get(1)) is None


async def test_many_readers_make_one_load(kit: Kit) -> None:
    caches = [declare(kit), declare(kit, redis_client=kit.another_client())]
    gate = kit.gate(OLD)
    readers = [kit.start(partial(cache.get_or_load, 1, gate)) for cache in caches * 4]
    await kit.entered(gate)
    gate.opened.set()
    assert [await reader.result() for reader in readers] == [OLD] * 8
    assert gate.calls == 1


async def load_and_invalidate(cache: Any, kit: Kit) -> None:
    gate = kit.gate(OLD)
    reader = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    # The source changes here, and whoever changed it invalidates.
    await got(cache.invalidate(1))
    gate.opened.set()
    await reader.result()
    assert await got(cache.get(1)) is None


async def test_what_was_read_before_an_invalidation_is_not_stored_after(kit: Kit) -> None:
    await load_and_invalidate(declare(kit), kit)


async def test_a_tag_invalidates_a_group(kit: Kit) -> None:
    cache = declare(kit, tags=tagged("team"))
    await got(cache.set_many({key: Profile(id=key) for key in range(10)}))
    assert len(await got(cache.get_many(range(10)))) == 10
    await got(cache.invalidate_tags("team"))
    assert await got(cache.get_many(range(10))) == {}


async def test_many_keys_and_their_beginnings(kit: Kit) -> None:
    cache = declare(kit)
    keys = ["team-1", "team-1:a", "team-10:a", "team-?"]
    await got(cache.set_many({key: Profile(id=number) for number, key in enumerate(keys)}))
    found = await got(cache.get_list("team-1", boundary=":"))
    assert [one.id for one in found] == [0, 1]
    await got(cache.delete_by_filters("team-1", boundary=":"))
    assert set(await got(cache.get_many(keys))) == {"team-10:a", "team-?"}


async def test_scripts_may_be_flushed_between_any_two_operations(rig: Rig, kit: Kit) -> None:
    cache, loader = declare(kit, tags=tagged("team")), kit.loader(OLD)
    for _ in range(2):
        rig.backend.forget_scripts()
        assert await got(cache.get_or_load(1, loader)) == OLD
        rig.backend.forget_scripts()
        await got(cache.invalidate(1))
    assert loader.calls == 2


async def test_the_bodies_bite(rig: Rig, kit: Kit) -> None:
    if not rig.is_async or rig.backend.acl is not None:
        pytest.skip("plain cache-aside is written async, and asks for keys of its own")
    with pytest.raises(AssertionError):
        await load_and_invalidate(PlainCache(kit.client), kit)
