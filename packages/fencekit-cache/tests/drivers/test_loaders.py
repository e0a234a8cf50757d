"""Both colours: loaders that ask the cache themselves, and what they say that changes the entry."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, field_validator

from harness.caches import Kit, Profile, got, opened_kit
from harness.clients import Colour
from harness.servers import Server

OLD, NEW = Profile(id=1, name="old"), Profile(id=1, name="new")


class Picky(BaseModel):
    """What has once been written may not be readable later: a validator looks elsewhere, say."""

    id: int
    readable: ClassVar[bool] = True

    @field_validator("id")
    @classmethod
    def _readable(cls, value: int) -> int:
        assert cls.readable
        return value


async def test_a_loader_that_asks_for_its_own_key_is_told(kit: Kit) -> None:
    cache = kit.declare()

    def circle() -> Any:
        return cache.get_or_load(1, kit.loader(OLD))

    with pytest.raises(RuntimeError, match="would wait for itself"):
        await got(cache.get_or_load(1, circle))


async def test_loaders_that_wait_for_each_other_are_told(kit: Kit) -> None:
    cache = kit.declare()
    entered: set[str] = set()
    both = threading.Barrier(2)

    def asking(mine: str, other: str) -> Any:
        def load() -> Any:
            both.wait(5)
            return cache.get_or_load(other, kit.loader(OLD))

        async def load_async() -> Any:
            entered.add(mine)
            await kit.until(lambda: len(entered) == 2)
            return await cache.get_or_load(other, kit.loader(OLD))

        return kit.start(lambda: cache.get_or_load(mine, load_async if kit.is_async else load))

    running = [asking("a", "b"), asking("b", "a")]
    outcomes = await asyncio.gather(*(one.result() for one in running), return_exceptions=True)
    assert any("would wait for itself" in str(outcome) for outcome in outcomes)
    assert await got(cache.get_or_load("a", kit.loader(OLD))) == OLD


async def test_loaders_may_ask_for_what_each_other_loads_without_a_circle(
    kit: Kit, store: Any
) -> None:
    cache, gate = kit.declare(), kit.gate(OLD)
    below = kit.start(lambda: cache.get_or_load("below", gate))
    await kit.entered(gate)

    def asking(mine: str) -> Any:
        def load() -> Any:
            return cache.get_or_load("below", kit.loader(NEW))

        return kit.start(lambda: cache.get_or_load(mine, load))

    above = [asking("a"), asking("b")]
    await kit.until(lambda: len(store.keys("*:fill")) == 3)
    gate.opened.set()
    assert [await one.result() for one in (below, *above)] == [OLD, OLD, OLD]


@pytest.mark.parametrize("many", [False, True])
async def test_what_a_refresh_finds_gone_is_not_served_again(
    kit: Kit,
    store: Any,
    many: bool,  # noqa: FBT001 - a parameter
) -> None:
    cache = kit.declare(ttl=0.05, grace=30, jitter=0)
    await got(cache.get_or_load(1, kit.loader(OLD)))
    await asyncio.sleep(0.08)
    if many:
        assert await got(cache.get_or_load_many([1], kit.loader({}))) == {}
    else:
        assert await got(cache.get_or_load(1, kit.loader(None))) is None
    assert store.keys("*") == []
    with pytest.raises(OSError, match="away"):
        await got(cache.get_or_load(1, kit.loader(OSError("away"))))


async def test_what_a_refresh_finds_gone_early_is_not_served_again(kit: Kit) -> None:
    cache = kit.declare(beta=1e9, jitter=0)  # refreshed at each call
    await got(cache.get_or_load(1, kit.loader(OLD, seconds=0.002)))
    assert await got(cache.get_or_load(1, kit.loader(None))) is None
    assert await got(cache.get(1)) is None


async def test_many_load_what_another_stored_and_cannot_be_read_here(
    kit: Kit, colour: Colour, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = {1: Picky(id=1)}
    cache, gate = kit.declare(Picky), kit.gate(value)
    first = kit.start(lambda: cache.get_or_load_many([1], gate))
    await kit.entered(gate)
    async with opened_kit(colour, server.url) as other_kit:
        other, loader = other_kit.declare(Picky), other_kit.loader(value)
        second = other_kit.start(lambda: other.get_or_load_many([1], loader))
        await kit.until(lambda: server.call("PUBSUB", "CHANNELS"), timeout=20)
        monkeypatch.setattr(Picky, "readable", False)
        gate.opened.set()
        assert await first.result() == value
        assert await second.result() == value
    assert loader.keys == [[1]]
