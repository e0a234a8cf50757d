"""Each socket of the async driver has one owner, who closes it.

Red before: a hub that was to reconnect after a pause did so also where a waiter had connected it
meanwhile. The first connection was then nobody's: it was closed when the collector came round, and
its end was taken for the second's, which went the same way, and so on. A connection that the server
had closed before it was taken over was believed good: the library's stream had been told, the new
owner was not, and waited until its time was up. A connection that was given up while it owed an
answer, because its server is the primary no more, was left open when the driver was closed. And who
was cancelled just as a Sentinel had answered left that connection open: the library's pool closes
what it has in tasks, and they had not begun. Where TLS is spoken, a connection that nobody wanted
any more said farewell first, and the loop had ended before it was answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencekit import AsyncDistributedLock, OutcomeUnknown
from fencekit.drivers import aio_wake
from fencekit.drivers.client import Client, describe
from fencekit.drivers.lane import take_over
from fencekit.keys import names
from harness.clients import Family, aopened
from harness.fixtures import ServerPool
from harness.proxy import Proxy
from harness.servers import Server
from harness.topologies import Sentinels
from harness.waiting import eventually_async

LONG = timedelta(seconds=30)


@pytest.fixture
def closed_early(monkeypatch: pytest.MonkeyPatch) -> Callable[[Proxy], None]:
    """Have the proxy close the next connection when it stands, before anybody takes it over."""
    connection = Client.connection

    def close_the_next(proxy: Proxy) -> None:
        def made(self: Client, *terms: Any) -> Any:
            monkeypatch.setattr(Client, "connection", connection)
            one = connection(self, *terms)
            connect = one.connect

            async def stands() -> None:
                await connect()
                proxy.cut()
                await eventually_async(one._reader.at_eof)

            one.connect = stands
            return one

        monkeypatch.setattr(Client, "connection", made)

    return close_the_next


def listeners(server: Server) -> int:
    channels = [names("fencekit", name).wake for name in ("job", "other")]
    return sum(server.call("PUBSUB", "NUMSUB", *channels)[1::2])


async def test_a_hub_that_a_waiter_has_reconnected_does_not_reconnect_once_more(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio_wake, "RECONNECT_FIRST", 0.2)
    async with aopened(proxy.url) as client:
        lock = AsyncDistributedLock(client)
        handles = [await lock.acquire(name, ttl=LONG) for name in ("job", "other")]
        waiting = [asyncio.create_task(lock.acquire("job", ttl=LONG, wait=LONG))]
        await eventually_async(lambda: listeners(server) == 1)
        hub: Any = lock._driver.state().hub
        proxy.cut()
        await eventually_async(lambda: hub._transport is None)
        made = len(proxy.connections)
        waiting.append(asyncio.create_task(lock.acquire("other", ttl=LONG, wait=LONG)))
        await eventually_async(lambda: listeners(server) == 2)
        writer = hub._writer
        await asyncio.sleep(0.4)  # the pause, and more
        assert hub._writer is writer
        assert [one.subscriber for one in proxy.connections[made:]].count(True) == 1
        for handle, waiter in zip(handles, waiting, strict=True):
            await handle.release()
            await (await asyncio.wait_for(waiter, 1)).release()
        await lock._driver.aclose()


async def test_a_connection_that_was_closed_before_it_was_taken_over_is_made_again(
    proxy: Proxy, closed_early: Callable[[Proxy], None]
) -> None:
    async with aopened(proxy.url) as client:
        lock = AsyncDistributedLock(client)
        closed_early(proxy)
        began = time.monotonic()
        handle = await lock.acquire("job", ttl=LONG)
        assert time.monotonic() - began < 2  # the time of a command is 5 s
        await handle.release()
        await lock._driver.aclose()


async def test_a_hub_whose_connection_was_closed_before_it_was_taken_over_connects_again(
    server: Server, proxy: Proxy, closed_early: Callable[[Proxy], None]
) -> None:
    async with aopened(proxy.url) as client, aopened(server.url) as other:
        lock, holder = AsyncDistributedLock(client), AsyncDistributedLock(other)
        handle = await holder.acquire("job", ttl=LONG)
        assert await lock.try_acquire("job", ttl=LONG) is None  # the connection for commands
        closed_early(proxy)
        waiter = asyncio.create_task(lock.acquire("job", ttl=LONG, wait=LONG))
        await eventually_async(lambda: listeners(server) == 1, timeout=1.5)
        await handle.release()
        await (await asyncio.wait_for(waiter, 1)).release()
        for each in (lock, holder):
            await each._driver.aclose()


async def test_a_connection_that_is_given_up_is_closed_with_the_driver(proxy: Proxy) -> None:
    async with aopened(proxy.url) as client:
        lock = AsyncDistributedLock(client)
        handle = await lock.acquire("job", ttl=LONG)
        state = lock._driver.state()
        lane: Any = next(iter(state._lanes.values()))
        proxy.freeze()
        releasing = asyncio.create_task(handle.release())
        await eventually_async(lambda: lane.busy)
        state.reconnect(lane)
        await lock._driver.aclose()
        await asyncio.sleep(0.05)  # the end of a connection is told in a later turn
        assert lane._transport is None
        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(releasing, 1)
        proxy.thaw()


@pytest.mark.parametrize("family", ["redis", "valkey"])
async def test_a_question_to_sentinels_that_is_cancelled_leaves_no_connection(
    sentinel_server: Sentinels, family: Family
) -> None:
    watcher = sentinel_server.sentinels[0]
    url = sentinel_server.url
    async with aopened(url, topology="sentinel", family=family) as client:
        described = describe(client, "async")
        before = len(watcher.call("CLIENT", "LIST").splitlines())
        for turns in [*range(60)] * 3:  # when the answer comes is not always the same
            asking = asyncio.create_task(take_over(described.connection(), asyncio.Protocol()))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            writer: Any = (await asyncio.gather(asking, return_exceptions=True))[0]
            if not isinstance(writer, BaseException):
                writer.transport.abort()
        await eventually_async(lambda: len(watcher.call("CLIENT", "LIST").splitlines()) == before)


async def test_a_tls_connection_that_nobody_wants_is_closed_without_a_farewell(
    servers: ServerPool,
) -> None:
    server = servers.clean(tls=True)
    async with aopened(server.url) as client:
        connection = describe(client, "async").connection()
        connect, sockets = connection.connect, list[Any]()

        async def cancelled() -> None:
            await connect()
            sockets.append(connection._writer.get_extra_info("socket"))
            raise asyncio.CancelledError

        connection.connect = cancelled
        with pytest.raises(asyncio.CancelledError):
            await take_over(connection, asyncio.Protocol())
        for _ in range(2):
            await asyncio.sleep(0)
        assert sockets[0].fileno() == -1
