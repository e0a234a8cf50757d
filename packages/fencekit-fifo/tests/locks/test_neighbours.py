"""What one waiter, holder or setting must not spoil for its neighbours in the process."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from fencekit import keys
from fencekit.drivers import aio_wake
from fencekit.drivers.aio_wake import AsyncWakeHub
from fencekit.drivers.keeper import Kept, LeaseKeeper
from fencekit.fifo import FifoLock, FifoTimeout, SyncFifoLock
from harness.faults import HoldBack, named
from harness.fifo import Queue
from harness.proxy import Proxy
from harness.twins import Twin
from harness.waiting import eventually_async, until_waiting


@pytest.mark.parametrize("lingers", [False, True])
async def test_a_waiter_cancelled_while_it_subscribes_leaves_its_neighbour_its_messages(
    async_redis_client: Any, queue: Queue, monkeypatch: Any, *, lingers: bool
) -> None:
    # Idle channels are given up soon, so that it shows.
    monkeypatch.setattr(aio_wake, "LINGER", 0.2)
    monkeypatch.setattr(aio_wake, "PING_EVERY", 0.02)
    attend, confirmed = AsyncWakeHub._attend, asyncio.Event()

    async def late(hub: AsyncWakeHub, *args: Any) -> None:
        await attend(hub, *args)
        await confirmed.wait()

    lock = FifoLock(async_redis_client, "invoices")
    lease = await lock.acquire()
    channels = 1
    if lingers:
        # The process is still subscribed, from waiting for something else.
        other = FifoLock(async_redis_client, "letters")
        held = await other.acquire()
        with pytest.raises(FifoTimeout):
            await other.acquire(0.01)
        await other.release(held)
        channels = 3
    monkeypatch.setattr(AsyncWakeHub, "_attend", late)
    first, second = (asyncio.create_task(lock.acquire()) for _ in range(2))
    await eventually_async(lambda: len(queue.client.pubsub_channels("fencekit:*")) == channels)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    confirmed.set()
    await until_waiting(lock, 1)
    await asyncio.sleep(0.4)  # several looks for what is idle
    assert len(queue.client.pubsub_channels("fencekit:*")) == 2
    await lock.release(lease)
    await lock.release(await second)


async def test_the_last_of_other_settings_leaves_its_neighbours_their_messages(
    async_redis_client: Any, queue: Queue, monkeypatch: Any
) -> None:
    monkeypatch.setattr(aio_wake, "LINGER", 0.01)
    monkeypatch.setattr(aio_wake, "PING_EVERY", 0.02)
    lock = FifoLock(async_redis_client, "invoices")
    lease = await lock.acquire()
    waiter = asyncio.create_task(lock.acquire())
    await until_waiting(lock, 1)
    # As thousands of other names in between do.
    keys._spell.cache_clear()
    with pytest.raises(FifoTimeout):
        await FifoLock(async_redis_client, "invoices", lease_ms=30_000).acquire(0.05)
    await asyncio.sleep(0.2)  # several looks for what is idle
    assert len(queue.client.pubsub_channels("fencekit:*")) == 2
    await lock.release(lease)
    await lock.release(await waiter)


async def test_a_lease_longer_than_that_of_whoever_hands_over_is_not_lost_at_once(
    twin: Twin,
) -> None:
    short, long = twin.lock(lease_ms=500), twin.lock()
    lease = await short.acquire()
    waiter = asyncio.create_task(long.acquire())
    await until_waiting(short, 1)
    await short.release(lease)
    lease = await asyncio.wait_for(waiter, 5)
    assert not lease.lost.is_set()
    await asyncio.sleep(0.7)  # longer than the lease it was handed over with
    assert not lease.lost.is_set()
    await long.release(lease)


async def test_an_offer_shorter_than_what_a_long_lease_keeps_clear_of_is_taken_up_first(
    twin: Twin,
) -> None:
    short, long = twin.lock(lease_ms=500), twin.lock(client=twin.client())
    lease = await short.acquire()
    waiter = asyncio.create_task(long.acquire())
    await until_waiting(short, 1)
    await short.release(lease)
    lease = await asyncio.wait_for(waiter, 5)
    await asyncio.sleep(0.7)  # longer than the offer
    assert not lease.lost.is_set()
    await long.release(lease)


async def test_one_hold_is_for_one_block(async_redis_client: Any, queue: Queue) -> None:
    lock = FifoLock(async_redis_client, "invoices")
    hold = lock.hold()
    async with hold as lease:
        with pytest.raises(RuntimeError, match="anew"):
            await hold.__aenter__()
        assert queue.token == lease.fence
        assert queue.queued == []
    assert queue.holder == ""


def test_a_keeper_that_cannot_be_started_leaves_nothing_held(
    redis_client: Any, queue: Queue, monkeypatch: Any
) -> None:
    def refuse(_keeper: LeaseKeeper, _kept: Kept) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    lock = SyncFifoLock(redis_client, "invoices")
    monkeypatch.setattr(LeaseKeeper, "care", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        lock.acquire()
    assert queue.holder == ""


async def test_releases_that_nobody_waited_for_are_not_remembered(async_redis_client: Any) -> None:
    lock = FifoLock(async_redis_client, "invoices")
    lease = await lock.acquire()
    waiter = asyncio.create_task(lock.acquire())
    await until_waiting(lock, 1)
    await lock.release(lease)
    lease = await waiter
    release = asyncio.create_task(lock.release(lease))
    await asyncio.sleep(0)
    release.cancel()
    with pytest.raises(asyncio.CancelledError):
        await release
    desk = lock._desk(lock._driver.state())
    await eventually_async(lambda: not desk._holders)


async def test_a_server_that_is_silent_about_channels_prolongs_no_wait(
    twin: Twin, proxy: Proxy
) -> None:
    lock = twin.lock(client=twin.client(proxy.url))
    lease = await lock.acquire()
    proxy.add(HoldBack(named("SUBSCRIBE"), nth=None, then="silence"))
    asked = time.monotonic()
    with pytest.raises(FifoTimeout):
        await lock.acquire(0.1)
    assert time.monotonic() - asked < 1.0
    await lock.release(lease)
