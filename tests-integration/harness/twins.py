"""One suite for both colours of FIFO lock: the sync one is awaited too, each call in a thread."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fencekit.fifo import FifoLock, SyncFifoLock
from harness import clients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fencekit.fifo import FifoStats

__all__ = ["Twin", "TwinLock"]


class TwinLock:
    """A lock of either colour with the methods of the async one.

    Attributes:
        lock: The lock itself.
    """

    def __init__(self, lock: FifoLock | SyncFifoLock, threads: ThreadPoolExecutor | None) -> None:
        self.lock: Any = lock
        self._threads = threads

    async def acquire(self, timeout: float | None = None) -> Any:
        """Take the lock."""
        return await self._call(self.lock.acquire, timeout)

    async def release(self, lease: Any) -> None:
        """Give it back."""
        await self._call(self.lock.release, lease)

    async def stats(self) -> FifoStats:
        """Read who holds and waits."""
        stats: FifoStats = await self._call(self.lock.stats)
        return stats

    @asynccontextmanager
    async def hold(self, timeout: float | None = None) -> AsyncIterator[Any]:
        """Hold the lock for the length of a block; the manager itself is the colour's own."""
        manager = self.lock.hold(timeout)
        if self._threads is None:
            async with manager as lease:
                yield lease
            return
        lease = await self._call(manager.__enter__)
        try:
            yield lease
        except BaseException as error:
            await self._call(manager.__exit__, type(error), error, error.__traceback__)
            raise
        await self._call(manager.__exit__, None, None, None)

    async def _call(self, function: Any, *args: Any) -> Any:
        if self._threads is None:
            return await function(*args)
        loop = asyncio.get_running_loop()
        # Shielded, because a thread cannot be cancelled.
        return await asyncio.shield(loop.run_in_executor(self._threads, function, *args))


class Twin:
    """Makes locks of one colour on a server, each on a client of its own if asked."""

    def __init__(self, colour: str, url: str) -> None:
        self.colour = colour
        self._url = url
        self._threads = ThreadPoolExecutor(400) if colour == "sync" else None
        self._clients: list[Any] = []
        self._shared: Any = None

    def client(self, url: str | None = None, **options: Any) -> Any:
        """Make a client, closed at the end."""
        colour: Any = self.colour
        client = clients.make(url or self._url, colour=colour, **options)
        self._clients.append(client)
        return client

    def lock(self, name: str = "invoices", *, client: Any = None, **options: Any) -> TwinLock:
        """Make a lock, by default on one client for all."""
        if client is None:
            self._shared = client = self._shared or self.client()
        kind: Any = SyncFifoLock if self._threads is not None else FifoLock
        return TwinLock(kind(client, name, **options), self._threads)

    async def close(self) -> None:
        """Close every client, and what the library opened beside it."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for client in self._clients:
            if self._threads is None:
                from fencekit.drivers.aio import AsyncDriver  # noqa: PLC0415

                await AsyncDriver.of(client).aclose()
                await clients.aclose(client)
            else:
                from fencekit.drivers.sync import SyncDriver  # noqa: PLC0415

                SyncDriver.of(client).close()
                clients.close(client)
