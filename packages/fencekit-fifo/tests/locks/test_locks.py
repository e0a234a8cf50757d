"""What a user of either colour relies on, inside one process."""

from __future__ import annotations

import asyncio
import pickle
import time
from datetime import timedelta
from typing import Any

import pytest

from fencekit import AsyncDistributedLock, FencedOutError, FenceGate, FenceToken
from fencekit.drivers.loop_state import LoopState
from fencekit.fifo import FifoLock, FifoTimeout, LeaseLost, SyncFifoLock
from fencekit.fifo.desk import Room
from fencekit.hooks import FenceKitHooks, LockAcquired, LockFailed, LockReleased, LockWaited
from harness.clients import aopened
from harness.faults import Delay
from harness.fifo import Queue
from harness.mutations import changed, red_by
from harness.proxy import Proxy
from harness.twins import Twin
from harness.waiting import eventually_async, until_waiting


async def test_hold_and_by_hand(twin: Twin) -> None:
    lock = twin.lock()
    async with lock.hold() as lease:
        assert isinstance(lease.fence, FenceToken)
        assert lease.fence.resource == "invoices"
        assert lease.position_at_entry == 0
        assert not lease.lost.is_set()
    second = await lock.acquire(30)
    assert second.fence > lease.fence
    await lock.release(second)
    await lock.release(second)  # silent
    assert (await lock.stats()).holder is None


async def test_waiters_enter_in_order_of_arrival(twin: Twin) -> None:
    lock = twin.lock()
    first = await lock.acquire()
    entered: list[int] = []
    positions: list[int] = []

    async def wait(number: int) -> None:
        async with lock.hold() as lease:
            entered.append(number)
            positions.append(lease.position_at_entry)

    tasks = []
    for number in range(20):
        tasks.append(asyncio.create_task(wait(number)))
        # One at a time, so that threads arrive in this order.
        await until_waiting(lock, number + 1)
    await lock.release(first)
    await asyncio.gather(*tasks)
    assert entered == list(range(20))
    assert positions == list(range(20))


async def test_running_out_of_time_gives_up_the_place(twin: Twin, queue: Queue) -> None:
    lock = twin.lock()
    lease = await lock.acquire()
    started = time.monotonic()
    with pytest.raises(FifoTimeout) as caught:
        await lock.acquire(0.2)
    assert time.monotonic() - started > 0.19
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, asyncio.TimeoutError)
    assert caught.value.holder == lease.owner_id
    assert queue.queued == []
    await lock.release(lease)


async def test_no_time_at_all_only_looks(twin: Twin) -> None:
    lock = twin.lock()
    lease = await lock.acquire(0)
    with pytest.raises(FifoTimeout):
        await lock.acquire(0)
    await lock.release(lease)


async def test_stats(twin: Twin) -> None:
    lock = twin.lock()
    lease = await lock.acquire()
    waiter = asyncio.create_task(lock.acquire())
    await until_waiting(lock, 1)
    await asyncio.sleep(0.05)
    stats = await lock.stats()
    assert stats.holder == lease.owner_id
    assert stats.fence == lease.fence
    assert 30_000 < stats.lease_left_ms <= 60_000
    assert 45 < stats.oldest_wait_ms < 60_000
    await lock.release(lease)
    await lock.release(await waiter)
    stats = await lock.stats()
    assert (stats.holder, stats.fence, stats.waiting, stats.oldest_wait_ms) == (None, None, 0, 0)
    assert stats.last >= int(lease.fence)


async def test_a_lease_that_ended_is_lost(twin: Twin, queue: Queue) -> None:
    lock = twin.lock()
    lease = await lock.acquire()
    queue.lapse()
    other = await lock.acquire()
    with pytest.raises(LeaseLost) as caught:
        await lock.release(lease)
    assert caught.value.token == lease.fence
    await lock.release(other)


async def test_the_body_s_exception_wins(twin: Twin, queue: Queue) -> None:
    lock = twin.lock()

    async def lose(error: type[Exception] | None) -> None:
        async with lock.hold():
            queue.lapse()
            if error is not None:
                raise error

    with pytest.raises(ZeroDivisionError):
        await lose(ZeroDivisionError)
    with pytest.raises(LeaseLost):
        await lose(None)


async def test_the_holder_is_renewed(twin: Twin, queue: Queue) -> None:
    lock = twin.lock(lease_ms=2000)
    async with lock.hold() as lease:
        await _until_renewed(queue)
        assert queue.holder == lease.owner_id
        assert not lease.lost.is_set()


async def _until_renewed(queue: Queue) -> None:
    """Return when the server's lease has become longer."""
    least = queue.left_ms

    def renewed() -> bool:
        nonlocal least
        left = queue.left_ms
        least = min(least, left)
        return left > least + 300

    await eventually_async(renewed, 5)


async def test_a_waiter_that_was_offered_the_lock_is_renewed(twin: Twin, queue: Queue) -> None:
    lock = twin.lock(lease_ms=2000)
    first = await lock.acquire()
    waiter = asyncio.create_task(lock.acquire())
    await until_waiting(lock, 1)
    await lock.release(first)
    lease = await waiter
    await _until_renewed(queue)
    assert not lease.lost.is_set()
    await lock.release(lease)


