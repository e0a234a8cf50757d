"""Both colours: get_or_load and what may happen meanwhile."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from fencekit.cache import (
    CacheFenced,
    CacheHooks,
    CacheLoaded,
    CacheStale,
    CacheWaited,
    Lookup,
)
from harness.caches import Kit, Profile, got, opened_kit, tagged
from harness.clients import Colour
from harness.servers import Server

OLD, NEW = Profile(id=1, name="old"), Profile(id=1, name="new")


async def test_one_load_and_then_hits(kit: Kit, store: Any) -> None:
    cache, loader = kit.declare(), kit.loader(OLD)
    for _ in range(3):
        assert await got(cache.get_or_load(1, loader)) == OLD
    assert loader.calls == 1
    assert store.keys("*") == [b":profile:1"]


async def test_callers_at_once_share_one_load_and_own_their_values(kit: Kit) -> None:
    cache, loader = kit.declare(), kit.loader(OLD, seconds=0.05)
    running = [kit.start(lambda: cache.get_or_load(1, loader)) for _ in range(40)]
    values = [await one.result() for one in running]
    assert loader.calls == 1
    assert all(value == OLD for value in values)
    assert len({id(value) for value in values}) == 40


async def somebody_listens(kit: Kit, server: Server) -> None:
    await kit.until(lambda: server.call("PUBSUB", "CHANNELS"), timeout=20)


async def is_over(kit: Kit, store: Any, key: str) -> None:
    """Let a key expire, however much time it has left."""
    store.pexpire(key, 1)
    await kit.until(lambda: not store.exists(key))


async def test_other_processes_wait_for_the_winner(
    kit: Kit, colour: Colour, server: Server
) -> None:
    waited: list[CacheWaited] = []
    gate = kit.gate(OLD)
    first = kit.declare()
    winner = kit.start(lambda: first.get_or_load(1, gate))
    await kit.entered(gate)
    # Another client shares nothing in this process but the server.
    async with opened_kit(colour, server.url) as other_kit:
        other = other_kit.declare(hooks=CacheHooks(on_waited=waited.append))
        loser = other_kit.start(lambda: other.get_or_load(1, other_kit.loader(NEW)))
        await somebody_listens(kit, server)
        await asyncio.sleep(0.1)
        opened = time.monotonic()
        gate.opened.set()
        assert await loser.result() == OLD
        assert time.monotonic() - opened < 5  # woken: half of the lease at most
        assert await winner.result() == OLD
    assert len(waited) == 1
    assert waited[0].seconds > 0.05


async def test_a_winner_that_fails_hands_on_to_a_loser(
    kit: Kit, colour: Colour, server: Server
) -> None:
    gate = kit.gate(KeyError("gone"))
    cache = kit.declare()
    winner = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    async with opened_kit(colour, server.url) as other_kit:
        other = other_kit.declare()
        loser = other_kit.start(lambda: other.get_or_load(1, other_kit.loader(NEW)))
        await somebody_listens(kit, server)
        gate.opened.set()
        assert await loser.result() == NEW
        with pytest.raises(KeyError):
            await winner.result()


async def test_a_winner_that_dies_is_followed_within_its_lease(kit: Kit, store: Any) -> None:
    cache = kit.declare()
    began = time.monotonic()
    store.set("{:profile:1}:fill", b"of one that died", px=300)
    assert await got(cache.get_or_load(1, kit.loader(NEW))) == NEW
    assert 0.29 < time.monotonic() - began < 5
    assert await got(cache.get(1)) == NEW


async def test_a_load_longer_than_its_lease_is_not_stored(kit: Kit) -> None:
    fenced: list[CacheFenced] = []
    cache = kit.declare(lease=0.05, hooks=CacheHooks(on_fenced=fenced.append))
    assert await got(cache.get_or_load(1, kit.loader(OLD, seconds=0.1))) == OLD
    assert await got(cache.get(1)) is None
    assert fenced == [CacheFenced(cache="profile", key="1")]


@pytest.mark.parametrize("change", ["invalidate", "create", "delete", "delete_by_filters", "all"])
async def test_whatever_changes_the_entry_fences_the_load_under_way(kit: Kit, change: str) -> None:
    cache, gate = kit.declare(), kit.gate(OLD)
    running = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    await got(
        {
            "invalidate": lambda: cache.invalidate(1),
            "create": lambda: cache.create(1, NEW),
            "delete": lambda: cache.delete(1),
            "delete_by_filters": lambda: cache.delete_by_filters("1"),
            "all": cache.invalidate_all,
        }[change]()
    )
    gate.opened.set()
    assert await running.result() == OLD  # it asked before the change
    assert await got(cache.get(1)) == (NEW if change == "create" else None)


async def test_who_asks_after_an_invalidation_does_not_share_a_load_from_before(kit: Kit) -> None:
    cache, gate = kit.declare(), kit.gate(OLD)
    before = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    await got(cache.invalidate(1))
    after = kit.start(lambda: cache.get_or_load(1, kit.loader(NEW)))
    await asyncio.sleep(0.05)
    gate.opened.set()
    assert await before.result() == OLD
    assert await after.result() == NEW


async def test_who_asks_after_an_invalidation_is_not_told_none_by_a_load_from_before(
    kit: Kit, store: Any
) -> None:
    cache, gate = kit.declare(), kit.gate(None)
    before = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    attempt, _, _ = store.get("{:profile:1}:fill").partition(b":")
    await got(cache.invalidate(1))
    # The command that took the ticket arrives once more, late.
    store.set("{:profile:1}:fill", attempt + b":1.2", px=300)
    after = kit.start(lambda: cache.get_or_load(1, kit.loader(NEW)))
    await asyncio.sleep(0.05)
    gate.opened.set()
    assert await before.result() is None
    assert await after.result() == NEW


async def test_who_asks_after_a_bump_does_not_share_a_load_from_before(kit: Kit) -> None:
    cache, gate = kit.declare(tags=tagged("a")), kit.gate(OLD)
    before = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    await got(cache.invalidate_tags("a"))
    after = kit.start(lambda: cache.get_or_load(1, kit.loader(NEW)))
    await asyncio.sleep(0.05)
    gate.opened.set()
    assert await before.result() == OLD
    assert await after.result() == NEW
    assert await got(cache.get(1)) == NEW


async def test_hold_keeps_fills_out_and_writes_in(kit: Kit, store: Any) -> None:
    cache = kit.declare()
    await got(cache.create(1, OLD))
    await got(cache.invalidate(1, hold=timedelta(seconds=30)))
    loader = kit.loader(OLD)
    assert await got(cache.get_or_load(1, loader)) == OLD
    assert await got(cache.get(1)) is None
    # A shorter hold, or none, does not end it.
    await got(cache.invalidate(1, hold=timedelta(milliseconds=1)))
    await got(cache.invalidate(1))
    assert store.pttl("{:profile:1}:fill") > 20_000
    await got(cache.create(1, NEW))
    assert await got(cache.get(1)) == NEW
    await got(cache.invalidate(1))
    await is_over(kit, store, "{:profile:1}:fill")
    assert await got(cache.get_or_load(1, loader)) == OLD
    assert await got(cache.get(1)) == OLD


async def test_a_hold_is_no_shorter_than_was_asked_for(kit: Kit) -> None:
    sent = [
        next(kit.declare()._invalidate(None, [1], hold)).operations[0].args[0]
        for hold in map(timedelta, [0] * 4, [0] * 4, [0, 1, 400, 1400])
    ]
    assert sent == [0, 1, 1, 2]


async def test_hold_during_a_load(kit: Kit) -> None:
    cache, gate = kit.declare(), kit.gate(OLD)
    running = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    await got(cache.invalidate(1, hold=timedelta(seconds=5)))
    gate.opened.set()
    assert await running.result() == OLD
    assert await got(cache.get(1)) is None


async def test_an_evicted_ticket_fails_closed(kit: Kit, store: Any) -> None:
    cache, gate = kit.declare(), kit.gate(OLD)
    running = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    store.delete("{:profile:1}:fill")
    gate.opened.set()
    assert await running.result() == OLD
    assert await got(cache.get(1)) is None


async def test_negative_entries_are_remembered_as_long_as_they_say(kit: Kit, store: Any) -> None:
    cache, loader = kit.declare(negative_ttl=30), kit.loader(None)
    assert await got(cache.get_or_load(1, loader)) is None
    assert await got(cache.get_or_load(1, loader)) is None
    assert loader.calls == 1
    assert await got(cache.lookup(1)) == Lookup("negative")
    assert 20_000 < store.pttl(":profile:1") <= 33_000
    await is_over(kit, store, ":profile:1")
    loader.value = NEW
    assert await got(cache.get_or_load(1, loader)) == NEW
    await got(cache.invalidate(1))
    assert await got(cache.lookup(1)) == Lookup("miss")


async def test_without_negative_ttl_none_is_not_remembered(kit: Kit, store: Any) -> None:
    cache, loader = kit.declare(), kit.loader(None)
    for _ in range(2):
        assert await got(cache.get_or_load(1, loader)) is None
    assert loader.calls == 2
    assert store.keys("*") == []


async def test_grace_serves_the_stale_value_while_one_refreshes(kit: Kit) -> None:
    stale: list[CacheStale] = []
    await got(kit.declare(ttl=0.1, grace=30).get_or_load(1, kit.loader(OLD)))
    cache = kit.declare(grace=30, hooks=CacheHooks(on_stale=stale.append))
    await asyncio.sleep(0.15)
    assert await got(cache.get(1)) is None  # who only looks sees no stale value
    gate = kit.gate(NEW)
    refresh = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    assert await got(cache.get_or_load(1, kit.loader(NEW))) == OLD
    assert stale == [CacheStale(cache="profile", key="1", error=None)]
    gate.opened.set()
    assert await refresh.result() == NEW
    assert await got(cache.get(1)) == NEW


async def test_grace_in_another_process(kit: Kit, colour: Colour, server: Server) -> None:
    cache = kit.declare(ttl=0.1, grace=30)
    await got(cache.get_or_load(1, kit.loader(OLD)))
    await asyncio.sleep(0.15)
    gate = kit.gate(NEW)
    refresh = kit.start(lambda: cache.get_or_load(1, gate))
    await kit.entered(gate)
    async with opened_kit(colour, server.url) as other_kit:
        other = other_kit.declare(ttl=0.1, grace=30)
        assert await got(other.get_or_load(1, other_kit.loader(NEW))) == OLD
        assert await got(other.get_or_load_many([1], other_kit.loader({1: NEW}))) == {1: OLD}
    gate.opened.set()
    assert await refresh.result() == NEW


async def test_grace_serves_the_stale_value_where_the_load_fails(kit: Kit, store: Any) -> None:
    stale: list[CacheStale] = []
    cache = kit.declare(ttl=0.05, grace=30, jitter=0, hooks=CacheHooks(on_stale=stale.append))
    await got(cache.get_or_load(1, kit.loader(OLD)))
    await asyncio.sleep(0.1)
    failing = kit.loader(OSError("the database is away"))
    assert await got(cache.get_or_load(1, failing)) == OLD
    assert await got(cache.get_or_load_many([1], failing)) == {1: OLD}
    assert {event.error for event in stale} >= {"OSError"}
    assert 20_000 < store.pttl(":profile:1") <= 30_050
    await is_over(kit, store, ":profile:1")
    with pytest.raises(OSError, match="away"):
        await got(cache.get_or_load(1, failing))


async def test_nothing_stale_is_served_after_an_invalidation(kit: Kit) -> None:
    cache = kit.declare(ttl=0.05, grace=30, tags=tagged("a"))
    failing = kit.loader(OSError("away"))
    ends: list[Any] = [lambda: cache.invalidate(1), lambda: cache.invalidate_tags("a")]
    for end in ends:
        await got(cache.get_or_load(1, kit.loader(OLD)))
        await asyncio.sleep(0.08)
        await got(end())
        with pytest.raises(OSError, match="away"):
            await got(cache.get_or_load(1, failing))


async def test_beta_refreshes_before_the_end(kit: Kit) -> None:
    cache = kit.declare(ttl=0.5, beta=50, jitter=0)
    loader = kit.loader(OLD, seconds=0.02)
    for _ in range(10):
        assert await got(cache.get_or_load(1, loader)) == OLD
    assert loader.calls > 1


async def test_what_cannot_be_written_is_told_and_leaves_no_ticket(kit: Kit, store: Any) -> None:
    cache = kit.declare()
    with pytest.raises(TypeError, match="expected a Profile, not str"):
        await got(cache.get_or_load(1, kit.loader("text")))
    with pytest.raises(TypeError, match="must return a mapping"):
        await got(cache.get_or_load_many([1, 2], kit.loader([OLD])))
    assert store.keys("*") == []


async def test_many_are_loaded_with_one_call(kit: Kit) -> None:
    loaded: list[CacheLoaded] = []
    cache = kit.declare(hooks=CacheHooks(on_loaded=loaded.append), negative_ttl=5)
    await got(cache.create(1, OLD))
    loader = kit.loader({2: NEW, 3: NEW})
    assert await got(cache.get_or_load_many([1, 2, 3, 4, 2], loader)) == {1: OLD, 2: NEW, 3: NEW}
    assert loader.keys == [[2, 3, 4]]
    assert await got(cache.get_or_load_many([1, 2, 3, 4], loader)) == {1: OLD, 2: NEW, 3: NEW}
    assert loader.calls == 1
    assert [event.key for event in loaded] == ["2", "3", "4"]
    assert await got(cache.get_or_load_many([], loader)) == {}


async def test_keys_that_are_spelled_alike_are_loaded_once_and_all_answered(kit: Kit) -> None:
    cache = kit.declare()
    loader = kit.loader({1: OLD, "1": OLD})
    assert await got(cache.get_or_load_many([1, "1"], loader)) == {1: OLD, "1": OLD}
    assert len(loader.keys[0]) == 1
    assert await got(cache.get_or_load_many([1, "1"], loader)) == {1: OLD, "1": OLD}
    assert await got(cache.get_many([1, "1"])) == {1: OLD, "1": OLD}
    assert loader.calls == 1


async def test_many_wait_for_what_another_loads(kit: Kit, colour: Colour, server: Server) -> None:
    cache, gate = kit.declare(), kit.gate({1: OLD, 2: OLD})
    first = kit.start(lambda: cache.get_or_load_many([1, 2], gate))
    await kit.entered(gate)
    async with opened_kit(colour, server.url) as other_kit:
        other, loader = other_kit.declare(), other_kit.loader({3: NEW})
        second = other_kit.start(lambda: other.get_or_load_many([2, 3, 1], loader))
        await somebody_listens(kit, server)
        gate.opened.set()
        assert await second.result() == {1: OLD, 2: OLD, 3: NEW}
        assert loader.keys == [[3]]
    assert await first.result() == {1: OLD, 2: OLD}


async def test_two_who_want_the_same_in_another_order_do_not_wait_for_each_other(
    kit: Kit, colour: Colour, server: Server
) -> None:
    cache = kit.declare()
    values = {key: Profile(id=key) for key in range(30)}
    async with opened_kit(colour, server.url) as other_kit:
        other = other_kit.declare()
        began = time.monotonic()
        one = kit.start(
            lambda: cache.get_or_load_many(list(values), kit.loader(values, seconds=0.02))
        )
        two = other_kit.start(
            lambda: other.get_or_load_many(
                list(reversed(values)), other_kit.loader(values, seconds=0.02)
            )
        )
        assert await one.result() == values
        assert await two.result() == values
        assert time.monotonic() - began < 8  # and not a lease


async def test_many_that_are_invalidated_meanwhile_are_not_stored(kit: Kit) -> None:
    cache, gate = kit.declare(), kit.gate({1: OLD, 2: OLD})
    running = kit.start(lambda: cache.get_or_load_many([1, 2], gate))
    await kit.entered(gate)
    await got(cache.invalidate(1))
    gate.opened.set()
    assert await running.result() == {1: OLD, 2: OLD}
    assert await got(cache.get_many([1, 2])) == {2: OLD}


async def test_a_failed_load_of_many_gives_all_tickets_back(kit: Kit, store: Any) -> None:
    cache = kit.declare()
    with pytest.raises(OSError, match="away"):
        await got(cache.get_or_load_many([1, 2, 3], kit.loader(OSError("away"))))
    assert store.keys("*") == []
