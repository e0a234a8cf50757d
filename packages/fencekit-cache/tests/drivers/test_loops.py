"""One async cache on loops that come and go: nothing stays open, nobody complains of closed loops.

Each program is a process of its own: what a loop leaves behind is told when a process ends.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
from pydantic import BaseModel

from fencekit.cache import GenericCache
from harness.children import Child, tell
from harness.servers import Server


class Report(BaseModel):
    rows: int


REPORT = Report(rows=7)
LOOPS = 3


def declare(url: str) -> Any:
    class Reports(GenericCache[Report]):
        redis_client = redis.asyncio.Redis.from_url(url)

    return Reports()


async def use(cache: Any) -> None:
    """Use a cache."""
    for key in range(3):
        assert await cache.get_or_load(key, lambda: REPORT) == REPORT
    assert await cache.get_many(range(3)) == dict.fromkeys(range(3), REPORT)
    await cache.invalidate(*range(3))
    assert await cache.get(0) is None


async def use_and_leave(cache: Any) -> None:
    """Use a cache, and leave with a load and its waiter under way."""
    await use(cache)
    begun = asyncio.Event()

    async def slow() -> Report:
        begun.set()
        await asyncio.sleep(60)
        return REPORT

    cache.left = [asyncio.ensure_future(cache.get_or_load("slow", slow)) for _ in range(2)]
    await begun.wait()


def open_connections(url: str) -> int:
    """How many there are, but for the one that asks."""
    gc.collect()
    with redis.Redis.from_url(url) as client:
        return len(client.client_list()) - 1


def run_and_run_again(url: str) -> None:
    cache = declare(url)
    for _ in range(LOOPS):
        asyncio.run(use_and_leave(cache))
        tell("open", open_connections(url))


def close_without_farewell(url: str) -> None:
    cache = declare(url)
    for _ in range(LOOPS):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use(cache))
        loop.close()
        del loop
    asyncio.run(use(cache))
    tell("open", open_connections(url))


def fork_between_loops(url: str) -> None:
    cache = declare(url)
    asyncio.run(use_and_leave(cache))
    for _ in range(LOOPS):
        child = os.fork()
        if child == 0:
            asyncio.run(use_and_leave(cache))
            os._exit(open_connections(url))
        _, status = os.waitpid(child, 0)
        tell("open", os.waitstatus_to_exitcode(status))
    asyncio.run(use_and_leave(cache))
    tell("open", open_connections(url))


@pytest.mark.parametrize(
    ("program", "times"),
    [(run_and_run_again, LOOPS), (close_without_farewell, 1), (fork_between_loops, LOOPS + 1)],
)
def test_a_loop_that_ends_leaves_nothing(
    server: Server, program: Callable[[str], None], times: int
) -> None:
    with Child(program, server.url) as child:
        for _ in range(times):
            assert child.expect("open", timeout=30) == ["open", 0]
        status = child.wait(10)
        assert (status, child.errors) == (0, "")
    assert not server.call("EXISTS", "{:report:slow}:fill")