async def test_lost_is_told_when_the_lock_is_taken_away(twin: Twin, queue: Queue) -> None:
    lock = twin.lock(lease_ms=2000)
    lease = await lock.acquire()
    queue.lapse()
    await eventually_async(lease.lost.is_set, 5.0)
    with pytest.raises(LeaseLost):
        await lock.release(lease)


async def test_max_hold_frees_a_lock_whose_caller_vanished(twin: Twin) -> None:
    lock = twin.lock(lease_ms=1000, max_hold_ms=1500)
    started = time.monotonic()
    forgotten = await lock.acquire()
    lease = await lock.acquire(10)
    # It was renewed, and then no more.
    assert time.monotonic() - started > 1.2
    assert forgotten.lost.is_set()
    await lock.release(lease)


async def test_a_fence_of_an_older_lease_is_refused(
    twin: Twin, queue: Queue, redis_client: Any
) -> None:
    lock, gate = twin.lock(), FenceGate(redis_client)
    stale = await lock.acquire()
    queue.lapse()
    async with lock.hold() as lease:
        gate.set_if_fresh(lease.fence, "invoices:status", "sent")
        with pytest.raises(FencedOutError):
            gate.set_if_fresh(stale.fence, "invoices:status", "stale")


async def test_a_new_lock_for_each_use_is_the_same_lock(twin: Twin) -> None:
    client = twin.client()
    order: list[int] = []

    async def use(number: int) -> None:
        async with twin.lock(client=client).hold(timeout=10):
            order.append(number)

    await asyncio.gather(*(use(number) for number in range(30)))
    assert sorted(order) == list(range(30))


async def test_two_locks_of_one_client_do_not_mix(twin: Twin) -> None:
    one, two = twin.lock("one"), twin.lock("two")
    leases = [await one.acquire(), await two.acquire()]
    waiters = [asyncio.create_task(lock.acquire()) for lock in (one, two)]
    await until_waiting(one, 1)
    await until_waiting(two, 1)
    await one.release(leases[0])
    first = await waiters[0]
    assert first.resource == "one"
    assert not waiters[1].done()
    await two.release(leases[1])
    await two.release(await waiters[1])
    await one.release(first)


async def test_different_settings_share_one_queue(twin: Twin) -> None:
    short, long = twin.lock(lease_ms=3000), twin.lock()
    lease = await short.acquire()
    waiters = []
    for count, lock in enumerate((long, short, long), start=1):
        waiters.append((lock, asyncio.create_task(lock.acquire())))
        await until_waiting(short, count)
    await short.release(lease)
    for lock, waiter in waiters:
        await lock.release(await asyncio.wait_for(waiter, 5))


async def test_hooks_are_told(twin: Twin) -> None:
    events: list[object] = []
    hooks = FenceKitHooks(
        on_acquired=events.append,
        on_failed=events.append,
        on_released=events.append,
        on_waited=events.append,
    )
    lock = twin.lock(hooks=hooks)
    lease = await lock.acquire()
    with pytest.raises(FifoTimeout):
        await lock.acquire(0.05)
    await lock.release(lease)
    await lock.release(lease)
    assert [type(event) for event in events] == [LockAcquired, LockWaited, LockFailed, LockReleased]
    assert isinstance(events[2], LockFailed)
    assert events[2].holder == lease.owner_id


async def test_a_waiter_tells_that_it_waited(twin: Twin) -> None:
    events: list[object] = []
    lock = twin.lock(hooks=FenceKitHooks(on_waited=events.append))
    lease = await lock.acquire()
    assert events == []
    waiter = asyncio.create_task(lock.acquire())
    await until_waiting(lock, 1)
    await lock.release(lease)
    await lock.release(await waiter)
    assert isinstance(events[0], LockWaited)
    assert events[0].acquired


async def test_a_plain_lock_of_the_name_excludes_and_shares_the_fence(
    twin: Twin, async_redis_client: Any
) -> None:
    fifo, plain = twin.lock(), AsyncDistributedLock(async_redis_client)
    handle = await plain.acquire("invoices", ttl=timedelta(seconds=30))
    waiter = asyncio.create_task(fifo.acquire())
    await until_waiting(fifo, 1)
    released = time.monotonic()
    await plain.release(handle)
    lease = await asyncio.wait_for(waiter, 5)
    # By its wake, before the next beat, of 2.5 s.
    assert time.monotonic() - released < 2.0
    assert lease.fence > handle.token
    assert await plain.try_acquire("invoices", ttl=timedelta(seconds=1)) is None
    waiting = asyncio.create_task(
        plain.acquire("invoices", ttl=timedelta(seconds=30), wait=timedelta(seconds=10))
    )
    await asyncio.sleep(0.1)
    released = time.monotonic()
    await fifo.release(lease)
    handle = await waiting
    assert time.monotonic() - released < 2.0
    assert handle.token > lease.fence
    await plain.release(handle)


