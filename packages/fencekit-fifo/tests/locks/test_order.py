"""Order over processes, and many waiters on few connections.

The order that counts is the stream's, read from the server before anybody enters. Where
`red_by` says so a test is run once more, and fails, with advance walking the stream from its end.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest

from fencekit.fifo import FifoLock, SyncFifoLock
from harness.children import Child, hear, tell
from harness.clients import aopened, opened
from harness.fifo import Queue
from harness.mutations import lua, red_by
from harness.waiting import eventually_async

_LOG = "log"


async def crowd(url: str, waiters: int, seed: int) -> None:
    """In a child: queue, and log each entry by attempt; cancel some; end when all are served."""
    async with aopened(url) as client:
        lock = FifoLock(client, "invoices")
        chance = random.Random(seed)

        async def one() -> None:
            await asyncio.sleep(chance.random() * 0.3)
            async with lock.hold() as lease:
                await client.rpush(_LOG, lease.ticket.claimant.attempt)

        tasks = [asyncio.create_task(one()) for _ in range(waiters)]
        tell("queueing")
        while (told := await asyncio.to_thread(hear)) != ["finish"]:
            chosen = chance.sample(tasks, told[0])
            for task in chosen:
                task.cancel()
            await asyncio.gather(*chosen, return_exceptions=True)
            tell("cancelled")
        await asyncio.gather(*tasks, return_exceptions=True)
        tell("finished")


@pytest.mark.slow
async def test_500_waiters_of_five_processes(redis_url: str, queue: Queue) -> None:
    """Grants equal the order in which the server received them, through cancellations and kills."""
    async with aopened(redis_url) as client:
        lock = FifoLock(client, "invoices")
        lease = await lock.acquire()
        with ExitStack() as stack:
            crowds = [stack.enter_context(Child(crowd, redis_url, 100, seed)) for seed in range(5)]
            for child in crowds:
                child.expect("queueing", 30)
            await eventually_async(lambda: len(queue.queued) == 500, 30)
            for child in crowds[:3]:
                child.tell(15)
            for child in crowds[:3]:
                child.expect("cancelled")
            await eventually_async(lambda: len(queue.queued) == 455, 10)
            crowds[4].kill()
            entries = queue.client.xrange(queue.terms.names.queue)
            channels = Counter(fields[b"c"] for _, fields in entries)
            assert sorted(channels.values()) == [85, 85, 85, 100, 100]
            for child in crowds[:4]:
                child.tell("finish")
            await lock.release(lease)
            for child in crowds[:4]:
                child.expect("finished", 30)
        log = [attempt.decode() for attempt in await client.lrange(_LOG, 0, -1)]
        places = [fields[b"w"].decode().partition(":")[2] for _, fields in entries]
        served = set(log)
        assert len(log) == 355
        assert log == [attempt for attempt in places if attempt in served]


async def _memory(client: Any) -> int:
    info = await client.info("memory")
    return int(info["used_memory"])


@red_by(
    lua(
        "release",
        "'XRANGE', queue, from, '+', 'COUNT', from == '-' and 1 or 64",
        "'XREVRANGE', queue, '+', '-'",
    )
)
@pytest.mark.slow
async def test_2000_tasks_on_a_stock_client(redis_url: str, queue: Queue) -> None:
    """A stock client with its default pool: all in order, few connections, little memory."""
    await _many_tasks(redis_url, queue, 2000)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif("FENCEKIT_LONG" not in os.environ, reason="20 s or more: set FENCEKIT_LONG")
async def test_20000_tasks_on_a_stock_client(redis_url: str, queue: Queue) -> None:
    """Twenty thousand of them."""
    await _many_tasks(redis_url, queue, 20_000)


async def _many_tasks(url: str, queue: Queue, count: int) -> None:
    async with aopened(url) as client:
        lock = FifoLock(client, "invoices")
        lease = await lock.acquire()
        entered: list[str] = []
        before = await _memory(client)

        async def one() -> None:
            async with lock.hold() as lease:
                entered.append(lease.ticket.claimant.attempt)

        tasks = [asyncio.create_task(one()) for _ in range(count)]
        await eventually_async(
            lambda: queue.client.xlen(queue.terms.names.queue) == count, 60, interval=0.05
        )
        used = await _memory(client) - before
        connections = int((await client.info("clients"))["connected_clients"])
        places = [
            fields[b"w"].decode().partition(":")[2]
            for _, fields in queue.client.xrange(queue.terms.names.queue)
        ]
        await lock.release(lease)
        await asyncio.wait_for(asyncio.gather(*tasks), 100)
        assert entered == places
        assert used / count < 400, f"{used / count:.0f} bytes of server memory for each"
        # The stock client's own, the commands', the keeper's, the hub's; and the test's.
        assert connections - 1 <= 4


@pytest.mark.slow
def test_2000_threads_on_a_stock_client(redis_url: str, queue: Queue) -> None:
    """The sync twin: one connection and one thread listen for two thousand threads."""
    count = 2000
    with opened(redis_url) as client:
        lock = SyncFifoLock(client, "invoices")
        lease = lock.acquire()
        ours = threading.active_count()
        entered: list[tuple[int, int]] = []

        def one() -> None:
            with lock.hold() as lease:
                entered.append((int(lease.fence), lease.position_at_entry))

        size = threading.stack_size(256 * 1024)
        threads = [threading.Thread(target=one) for _ in range(count)]
        threading.stack_size(size)
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while queue.client.xlen(queue.terms.names.queue) < count:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        subscribers = [one for one in client.client_list() if int(one["sub"]) > 0]
        assert len(subscribers) == 1
        assert threading.active_count() <= ours + count + 1
        lock.release(lease)
        for thread in threads:
            thread.join(60)
        assert len(entered) == count
        assert [position for _, position in entered] == list(range(count))
        assert sorted(entered) == entered
