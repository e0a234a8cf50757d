"""The rows of the public reports about fair locks.

Each is seen to fail, every time: on `NaiveFifoLock` (the parameter "naive"), with a rule of the
library taken out (`red_by`, the parameter "mutated"), or broken as its parameter says.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from fencekit.fifo import FifoLock, FifoTimeout, protocol
from fencekit.fifo.desk import Desk, Room
from fencekit.fifo.offers import Offer, TakeUp
from harness.children import Child, hear, tell
from harness.clients import aopened
from harness.faults import Duplicate, containing
from harness.fifo import Queue, make_terms
from harness.mutations import changed, lua, red_by
from harness.naive_fifo import NaiveFifoLock
from harness.proxy import Proxy
from harness.twins import Twin
from harness.waiting import cancelled, eventually, eventually_async

KINDS: dict[str, Any] = {"fifo": FifoLock, "forgetful": FifoLock, "naive": NaiveFifoLock}


async def wait_in_line(url: str, kind: str, options: dict[str, Any], waiters: int = 1) -> None:
    """In a child: when told to, queue, say when each enters, and hold until told otherwise."""
    hear()
    if kind == "forgetful":  # who has lost a place does not ask again
        Room.recheck = lambda self: None  # type: ignore[method-assign]  # noqa: ARG005 - a method
    async with aopened(url) as client:
        lock = KINDS[kind](client, "invoices", **options)

        async def one(number: int) -> None:
            lease = await lock.acquire()
            tell("entered", number, int(lease.fence), time.time())
            await asyncio.to_thread(hear)
            lost = kind == "fifo" and lease.lost.is_set()
            try:
                await lock.release(lease)
            except Exception as error:  # noqa: BLE001 - told to the test
                tell("released", type(error).__name__, lost)
            else:
                tell("released", "", lost)

        tell("queueing")
        await asyncio.gather(*(one(number) for number in range(waiters)))


def ten_in_line(url: str, kind: str) -> None:
    """In a child: when told to, queue in ten processes, which end with this one at the latest.

    Forked, because ten interpreters would take seconds to start.
    """
    importlib.import_module("redis.asyncio")  # here once, instead of ten times below
    hear()
    ends, ours = os.pipe()
    for _ in range(10):
        if os.fork() == 0:
            os.close(ours)
            threading.Thread(target=lambda: os.read(ends, 1) or os._exit(0), daemon=True).start()
            asyncio.run(_wait(url, kind))
            os._exit(0)
    for _ in range(10):
        os.wait()
        tell("dead")


async def _wait(url: str, kind: str) -> None:
    async with aopened(url) as client:
        tell("waits", os.getpid())
        await KINDS[kind](client, "invoices").acquire()


def _queued(queue: Queue, kind: str) -> int:
    if kind == "naive":
        return int(queue.client.llen("naive:invoices:queue"))
    return len(queue.queued)


@pytest.mark.parametrize("kind", ["fifo", "naive"])
async def test_fifo_redisson_2099(redis_url: str, queue: Queue, kind: str) -> None:
    """Ten queued processes are killed, the lock is released at once: the eleventh enters.

    Within 0.2 s, in one of three tries: the machine may be busy with something else in the others.
    """
    for _ in range(3):
        if await _over_the_dead(redis_url, queue, kind) < 0.2:
            return
    pytest.fail("the eleventh took longer three times")


async def _over_the_dead(redis_url: str, queue: Queue, kind: str) -> float:
    """How long the eleventh took to enter, seconds; 0 where it should not, and did not."""
    with Child(ten_in_line, redis_url, kind) as parent:
        parent.started()
        async with aopened(redis_url) as client:
            lock = KINDS[kind](client, "invoices")
            lease = await lock.acquire()
            parent.tell("go")
            await eventually_async(lambda: _queued(queue, kind) == 10, 30)
            eleventh = asyncio.create_task(lock.acquire())
            await eventually_async(lambda: _queued(queue, kind) == 11, 5)
            for pid in [parent.expect("waits")[1] for _ in range(10)]:
                os.kill(pid, signal.SIGKILL)
            for _ in range(10):
                parent.expect("dead")
            released = time.monotonic()
            await lock.release(lease)
            if kind == "naive":
                await asyncio.wait([eleventh], timeout=1.0)
                assert not eleventh.done()
                await cancelled(eleventh)
                return 0.0
            lease = await asyncio.wait_for(eleventh, 5.0)
            took = time.monotonic() - released
            await lock.release(lease)
            return took


@pytest.mark.parametrize("kind", ["fifo", "forgetful"])
def test_fifo_redisson_5503(redis_url: str, queue: Queue, kind: str) -> None:
    """A queued process is stopped past its window and continued: it enters in the end, alone."""
    options = {"lease_ms": 10_000, "alive_ms": 1500}
    with ExitStack() as stack:
        holder, sleeper, other = children = [
            stack.enter_context(Child(wait_in_line, redis_url, kind, options)) for _ in range(3)
        ]
        for child in children:
            child.started()
        holder.tell("go")
        holder.expect("queueing")
        holder.expect("entered")
        for child, queued in ((sleeper, 1), (other, 2)):
            child.tell("go")
            child.expect("queueing")
            eventually(lambda queued=queued: len(queue.queued) == queued, 10)  # type: ignore[misc]
        [(_, place), _] = queue.client.xrange(queue.terms.names.queue)
        sleeper.pause()
        eventually(lambda: _is_dead(queue, place[b"c"]), 10)
        holder.tell("go")
        assert holder.expect("released")[1] == ""
        # It is dead, and loses its place to the next.
        other.expect("entered")
        sleeper.resume()
        with pytest.raises(TimeoutError):
            sleeper.next(0.5)
        other.tell("go")
        assert other.expect("released")[1] == ""
        if kind == "forgetful":
            with pytest.raises(TimeoutError):
                sleeper.expect("entered", 2.0)
            return
        sleeper.expect("entered", 20.0)
        sleeper.tell("go")
        assert sleeper.expect("released")[1] == ""


def _is_dead(queue: Queue, channel: bytes) -> bool:
    """Whether the server has a process for dead: its window is over."""
    seconds, micros = queue.client.time()
    until = queue.client.zscore(queue.terms.names.members, channel)
    return bool(until is None or until < seconds * 1000 + micros // 1000)


@red_by(changed(Room, "beaten", lambda room, _answer: room.pause))
@pytest.mark.parametrize("lost", ["the connection", "the message"])
async def test_fifo_wake_lost(twin: Twin, queue: Queue, lost: str, monkeypatch: Any) -> None:
    """The doorbell is cut while queued: the waiter enters within one beat, half an offer."""
    if lost == "the message":
        monkeypatch.setattr(Desk, "pushed", lambda _self, _channel, _message: None)
    lock = twin.lock()
    queue.listen("elsewhere")
    token = int(queue.acquire("a", "elsewhere")[1])
    waiter = asyncio.create_task(lock.acquire())
    await eventually_async(lambda: len(queue.queued) == 1, 5)
    released = time.monotonic()
    if lost == "the connection":
        queue.client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    queue.release("a", token, "elsewhere")
    lease = await asyncio.wait_for(waiter, 5)
    assert time.monotonic() - released < 2 * 2.5  # not by a second beat
    await lock.release(lease)


@red_by(lua("acquire", "  if id then\n    return before", "  if false then\n    return before"))
async def test_fifo_retry_storm(twin: Twin, proxy: Proxy, queue: Queue) -> None:
    """Every acquire is sent twice: one place in the queue each."""
    lock = twin.lock(client=twin.client(proxy.url))
    lease = await lock.acquire()
    with pytest.raises(FifoTimeout):  # the server has the script from now on
        await lock.acquire(0.01)
    storm = proxy.add(Duplicate(containing(protocol.ACQUIRE.sha, protocol.LOOK.sha)))
    waiters = [asyncio.create_task(lock.acquire()) for _ in range(10)]
    await eventually_async(lambda: len(queue.queued) >= 10, 5)
    await asyncio.sleep(0.1)
    assert len(queue.queued) == 10
    assert storm.fired >= 10
    await lock.release(lease)
    for waiter in asyncio.as_completed(waiters):
        await lock.release(await waiter)
    assert queue.client.keys() == [b"fencekit:{invoices}:fence"]


@pytest.mark.parametrize("broken", ["", "any offer is fresh", "any offer stands"])
async def test_fifo_doorbell_delayed_past_its_offer(
    redis_url: str, redis_client: Any, monkeypatch: Any, broken: str
) -> None:
    """A message that comes after its offer has lapsed lets nobody in.

    Were any offer fresh, or did the take-up not look whose the lock is, the waiter would enter on
    the old message beside whoever holds the lock.
    """
    heard: list[tuple[Desk, str, bytes | None]] = []
    pushed = Desk.pushed
    monkeypatch.setattr(
        Desk, "pushed", lambda desk, channel, message: heard.append((desk, channel, message))
    )
    if broken == "any offer stands":
        mine = "redis.call('GET', lock) ~= owner .. ':' .. attempt .. ':' .. number"
        lua("renew", mine, "false")(monkeypatch)
    if broken == "any offer is fresh":
        monkeypatch.setattr(Offer, "make", lambda token, *_, **__: Offer(token, 1e9, 1e9))
        monkeypatch.setattr(TakeUp, "answered", lambda *_: None)
    queue = Queue(redis_client, terms=make_terms(offer=300))
    async with aopened(redis_url) as client:
        lock = FifoLock(client, "invoices", lease_ms=300)
        token = int(queue.acquire("a", "elsewhere")[1])
        waiter = asyncio.create_task(lock.acquire())
        await eventually_async(lambda: len(queue.queued) == 1, 5)
        await asyncio.sleep(0.05)
        # Beats would repair what the test takes away.
        monkeypatch.setattr("fencekit.fifo.desk.Room.beaten", lambda _room, _answer: 60.0)
        monkeypatch.setattr("fencekit.fifo.desk.Room.hurry", lambda _room: None)
        queue.release("a", token, "elsewhere")
        await eventually_async(lambda: len(heard) == 1, 5)
        queue.client.set(queue.terms.names.lock, f"b:{'b' * 32}:{queue.token + 1}", px=60_000)
        await asyncio.sleep(0.4)
        pushed(*heard[0])
        await asyncio.sleep(0.2)
        assert queue.holder == "b"
        assert waiter.done() is bool(broken)
        if not broken:
            waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)


@red_by(changed(Room, "beaten", lambda _room, _answer: 60.0))
async def test_fifo_a_waiter_that_dies_after_its_offer_costs_one_offer(
    redis_url: str, queue: Queue
) -> None:
    """A process is killed between offer and take-up: the next enters when the offer is over."""
    options: dict[str, Any] = {"lease_ms": 2000}
    with Child(wait_in_line, redis_url, "fifo", options) as dying:
        dying.started()
        async with aopened(redis_url) as client:
            lock = FifoLock(client, "invoices", **options)
            lease = await lock.acquire()
            dying.tell("go")
            await eventually_async(lambda: len(queue.queued) == 1, 10)
            waiter = asyncio.create_task(lock.acquire())
            await eventually_async(lambda: len(queue.queued) == 2, 5)
            dying.pause()  # still subscribed, so the offer is made
            released = time.monotonic()
            await lock.release(lease)
            assert queue.holder != ""
            dying.kill()
            lease = await asyncio.wait_for(waiter, 10)
            assert time.monotonic() - released < 2 * 2.0  # no second one
            await lock.release(lease)


@red_by(changed(Desk, "_turn_away", lambda _desk, *_: None))
async def test_fifo_a_message_for_nobody_is_turned_away(redis_url: str, queue: Queue) -> None:
    """An offer that names a waiter this process does not know is given back at once."""
    async with aopened(redis_url) as client:
        lock = FifoLock(client, "invoices")
        queue.listen("elsewhere")
        token = int(queue.acquire("a", "elsewhere")[1])
        waiter = asyncio.create_task(lock.acquire())
        await eventually_async(lambda: len(queue.queued) == 1, 5)
        # A ghost of the same process, in front: as if its withdraw had never arrived.
        [(entry, fields)] = queue.client.xrange(queue.terms.names.queue)
        names = queue.terms.names
        queue.client.delete(names.queue)
        ghost = queue.client.xadd(names.queue, {"w": "ghost:0123", "c": fields[b"c"]}, id="1-1")
        queue.client.hset(names.tickets, "0123", ghost.decode() + " 0")
        queue.client.xadd(names.queue, fields, id=entry)
        released = time.monotonic()
        queue.release("a", token, "elsewhere")
        assert queue.holder == "ghost"
        lease = await asyncio.wait_for(waiter, 5)
        assert time.monotonic() - released < 0.5
        await lock.release(lease)
