"""Drive idempotency guards of both colours alike, so that one test serves the class and its twin.

    with Guards("async", server.url) as guards:
        with guards.begin("job", ttl=timedelta(hours=1)) as claim:
            claim.complete(7)
        waiting = guards.start("run", "job", work, ttl=..., wait=...)   # a thread, or a task
        waiting.result(timeout=5)

Everything blocks. What is called runs in one thread, or in one task of an event loop of its own, so
that the step-by-step calls of a test belong together; what is started runs in another.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import inspect
import threading
from typing import TYPE_CHECKING, Any

from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.sync import SyncDriver
from fencekit.idempotency import AsyncIdempotencyGuard, IdempotencyGuard
from harness import clients

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from harness.clients import Colour

__all__ = ["Guards", "Work"]

# Nothing that a test waits for takes longer.
_PATIENCE = 60.0

_Future = concurrent.futures.Future[Any]


class Guards:
    """A guard of one colour, on a client of its own, with blocking methods.

    Attributes:
        colour: Whether the class underneath is sync or async.
        client: The client.
        guard: The guard.
    """

    def __init__(
        self,
        colour: Colour,
        url: str,
        *,
        client: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Make it on a server; `client` is for `harness.clients.make`, `options` for the guard."""
        self.colour = colour
        self._loop: asyncio.AbstractEventLoop | None = None
        self.client = clients.make(url, colour=colour, **(client or {}))
        self.guard: Any
        if colour == "sync":
            self.guard = IdempotencyGuard(self.client, **options)
        else:
            self._loop = asyncio.new_event_loop()
            self._calls: asyncio.Queue[tuple[Callable[[], Any], _Future] | None] = asyncio.Queue()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
            self._worker = asyncio.run_coroutine_threadsafe(self._work(), self._loop)
            self.guard = AsyncIdempotencyGuard(self.client, **options)

    @property
    def driver(self) -> Any:
        """The driver underneath."""
        of: Any = SyncDriver.of if self.colour == "sync" else AsyncDriver.of
        return of(self.client)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return what a method of the guard returns; claims are made blocking."""
        return self.perform(getattr(self.guard, method), *args, **kwargs)

    def start(self, method: str, *args: Any, **kwargs: Any) -> _Future:
        """Call a method of the guard in a thread or task of its own."""
        return self.run_apart(getattr(self.guard, method), *args, **kwargs)

    def begin(self, key: str, **kwargs: Any) -> Any:
        """Begin, and return the claim, a context manager."""
        return self.call("begin", key, **kwargs)

    def perform(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function, or await it, where everything else of this object runs."""
        args = tuple(_inner(arg) for arg in args)
        if self._loop is None:
            return function(*args, **kwargs)
        future: _Future = concurrent.futures.Future()
        entry = (lambda: function(*args, **kwargs), future)
        self._loop.call_soon_threadsafe(self._calls.put_nowait, entry)
        return self._blocking(future.result(_PATIENCE))

    def run_apart(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> _Future:
        """Call a function in a thread of its own, or a coroutine function in a task."""
        if self._loop is not None:

            async def work_apart() -> Any:
                result = function(*args, **kwargs)
                return await result if inspect.isawaitable(result) else result

            return asyncio.run_coroutine_threadsafe(work_apart(), self._loop)
        future: _Future = concurrent.futures.Future()

        def work() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it is the future's
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future

    def close(self) -> None:
        """Close the driver and the client, and end the loop."""
        if self._loop is None:
            self.driver.close()
            clients.close(self.client)
            return
        if self._loop.is_closed():
            return
        self.perform(self.driver.aclose)
        self.perform(clients.aclose, self.client)
        self._loop.call_soon_threadsafe(self._calls.put_nowait, None)
        self._worker.result(_PATIENCE)
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_asyncgens(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()
        # What a test forgot is complained about in that test.
        gc.collect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _work(self) -> None:
        while (call := await self._calls.get()) is not None:
            function, future = call
            try:
                result = function()
                future.set_result(await result if inspect.isawaitable(result) else result)
            except BaseException as error:  # noqa: BLE001 - it is the future's
                future.set_exception(error)

    def _blocking(self, result: Any) -> Any:
        if isinstance(result, list):
            return [self._blocking(one) for one in result]
        return BlockingClaim(self, result) if hasattr(result, "__aexit__") else result


class Work:
    """Work that counts how often it is done.

    Attributes:
        done: How often.
    """

    def __init__(self, result: Any = None, error: Exception | None = None) -> None:
        """Return the result each time, or raise the error."""
        self.done = 0
        self.result = result
        self.error = error

    def __call__(self) -> Any:
        """Do it."""
        self.done += 1
        if self.error is not None:
            raise self.error
        return self.result


class BlockingClaim:
    """An async claim whose methods block."""

    def __init__(self, guards: Guards, claim: Any) -> None:
        self.guards = guards
        self.claim = claim

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.claim, name)
        if not inspect.iscoroutinefunction(value):
            return value
        return lambda *args, **kwargs: self.guards.perform(value, *args, **kwargs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.guards.perform(self.claim.__aexit__, kind, error, traceback)


def _inner(arg: Any) -> Any:
    if isinstance(arg, BlockingClaim):
        return arg.claim
    if isinstance(arg, list):
        return [_inner(one) for one in arg]
    return tuple(_inner(one) for one in arg) if type(arg) is tuple else arg
