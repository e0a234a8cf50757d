"""Loops that end cancel every task, also those that connect for somebody who still waits.

Red before: a connecting task that was cancelled before its first line failed nobody's operation, so
a release in an `except CancelledError` hung for ever and the loop never ended. And a lane that was
closed in the moment in which its connection stood, with something to send, went on connecting: the
loop ended around the task, and the collector closed the sockets, in whatever came next.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from fencekit import AsyncDistributedLock
from fencekit.drivers import lane as lanes
from fencekit.errors import StoreUnavailable
from harness.clients import aopened
from harness.topologies import Cluster

LONG = timedelta(seconds=30)


@pytest.mark.parametrize("turns", range(12))
async def test_a_release_outlives_its_cancelled_connection(redis_url: str, turns: int) -> None:
    async with aopened(redis_url) as client:
        await _release_while_everything_is_cancelled(client, turns)


@pytest.mark.parametrize("turns", range(12))
async def test_a_release_outlives_its_cancelled_question(
    cluster_server: Cluster, turns: int
) -> None:
    async with aopened(cluster_server.url, topology="cluster") as client:
        await client.initialize()
        await _release_while_everything_is_cancelled(client, turns)


async def _release_while_everything_is_cancelled(client: Any, turns: int) -> None:
    lock = AsyncDistributedLock(client)
    handle = await lock.acquire("job", ttl=LONG)
    await lock._driver.aclose()  # so that the release connects anew
    mine = asyncio.current_task()
    releasing = asyncio.create_task(handle.release())
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks():
        if task not in {mine, releasing}:
            task.cancel()
    await asyncio.wait_for(releasing, 5)
    assert await lock.try_acquire("job", ttl=LONG) is not None
    await lock._driver.aclose()


async def test_a_lane_closed_as_its_connection_stands_makes_no_other(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    take_over = lanes.take_over

    async def closed_meanwhile(connection: Any, protocol: Any) -> Any:
        made.append(await take_over(connection, protocol))
        protocol._connecting = None  # as in the turn in which a cancellation comes too late
        await lock._driver.aclose()
        return made[-1]

    async with aopened(redis_url) as client:
        lock = AsyncDistributedLock(client)
        handle = await lock.acquire("job", ttl=LONG)
        await lock._driver.aclose()  # so that the release connects anew
        monkeypatch.setattr(lanes, "take_over", closed_meanwhile)
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(handle.release(), 5)
        await asyncio.sleep(0.05)
        assert len(made) == 1
        assert [task for task in asyncio.all_tasks() if "Lane" in repr(task)] == []
