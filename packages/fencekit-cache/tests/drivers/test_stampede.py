"""200 callers in each of four processes miss at once: one load."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import redis.asyncio
from pydantic import BaseModel

from fencekit.cache import GenericCache
from harness.children import Child, hear, tell
from harness.servers import Server


class Report(BaseModel):
    rows: int


async def stampede(url: str) -> None:
    client = redis.asyncio.Redis.from_url(url)

    class Reports(GenericCache[Report]):
        redis_client = client

    cache = Reports()

    async def load() -> Report:
        await client.incr("loads")
        await asyncio.sleep(0.05)
        return Report(rows=7)

    await cache.get(0)
    tell("ready")
    hear()
    found: list[Any] = await asyncio.gather(*(cache.get_or_load(1, load) for _ in range(200)))
    tell("done", sum(report == Report(rows=7) for report in found))
    await client.aclose()


def test_four_processes_of_two_hundred_callers_load_once(server: Server) -> None:
    with ExitStack() as stack:
        children = [stack.enter_context(Child(stampede, server.url)) for _ in range(4)]
        for child in children:
            child.expect("ready")
        for child in children:
            child.tell("go")
        for child in children:
            assert child.expect("done") == ["done", 200]
    assert server.call("GET", "loads") == b"1"
