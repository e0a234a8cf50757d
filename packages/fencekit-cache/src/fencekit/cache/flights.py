"""One load at a time in this process: who asks for an entry that is being loaded shares the load.

Whether the outcome is fresh enough for whoever joined is for them to judge (`Outcome.as_of`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from fencekit.cache.fill import Outcome
from fencekit.protocol.operation import Flow

if TYPE_CHECKING:
    from fencekit.drivers.aio import AsyncDriver
    from fencekit.drivers.sync import SyncDriver

__all__ = ["AsyncFlights", "SyncFlights"]

_above: ContextVar[tuple[_Flight, ...]] = ContextVar("fencekit_cache_flights", default=())


class _Flight:
    """A load under way.

    Attributes:
        waits_for: the loads that its own loader has asked for and not got yet.
    """

    __slots__ = ("waits_for",)

    def __init__(self) -> None:
        self.waits_for: list[_Flight] = []


@contextmanager
def _waiting_for(flight: _Flight, entry: str) -> Iterator[None]:
    """Keep on record that the loader that asks, if one does, waits for a load.

    On record first and looked at then: of threads that close a circle at once, one sees it.

    Raises:
        RuntimeError: that load waits for the loader that asks, be it through others.
    """
    above = _above.get()
    if not above:
        yield
        return
    asking = above[-1].waits_for
    asking.append(flight)
    try:
        if _waits_for_one_of(above, flight):
            msg = (
                f"a loader asks the cache for {entry!r}, which is being loaded by itself or by "
                "one that waits for it: it would wait for itself"
            )
            raise RuntimeError(msg)
        yield
    finally:
        asking.remove(flight)


def _waits_for_one_of(above: tuple[_Flight, ...], flight: _Flight) -> bool:
    seen, ahead = {id(flight)}, [flight]
    while ahead:
        one = ahead.pop()
        if any(one is mine for mine in above):
            return True
        fresh = [other for other in tuple(one.waits_for) if id(other) not in seen]
        seen.update(map(id, fresh))
        ahead += fresh
    return False


class _AsyncFlight(_Flight):
    """A load under way on this loop."""

    __slots__ = ("task", "waiters")

    def __init__(self) -> None:
        super().__init__()
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

        Cancelled, the others go on; when nobody waits any more, the load is cancelled too. Where it
        was cancelled by its own doing, that is told to who began it; for the others it is None:
        ask again.

        Raises:
            RuntimeError: the loader asks for an entry whose load waits for it.
            whatever the load raises.
        """
        flight = self._flights.get(entry)
        begun = flight is None
        if flight is None:
            flight = self._flights[entry] = _AsyncFlight()
            flight.task = asyncio.get_running_loop().create_task(self._fly(entry, flight, make))
            flight.task.add_done_callback(_retrieve)
        task = flight.task
        if task is None:  # pragma: no cover - set when the flight is made
            return None
        flight.waiters += 1
        try:
            with _waiting_for(flight, entry):
                await asyncio.wait([task])
        finally:
            flight.waiters -= 1
            if not flight.waiters and not task.done():
                self._land(entry, flight)
                task.cancel()
        if task.cancelled() and not begun:
            return None
        return task.result(), begun

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


class _SyncFlight(_Flight):
    """A load under way in one thread."""

    __slots__ = ("error", "landed", "outcome")

    def __init__(self) -> None:
        super().__init__()
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
        with _waiting_for(flight, entry):
            if flight is mine:
                return self._fly(name, flight, make), True
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
