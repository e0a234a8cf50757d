"""One FIFO lock under the same questions, in the environment of its own library.

python contender.py LIBRARY URL QUESTION; the answer is one line of JSON. It imports neither the
harness nor anything of ours, because redis-fifo-lock is asked the same where there is neither.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
import time
from statistics import median, quantiles
from typing import Any

import redis.asyncio

LEASE_MS = 2000
WAITERS = 90  # one less would not do for redis-py's default pool of 100 and a connection for each
DEAD = 5
CAP = 8.0


def make(library: str, client: Any, name: str, **options: Any) -> Any:
    """Make a lock of either library."""
    if library == "fencekit":
        from fencekit.fifo import FifoLock  # noqa: PLC0415 - absent in theirs

        return FifoLock(client, name, **options)
    theirs = importlib.import_module("redis_fifo_lock")
    return theirs.FifoLock(client, name, **options)


async def cycle(library: str, client: Any) -> dict[str, float]:
    """Uncontended cycles against two bare EVALSHA, interleaved."""
    lock, ratios = make(library, client, "cycle"), []
    sha = await client.script_load("return redis.call('SET', KEYS[1], ARGV[1], 'PX', 2000)")
    for _ in range(15):
        began = time.perf_counter()
        for _ in range(200):
            await client.evalsha(sha, 1, "k", "v")
        floor, began = time.perf_counter() - began, time.perf_counter()
        for _ in range(100):
            await lock.release(await lock.acquire())
        ratios.append(floor / (time.perf_counter() - began))
    return {"speed": median(ratios)}


async def handoff(library: str, client: Any) -> dict[str, float]:
    """From the call of a release to the moment when the next waiter is in, microseconds."""
    lock, times = make(library, client, "handoff"), []
    for _ in range(300):
        lease = await lock.acquire()
        waiter = asyncio.create_task(_enter(lock))
        await asyncio.sleep(0.005)
        began = time.perf_counter()
        await lock.release(lease)
        entered, lease = await waiter
        times.append((entered - began) * 1e6)
        await lock.release(lease)
    return {"p50": median(times), "p99": quantiles(times, n=100)[98]}


async def _enter(lock: Any) -> tuple[float, Any]:
    lease = await lock.acquire()
    return time.perf_counter(), lease


async def idle(library: str, client: Any) -> dict[str, float]:
    """What waiters cost: connections, and commands a second."""
    lock = make(library, client, "idle")
    lease = await lock.acquire()
    before = int((await client.info("clients"))["connected_clients"])
    tasks = [asyncio.create_task(lock.acquire()) for _ in range(WAITERS)]
    await asyncio.sleep(2.0)
    connections = int((await client.info("clients"))["connected_clients"]) - before
    start = int((await client.info("stats"))["total_commands_processed"])
    await asyncio.sleep(6.0)
    commands = int((await client.info("stats"))["total_commands_processed"]) - start - 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await lock.release(lease)
    return {"connections": connections, "commands": commands / 6.0}


async def dead(library: str, client: Any) -> dict[str, float]:
    """Queued processes are killed and the lock is released: when the next one enters, seconds."""
    lock = make(library, client, "dead", lease_ms=LEASE_MS)
    lease = await lock.acquire()
    command = [sys.executable, __file__, library, sys.argv[2], "queue"]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: ASYNC220 - nothing else runs yet
        for _ in range(DEAD)
    ]
    for child in children:
        await asyncio.to_thread(child.stdout.readline)  # type: ignore[union-attr]
    await asyncio.sleep(1.0)
    waiter = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0.3)
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()  # type: ignore[union-attr]
    began = time.perf_counter()
    await lock.release(lease)
    done, _ = await asyncio.wait([waiter], timeout=CAP)
    took = time.perf_counter() - began
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    return {"seconds": took, "entered": len(done)}


async def queue(library: str, client: Any) -> dict[str, float]:
    """Wait until killed."""
    task = asyncio.create_task(make(library, client, "dead", lease_ms=LEASE_MS).acquire())
    print("queueing", flush=True)
    await task
    return {}


async def main(library: str, url: str, question: str) -> None:
    """Answer one question."""
    questions = {"cycle": cycle, "handoff": handoff, "idle": idle, "dead": dead, "queue": queue}
    client = redis.asyncio.Redis.from_url(url)
    print(json.dumps(await questions[question](library, client)), flush=True)
    await client.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
