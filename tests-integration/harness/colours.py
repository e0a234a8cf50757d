"""Drive locks of both colours alike, so that one test serves the sync class and its async twin.

    with Locks("async", server.url) as locks:
        handle = locks.acquire("job", ttl=timedelta(seconds=1))
        waiting = locks.start("acquire", "job", ttl=..., wait=...)     # a thread, or a task
        locks.release(handle)
        waiting.result(timeout=5)

Everything blocks. The async colour runs in an event loop of its own thread; what is started in it
is a task, which has an owner id of its own as a thread has.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import threading
from typing import TYPE_CHECKING, Any

from fencekit import AsyncDistributedLock, AsyncFenceGate, DistributedLock, FenceGate
from harness import clients

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from typing_extensions import Self

    from harness.clients import Colour

__all__ = ["COLOURS", "Locks", "NotYet"]

COLOURS: tuple[Colour, Colour] = ("sync", "async")

# What a future raises that has no result yet; a TimeoutError from Python 3.11 on.
NotYet = concurrent.futures.TimeoutError
# Nothing that a test waits for takes longer.
_PATIENCE = 30.0


class Locks:
    """A lock and a gate of one colour, on a client of their own, with blocking methods.

    Attributes:
        colour: Whether the classes underneath are sync or async.
        client: The client.
        lock: The lock.
        gate: The gate.
    """

    def __init__(
        self,
        colour: Colour,
        url: str,
        *,
        client: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Make them on a server; `client` is for `harness.clients.make`, `options` for the lock."""
        self.colour = colour
        self._loop: asyncio.AbstractEventLoop | None = None
        self.client = clients.make(url, colour=colour, **(client or {}))
        self.lock: Any
        self.gate: Any
        if colour == "sync":
            self.lock, self.gate = DistributedLock(self.client, **options), FenceGate(self.client)
        else:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
            self.lock = AsyncDistributedLock(self.client, **options)
            self.gate = AsyncFenceGate(self.client)

    @property
    def driver(self) -> Any:
        """The driver underneath."""
        return self.lock._driver

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return what a method of the lock returns."""
        return self.start(method, *args, **kwargs).result(_PATIENCE)

    def start(self, method: str, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Call a method of the lock in a thread or task of its own."""
        return self.run(getattr(self.lock, method), *args, **kwargs)

    def run(
        self, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> concurrent.futures.Future[Any]:
        """Call a function in a thread of its own, or a coroutine function in a task."""
        if self._loop is not None:
            return asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._loop)
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def work() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it is the future's
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future

    def acquire(self, resource: str, **kwargs: Any) -> Any:
        """Take the lock."""
        return self.call("acquire", resource, **kwargs)

    def try_acquire(self, resource: str, **kwargs: Any) -> Any:
        """Take the lock, or return None."""
        return self.call("try_acquire", resource, **kwargs)

    def release(self, handle: Any) -> None:
        """Give the lock back."""
        self.call("release", handle)

    def extend(self, handle: Any, **kwargs: Any) -> None:
        """Extend the lease."""
        self.call("extend", handle, **kwargs)

    def is_held_by(self, handle: Any) -> bool:
        """Tell whether the server has the lock in this handle's hands."""
        info = self.call("inspect", handle.resource)
        return info is not None and info.token == handle.token

    def set_if_fresh(self, *args: Any, **kwargs: Any) -> None:
        """Write through the gate."""
        self.run(self.gate.set_if_fresh, *args, **kwargs).result(_PATIENCE)

    @contextlib.contextmanager
    def holding(self, resource: str, **kwargs: Any) -> Iterator[Any]:
        """Hold the lock for the length of a `with`."""
        if self._loop is None:
            with self.lock.hold(resource, **kwargs) as handle:
                yield handle
            return
        manager = self.lock.hold(resource, **kwargs)
        handle = self._await(manager.__aenter__())
        try:
            yield handle
        except BaseException as error:
            if not self._await(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self._await(manager.__aexit__(None, None, None))

    def close(self) -> None:
        """Close the driver and the client, and end the loop."""
        if self._loop is None:
            self.driver.close()
            clients.close(self.client)
            return
        if self._loop.is_closed():
            return
        self._await(self._cancel_all())
        self._await(self.driver.aclose())
        self._await(clients.aclose(self.client))
        self._await(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()
        # What a test forgot is complained about in that test.
        gc.collect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _await(self, work: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await work

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(_PATIENCE)
