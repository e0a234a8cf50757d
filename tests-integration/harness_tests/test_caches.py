"""What a kit has started ends with it, however the scenario ended.

Red before: what a failed scenario left running connected through a client that was closed already,
and those sockets were collected, with a warning, in whatever test came next.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from harness.caches import opened_kit
from harness.clients import aopened

if TYPE_CHECKING:
    from harness.servers import Server


async def test_a_failed_scenario_leaves_no_connection(server: Server) -> None:
    async with aopened(server.url) as client, opened_kit("async", server.url) as kit:
        running = [kit.start(partial(client.get, "key")) for _ in range(20)]
    await asyncio.sleep(0.1)
    assert all(body.task.done() for body in running)
    assert len(server.call("CLIENT", "LIST").splitlines()) == 1
