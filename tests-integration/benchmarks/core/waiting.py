"""A thousand idle waiters in one process, threads and tasks: what they cost the server.

The lock is held by us all the while; nothing is released, so nothing should be said.
"""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from benchmarks.figures import Figure, Scenario, at_most
from benchmarks.stand import Stand
from fencekit import AsyncDistributedLock, DistributedLock
from harness import clients
from harness.children import Child, hear, tell

__all__ = ["WAITING"]

WAITERS: Final = 1000
NAME: Final = "held-by-another"
CHILD: Final = "waiters"
# Longer than the hub's PING, so that it is counted.
_SECONDS: Final = 6.0
_SETTLE: Final = 2.5
_WAIT: Final = timedelta(minutes=5)
_LEASE: Final = timedelta(seconds=30)
_STACK: Final = 256 * 1024


def wait_in_threads(url: str, waiters: int) -> None:
    """In a child: threads that wait until the child is killed."""
    threading.stack_size(_STACK)
    with clients.opened(url, client_name=CHILD) as client:
        lock = DistributedLock(client)
        lock.try_acquire(NAME, ttl=_LEASE)
        tell("ready", _resident())
        for _ in range(waiters):
            threading.Thread(
                target=lock.try_acquire,
                args=(NAME,),
                kwargs={"ttl": _LEASE, "wait": _WAIT},
                daemon=True,
            ).start()
        tell("waiting")
        hear()
        tell("used", _resident(), time.process_time())
        hear()
        tell("used", _resident(), time.process_time())
        os._exit(0)


async def wait_in_tasks(url: str, waiters: int) -> None:
    """In a child: tasks that wait until the child is killed."""
    async with clients.aopened(url, client_name=CHILD) as client:
        lock = AsyncDistributedLock(client)
        await lock.try_acquire(NAME, ttl=_LEASE)
        tell("ready", _resident())
        tasks = [
            asyncio.create_task(lock.try_acquire(NAME, ttl=_LEASE, wait=_WAIT))
            for _ in range(waiters)
        ]
        tell("waiting", len(tasks))
        await asyncio.to_thread(hear)
        tell("used", _resident(), time.process_time())
        await asyncio.to_thread(hear)
        tell("used", _resident(), time.process_time())
        os._exit(0)


def _resident() -> int:
    try:
        with open("/proc/self/statm") as statm:  # noqa: PTH123 - not a file
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _figures(stand: Stand, child: Child) -> Iterator[Figure]:
    _, before = child.expect("ready", timeout=30)
    child.expect("waiting", timeout=30)
    time.sleep(_SETTLE)
    child.tell("look")
    _, after, cpu_began = child.expect("used", timeout=30)
    commands, began = _commands(stand), time.monotonic()
    time.sleep(_SECONDS)
    spent, connections = time.monotonic() - began, stand.connections(CHILD)
    # The two questions that we ask to learn it.
    asked = _commands(stand) - commands - 2
    child.tell("look")
    _, _, cpu = child.expect("used", timeout=30)
    yield Figure("commands per second on the server", asked / spent, "", at_most(50))
    yield Figure("connections", connections, "", at_most(3))
    yield Figure("client CPU", 100 * (cpu - cpu_began) / spent, "%")
    yield Figure("client memory per waiter", (after - before) / WAITERS / 1024, "kB")


def _commands(stand: Stand) -> int:
    return int(stand.server.info("stats")["total_commands_processed"])


def _measure(stand: Stand, function: Callable[..., object]) -> Iterator[Figure]:
    with stand.client() as client:
        lock = DistributedLock(client)
        handle = lock.acquire(NAME, ttl=timedelta(minutes=2))
        with Child(function, stand.server.url, WAITERS) as child:
            yield from _figures(stand, child)
        handle.release()


def _threads(stand: Stand) -> Iterator[Figure]:
    yield from _measure(stand, wait_in_threads)


def _tasks(stand: Stand) -> Iterator[Figure]:
    yield from _measure(stand, wait_in_tasks)


WAITING = (
    Scenario("idle-threads", f"{WAITERS:,} threads wait for one lock", _threads),
    Scenario("idle-tasks", f"{WAITERS:,} tasks wait for one lock", _tasks),
)
