"""What is not promised, shown happening: docs/reference/guarantees.md names these."""

from __future__ import annotations

from typing import Any

from harness.caches import Kit, Profile, got

OLD, NEW = Profile(id=1, name="old"), Profile(id=1, name="new")


async def test_a_source_that_changes_without_an_invalidation_is_answered_as_it_was(
    kit: Kit,
) -> None:
    cache = kit.declare()
    assert await got(cache.get_or_load(1, kit.loader(OLD))) == OLD
    # The source says NEW from here on, and nobody has told the cache.
    assert await got(cache.get_or_load(1, kit.loader(NEW))) == OLD
    await got(cache.invalidate(1))
    assert await got(cache.get_or_load(1, kit.loader(NEW))) == NEW


async def test_an_invalidation_that_a_failover_lost_has_not_happened(kit: Kit, store: Any) -> None:
    cache = kit.declare()
    await got(cache.get_or_load(1, kit.loader(OLD)))
    entry = store.get(":profile:1")
    await got(cache.invalidate(1))
    # The replica that is promoted has not heard of it.
    store.set(":profile:1", entry, px=60_000)
    assert await got(cache.get_or_load(1, kit.loader(NEW))) == OLD
