"""The end of an interpreter, or of a loop, with locks held and waited for: at once, and silent.

Every program below runs with the warnings of `-X dev` as errors, and must end by itself with
status 0 and an empty stderr.

How it bites: the same question is asked of a program that leaves a connection open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
import redis.asyncio

from fencekit import AsyncDistributedLock, DistributedLock, HandleForked
from harness.children import Child, ChildEnded
from harness.servers import Server
from harness.waiting import eventually

TTL = timedelta(seconds=1)
LONG = timedelta(seconds=30)
SLOW = re.compile(r"Executing <.* took \d")
STRICT = {"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "error"}


def sync_lock(url: str) -> DistributedLock:
    return DistributedLock(redis.Redis.from_url(url))


def async_lock(url: str) -> AsyncDistributedLock:
    return AsyncDistributedLock(redis.asyncio.Redis.from_url(url))


def sync_held(url: str) -> None:
    sync_lock(url).acquire("job", ttl=TTL, renew=True)


def sync_held_in_a_global(url: str) -> None:
    globals()["kept"] = sync_lock(url).acquire("job", ttl=TTL, renew=True, on_lost=print)


def sync_waited_for(url: str) -> None:
    lock = sync_lock(url)
    lock.acquire("job", ttl=TTL, renew=True)
    waiter = threading.Thread(
        target=lambda: lock.try_acquire("job", ttl=TTL, wait=LONG), daemon=True
    )
    waiter.start()
    time.sleep(0.2)


def sync_closed(url: str) -> None:
    lock = sync_lock(url)
    lock.acquire("job", ttl=TTL, renew=True)
    lock._driver.close()


def sync_in_the_middle_of_a_with(url: str) -> None:
    with sync_lock(url).hold("job", ttl=LONG):
        raise SystemExit(0)


async def async_held(url: str) -> None:
    await async_lock(url).acquire("job", ttl=TTL, renew=True)


async def async_held_in_a_global(url: str) -> None:
    globals()["kept"] = await async_lock(url).acquire("job", ttl=TTL, renew=True, on_lost=print)


async def async_waited_for(url: str) -> None:
    lock = async_lock(url)
    await lock.acquire("job", ttl=TTL, renew=True)
    globals()["waiting"] = asyncio.create_task(lock.acquire("job", ttl=TTL, wait=LONG))
    await asyncio.sleep(0.1)


async def async_in_the_middle_of_an_acquire(url: str) -> None:
    globals()["asking"] = asyncio.create_task(async_lock(url).acquire("job", ttl=LONG))
    await asyncio.sleep(0)


async def async_in_the_middle_of_a_with(url: str) -> None:
    async def work() -> None:
        async with async_lock(url).hold("job", ttl=LONG):
            await asyncio.sleep(60)

    globals()["working"] = asyncio.create_task(work())
    await asyncio.sleep(0.1)


async def async_closed(url: str) -> None:
    lock = async_lock(url)
    await lock.acquire("job", ttl=TTL, renew=True)
    await lock._driver.aclose()


def async_twice(url: str) -> None:
    lock = async_lock(url)

    async def hold() -> None:
        async with lock.hold("job", ttl=TTL, wait=TTL):
            await asyncio.sleep(0.01)

    asyncio.run(hold())
    asyncio.run(hold())


def async_in_a_thread(url: str) -> None:
    lock = async_lock(url)

    async def hold() -> None:
        async with lock.hold("job", ttl=TTL, wait=LONG):
            await asyncio.sleep(0.01)

    threads = [threading.Thread(target=lambda: asyncio.run(hold())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def forked(url: str) -> None:
    """A child that ends as an interpreter does, with what its parent had open."""
    lock, other = sync_lock(url), async_lock(url)
    handle = lock.acquire("job", ttl=LONG, renew=True)
    loop = asyncio.new_event_loop()
    theirs = loop.run_until_complete(other.acquire("other", ttl=LONG, renew=True))
    waiting = loop.create_task(other.try_acquire("job", ttl=TTL, wait=LONG))
    loop.run_until_complete(asyncio.sleep(0.05))
    child = os.fork()
    if child == 0:
        assert lock.try_acquire("job", ttl=TTL) is None
        with contextlib.suppress(HandleForked):
            asyncio.run(other.release(theirs))
        sys.exit(17)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    handle.release()
    waited = loop.run_until_complete(waiting)
    assert waited is not None
    loop.run_until_complete(waited.release())
    loop.run_until_complete(theirs.release())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


PROGRAMS: list[Callable[[str], Any]] = [
    sync_held,
    sync_held_in_a_global,
    sync_waited_for,
    sync_closed,
    sync_in_the_middle_of_a_with,
    async_held,
    async_held_in_a_global,
    async_waited_for,
    async_in_the_middle_of_an_acquire,
    async_in_the_middle_of_a_with,
    async_closed,
    async_twice,
    async_in_a_thread,
]

RELEASES = {"with", "acquire", "twice", "thread"}


def run(program: Callable[[str], Any], url: str, env: dict[str, str]) -> tuple[int, str, float]:
    """Return its status, what it said on stderr, and how long it took from its last word."""
    began = time.monotonic()
    with Child(program, url, env=env) as child:
        with contextlib.suppress(ChildEnded):
            child.next(timeout=60)
        status, took = child.wait(1), time.monotonic() - began
        # On a busy machine asyncio's debug mode complains of callbacks that took long.
        said = [line for line in child.errors.splitlines() if not SLOW.match(line)]
        return status, "\n".join(said), took


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interpreter_ends(server: Server, program: Callable[[str], Any]) -> None:
    status, said, took = run(program, server.url, STRICT)
    assert (status, said) == (0, "")
    assert took < 30
    if program.__name__.rpartition("_")[2] in RELEASES:
        assert server.call("EXISTS", "fencekit:{job}:lock") == 0
    else:  # its keeper is gone, so the lease ends
        eventually(lambda: server.call("EXISTS", "fencekit:{job}:lock") == 0, timeout=3)


def test_a_forked_interpreter_ends(server: Server) -> None:
    status, said, _ = run(forked, server.url, {})
    assert (status, said) == (0, "")


def leave_open(url: str) -> None:
    globals()["kept"] = asyncio.run(open_connection(url))


async def open_connection(url: str) -> Any:
    client = redis.asyncio.Redis.from_url(url)
    await client.ping()
    return client


def test_an_interpreter_ends_bites(server: Server) -> None:
    _, said, _ = run(leave_open, server.url, STRICT)
    assert "ResourceWarning" in said


# Loops that are closed without a farewell


def closed_without_farewell(url: str) -> None:
    lock = async_lock(url)
    for _ in range(3):
        loop = asyncio.new_event_loop()
        handle = loop.run_until_complete(lock.acquire("job", ttl=LONG, renew=True))
        waiting = loop.create_task(lock.try_acquire("job", ttl=TTL, wait=timedelta(seconds=0.1)))
        assert loop.run_until_complete(waiting) is None
        loop.run_until_complete(handle.release())
        loop.close()


def test_a_loop_closed_without_shutdown_asyncgens(server: Server) -> None:
    status, said, _ = run(closed_without_farewell, server.url, {})
    assert (status, said) == (0, "")
    eventually(lambda: len(server.call("CLIENT", "LIST").splitlines()) == 1)
