"""One load at a time in this process: who asks for an entry that is being loaded shares the load.

Whether the outcome is fresh enough for whoever joined is for them to judge (`Outcome.as_of`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from fencekit.cache.fill import Outcome
from fencekit.protocol.operation import Flow

if TYPE_CHECKING:
    from fencekit.drivers.aio import AsyncDriver
    from fencekit.drivers.sync import SyncDriver

__all__ = ["AsyncFlights", "SyncFlights"]

_above: ContextVar[tuple[object, ...]] = ContextVar("fencekit_cache_flights", default=())


def _refuse_circle(flight: object, entry: str) -> None:
    if any(flight is one for one in _above.get()):
        msg = f"the loader of {entry!r} asks the cache for {entry!r}: it would wait for itself"
        raise RuntimeError(msg)


class _AsyncFlight:
    """A load under way on this loop."""

    __slots__ = ("task", "waiters")

    def __init__(self) -> None:
        self.task: asyncio.Task[Outcome] | None = None
        self.waiters = 0


class AsyncFlights:
    """The loads under way on one event loop."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._flights: dict[str, _AsyncFlight] = {}

    def busy(self, entry: str) -> bool:
        """Whether an entry is being loaded here."""
        return entry in self._flights

    async def share(
        self, entry: str, make: Callable[[], Flow[Outcome]]
    ) -> tuple[Outcome, bool] | None:
        """Join the load of an entry, or begin it; the outcome, and whether it was begun here.

        Cancelled, the others go on; when nobody waits any more, the load is cancelled too. None
        where the load was cancelled by its own doing: ask again.

        Raises:
            RuntimeError: the loader asks for the entry that it loads.
            whatever the load raises.
        """
        flight = self._flights.get(entry)
        begun = flight is None
        if flight is None:
            flight = self._flights[entry] = _AsyncFlight()
            flight.task = asyncio.get_running_loop().create_task(self._fly(entry, flight, make))
            flight.task.add_done_callback(_retrieve)
        else:
            _refuse_circle(flight, entry)
        task = flight.task
        if task is None:  # pragma: no cover - set when the flight is made
            return None
        flight.waiters += 1
        try:
            await asyncio.wait([task])
        finally:
            flight.waiters -= 1
            if not flight.waiters and not task.done():
                self._land(entry, flight)
                task.cancel()
        return None if task.cancelled() else (task.result(), begun)

    async def _fly(
        self, entry: str, flight: _AsyncFlight, make: Callable[[], Flow[Outcome]]
    ) -> Outcome:
        _above.set((*_above.get(), flight))
        try:
            return await self._driver.run(make())
        finally:
            self._land(entry, flight)

    def _land(self, entry: str, flight: _AsyncFlight) -> None:
        if self._flights.get(entry) is flight:
            del self._flights[entry]


def _retrieve(task: asyncio.Task[Outcome]) -> None:
    """Look at the error of a load whose waiters have gone, or asyncio complains."""
    if not task.cancelled():
        task.exception()


class _SyncFlight:
    """A load under way in one thread."""

    __slots__ = ("error", "landed", "outcome")

    def __init__(self) -> None:
        self.landed = threading.Event()
        self.outcome: Outcome | None = None
        self.error: Exception | None = None


class SyncFlights:
    """The loads under way in this process."""

    def __init__(self, driver: SyncDriver) -> None:
        self._driver = driver
        self._flights: dict[tuple[int, str], _SyncFlight] = {}

    def busy(self, entry: str) -> bool:
        """Whether an entry is being loaded here."""
        return (os.getpid(), entry) in self._flights

    def share(self, entry: str, make: Callable[[], Flow[Outcome]]) -> tuple[Outcome, bool] | None:
        """Join the load of an entry, or run it; see `AsyncFlights.share`."""
        # A forked child has the parent's loads on its list, but not the threads that run them.
        name = (os.getpid(), entry)
        mine = _SyncFlight()
        flight = self._flights.setdefault(name, mine)
        if flight is mine:
            return self._fly(name, flight, make), True
        _refuse_circle(flight, entry)
        flight.landed.wait()
        if flight.error is not None:
            raise flight.error
        return None if flight.outcome is None else (flight.outcome, False)

    def _fly(
        self, name: tuple[int, str], flight: _SyncFlight, make: Callable[[], Flow[Outcome]]
    ) -> Outcome:
        token = _above.set((*_above.get(), flight))
        try:
            flight.outcome = self._driver.run(make())
        except Exception as error:
            flight.error = error
            raise
        else:
            return flight.outcome
        finally:
            _above.reset(token)
            del self._flights[name]
            flight.landed.set()