@red_by(changed(Room, "expect", lambda _room, _answer, _holder: None))
async def test_a_waiter_looks_when_the_lease_of_a_stranger_is_over(
    twin: Twin, async_redis_client: Any
) -> None:
    fifo, plain = twin.lock(), AsyncDistributedLock(async_redis_client)
    started = time.monotonic()
    assert await plain.try_acquire("invoices", ttl=timedelta(seconds=0.5), renew=False)
    lease = await asyncio.wait_for(fifo.acquire(), 5)
    # Not by its first beat, after 2.5 s.
    assert time.monotonic() - started < 1.8
    await fifo.release(lease)


async def test_bad_input_is_refused_before_a_byte_is_sent(
    twin: Twin, redis_client: Any, async_redis_client: Any
) -> None:
    lock = twin.lock()
    for error, options in (
        (ValueError, {"name": ""}),
        (ValueError, {"name": "two words"}),
        (TypeError, {"name": None}),
        (ValueError, {"lease_ms": 0}),
        (ValueError, {"lease_ms": -1}),
        (TypeError, {"lease_ms": 1.5}),
        (TypeError, {"lease_ms": True}),
        (ValueError, {"poll_ms": -1}),
        (ValueError, {"alive_ms": 0}),
        (ValueError, {"lease_ms": 1000, "max_hold_ms": 1000}),
        (ValueError, {"max_hold_ms": 60_000}),
        (ValueError, {"prefix": "with space"}),
    ):
        with pytest.raises(error):
            _make(twin, options)
    for timeout, wrong in ((-1, ValueError), (float("nan"), ValueError), ("5", TypeError)):
        with pytest.raises(wrong):
            await lock.acquire(_anything(timeout))
    with pytest.raises(TypeError, match="sync client"):
        FifoLock(redis_client, "x")
    with pytest.raises(TypeError, match="async client"):
        SyncFifoLock(async_redis_client, "x")
    other = twin.lock("other")
    lease = await other.acquire()
    with pytest.raises(ValueError, match="other"):
        await lock.release(lease)
    with pytest.raises(TypeError):
        await lock.release("lease")
    with pytest.raises(ValueError, match="client"):
        await twin.lock("other", client=twin.client()).release(lease)
    await other.release(lease)


def _make(twin: Twin, options: dict[str, Any]) -> None:
    twin.lock(**{"name": "ok", **options})


def _anything(value: Any) -> Any:
    return value


def test_a_name_is_required(redis_client: Any) -> None:
    with pytest.raises(TypeError):
        SyncFifoLock(redis_client)  # type: ignore[call-arg]


async def test_cancelled_waiters_leave_nothing(async_redis_client: Any, queue: Queue) -> None:
    lock = FifoLock(async_redis_client, "invoices")
    lease = await lock.acquire()
    tasks = [asyncio.create_task(lock.acquire()) for _ in range(20)]
    await until_waiting(lock, 20)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks[::2], return_exceptions=True)
    await until_waiting(lock, 10)
    await lock.release(lease)
    for task in tasks[1::2]:
        await lock.release(await task)
    assert queue.client.keys() == [b"fencekit:{invoices}:fence"]


async def test_a_cancelled_release_still_hands_over(async_redis_client: Any) -> None:
    lock = FifoLock(async_redis_client, "invoices")
    lease = await lock.acquire()
    waiter = asyncio.create_task(lock.acquire())
    await until_waiting(lock, 1)
    release = asyncio.create_task(lock.release(lease))
    await asyncio.sleep(0)
    release.cancel()
    next_lease = await asyncio.wait_for(waiter, 1.0)
    await lock.release(lease)  # repeated
    await lock.release(next_lease)


@red_by(changed(LoopState, "see_through", lambda _state, _parcel: None))
def test_a_release_that_the_end_of_its_loop_cancels_is_carried_out(
    proxy: Proxy, queue: Queue
) -> None:
    async def hold_until_the_end() -> None:
        async with aopened(proxy.url) as client:
            lock = FifoLock(client, "invoices")
            lease = await lock.acquire()
            # So that the first copy is answered with an error, when the loop is about to end, and
            # another must follow.
            queue.client.script_flush()
            proxy.add(Delay(0.1))
            releases.append(asyncio.create_task(lock.release(lease)))
            await asyncio.sleep(0)

    releases: list[asyncio.Task[None]] = []
    asyncio.run(hold_until_the_end())
    assert releases[0].cancelled()
    assert queue.holder == ""


def test_one_lock_object_on_two_event_loops(redis_url: str) -> None:
    locks: list[FifoLock] = []

    async def once() -> int:
        async with aopened(redis_url) as client:
            locks.append(FifoLock(client, "invoices"))
            async with locks[-1].hold() as lease:
                return int(lease.fence)

    assert asyncio.run(once()) < asyncio.run(once())


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(FifoTimeout("x", timeout=1.5, holder="me")))  # noqa: S301 - made here
    assert (error.resource, error.timeout, error.holder) == ("x", 1.5, "me")
    assert str(error) == str(FifoTimeout("x", timeout=1.5, holder="me"))
