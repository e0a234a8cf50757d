"""What the process under observation does, until it is killed."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any

import redis
import redis.asyncio
from pydantic import BaseModel

from fencekit import (
    AsyncDistributedLock,
    AsyncIdempotencyGuard,
    DistributedLock,
    FenceGate,
    IdempotencyGuard,
)
from fencekit.cache import GenericCache, SyncGenericCache
from fencekit.fifo import FifoLock, SyncFifoLock
from harness.children import tell

_SHORT, _LEASE = timedelta(seconds=3), timedelta(seconds=5)
_THREADS, _TASKS = 4, 12
# Rounds a second of each: what lives on the server depends on the pace, so it must be steady, and
# slow enough for a machine that has other things to do.
_PACE = 20


class _Entry(BaseModel):
    number: int


def live(url: str) -> None:
    """In a child: use everything, and tell now and then how much was done."""
    done = itertools.count(1)
    threads = [
        threading.Thread(target=_in_a_thread, args=(url, n, done), daemon=True)
        for n in range(_THREADS)
    ]
    for thread in threads:
        thread.start()
    threading.Thread(target=_in_short_lives, args=(url,), daemon=True).start()
    asyncio.run(_in_a_loop(url, done))


def _in_a_thread(url: str, which: int, done: Any) -> None:
    client = redis.Redis.from_url(url)
    lock = DistributedLock(client, fence_retention=_SHORT)
    gate = FenceGate(client, fence_retention=_SHORT)
    guard = IdempotencyGuard(client)

    class Entries(SyncGenericCache[_Entry]):
        ttl = 2
        redis_client = client

    cache, began = Entries(), time.monotonic()
    for number in itertools.count():
        name = f"{which}-{number}"
        with lock.hold(name, ttl=_LEASE, wait=_LEASE) as handle:
            gate.set_if_fresh(handle.token, f"{name}:status", "x", ttl=_SHORT)
        with lock.hold("shared", ttl=_LEASE, wait=timedelta(minutes=1)):
            pass
        guard.run(name, lambda: {"x": 1}, ttl=_SHORT)
        cache.get_or_load(name, partial(_Entry, number=number))
        cache.invalidate(name)
        queue = SyncFifoLock(client, f"queue-{number % 50}")
        queue.release(queue.acquire(60.0))
        next(done)
        time.sleep(max(0.0, began + number / _PACE - time.monotonic()))


async def _in_a_loop(url: str, done: Any) -> None:
    client = redis.asyncio.Redis.from_url(url)
    lock = AsyncDistributedLock(client, fence_retention=_SHORT)
    guard = AsyncIdempotencyGuard(client)
    fifo = FifoLock(client, "door")

    class Entries(GenericCache[_Entry]):
        ttl = 2
        redis_client = client

    cache = Entries()

    async def one(task: int) -> None:
        began = time.monotonic()
        for number in itertools.count():
            await asyncio.sleep(max(0.0, began + number / _PACE - time.monotonic()))
            name = f"a{task}-{number}"
            async with lock.hold(name, ttl=_LEASE):
                pass

            async def load(number: int = number) -> _Entry:
                return _Entry(number=number)

            async def job() -> int:
                return 1

            await cache.get_or_load(f"hot-{number % 7}", load)
            await guard.run(name, job, ttl=_SHORT)
            waiting = asyncio.ensure_future(fifo.acquire(60.0))
            if number % 10 == 0:
                await asyncio.sleep(0.001)
                waiting.cancel()
            try:
                lease = await waiting
            except asyncio.CancelledError:
                continue
            await fifo.release(lease)
            if next(done) % 100 == 0:
                tell("done", next(done))

    await asyncio.gather(*(one(task) for task in range(_TASKS)))


def _in_short_lives(url: str) -> None:
    """Clients and loops that come and go."""
    for number in itertools.count():
        client = redis.Redis.from_url(url)
        lock = DistributedLock(client, fence_retention=_SHORT)
        with lock.hold(f"short-{number}", ttl=_LEASE):
            pass
        client.close()

        async def once(number: int = number) -> None:
            async with (
                redis.asyncio.Redis.from_url(url) as client,
                AsyncDistributedLock(client, fence_retention=_SHORT).hold(
                    f"shorter-{number}", ttl=_LEASE
                ),
            ):
                pass

        asyncio.run(once())
        del client
        gc.collect()
        threading.Event().wait(0.2)
