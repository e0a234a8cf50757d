"""The async colour: cancelled waiters and loads; and a fork during a load."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.forks import in_a_fork
from harness.caches import Kit, Profile, opened_kit, tagged
from harness.servers import Server

VALUE = Profile(id=1)


@pytest.fixture
def colour() -> str:
    return "async"


async def test_a_cancelled_waiter_does_not_cancel_the_others(kit: Kit) -> None:
    cache, gate = kit.declare(), kit.gate(VALUE)
    first, second = (asyncio.create_task(cache.get_or_load(1, gate)) for _ in range(2))
    await kit.entered(gate)
    first.cancel()  # the one that began the load
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.opened.set()
    assert await second == VALUE
    assert await cache.get(1) == VALUE
    assert gate.calls == 1


async def test_when_nobody_waits_any_more_the_load_ends_and_its_ticket_goes(
    kit: Kit, store: Any
) -> None:
    cache, gate = kit.declare(), kit.gate(VALUE)
    running = [asyncio.create_task(cache.get_or_load(1, gate)) for _ in range(2)]
    await kit.entered(gate)
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    await kit.until(lambda: not store.exists("{:profile:1}:fill"))
    assert await cache.get_or_load(1, kit.loader(VALUE)) == VALUE


async def test_a_load_that_is_cancelled_by_its_own_doing_is_not_begun_again(kit: Kit) -> None:
    cache, loader = kit.declare(), kit.loader(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(cache.get_or_load(1, loader), 5)
    assert loader.calls == 1


async def test_who_shared_a_load_that_cancelled_itself_loads_by_itself(kit: Kit) -> None:
    cache, gate = kit.declare(), kit.gate(asyncio.CancelledError())
    first = asyncio.create_task(cache.get_or_load(1, gate))
    await kit.entered(gate)
    second = asyncio.create_task(cache.get_or_load(1, kit.loader(VALUE)))
    await asyncio.sleep(0.05)  # until it has joined
    gate.opened.set()
    assert await asyncio.wait_for(second, 5) == VALUE
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.parametrize("many", [False, True])
async def test_cancelled_at_every_await(kit: Kit, store: Any, many: bool) -> None:  # noqa: FBT001
    cache = kit.declare(tags=tagged("a"))
    for steps in range(14):
        store.flushall()
        call = (
            cache.get_or_load_many([1, 2], kit.loader({1: VALUE, 2: VALUE}, 0.001))
            if many
            else cache.get_or_load(1, kit.loader(VALUE, 0.001))
        )
        task = asyncio.create_task(call)
        for _ in range(steps):
            await asyncio.sleep(0)
            if steps > 6:
                await asyncio.sleep(0.0005)
        task.cancel()
        await asyncio.wait([task])
        await kit.until(lambda: not [key for key in store.keys("*") if b":fill" in key])
        assert await cache.get_or_load(1, kit.loader(VALUE)) == VALUE


async def test_a_fork_during_a_load_does_not_wait_for_the_parents_thread(server: Server) -> None:
    async with opened_kit("sync", server.url) as kit:
        cache, gate = kit.declare(lease=0.3), kit.gate(VALUE)
        running = kit.start(lambda: cache.get_or_load(1, gate))
        await kit.entered(gate)

        def child() -> None:
            assert cache.get_or_load(1, lambda: VALUE) == VALUE

        in_a_fork(child)
        gate.opened.set()
        assert await running.result() == VALUE
