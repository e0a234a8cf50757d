"""How a class of cache reaches its server: the client it was given, or a factory of clients."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakKeyDictionary

from fencekit.cache.flights import AsyncFlights, SyncFlights
from fencekit.cache.protocol import Clock
from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.client import describe
from fencekit.drivers.sync import SyncDriver

__all__ = ["Access", "AsyncSource", "SyncSource", "check_client"]

D = TypeVar("D")
F = TypeVar("F")


class Access(Generic[D, F]):
    """What a cache has on one event loop, or in one process.

    Attributes:
        client: what the driver was made of; kept, for drivers live as long as their clients.
        driver: speaks with the server.
        flights: the loads under way.
        clock: the server's.
    """

    __slots__ = ("client", "clock", "driver", "flights")

    def __init__(self, client: Any, driver: D, flights: F) -> None:
        self.client = client
        self.driver = driver
        self.flights = flights
        self.clock = Clock()


def check_client(given: Any, colour: Literal["sync", "async"], where: str) -> bool:
    """Check what a class calls its client; True when it is a factory.

    Raises:
        TypeError: neither a client of that colour nor a plain function that may return one.
    """
    is_client = hasattr(given, "connection_pool") or hasattr(given, "nodes_manager")
    if not is_client and callable(given):
        if inspect.iscoroutinefunction(given):
            msg = f"{where}.redis_client is a coroutine function: a factory must be a plain one"
            raise TypeError(msg)
        return True
    try:
        describe(given, colour)
    except TypeError as error:
        msg = f"{where}.redis_client: {error}, or a factory that returns one"
        raise TypeError(msg) from None
    return False


class AsyncSource:
    """Access of an async class, one for each event loop.

    Attributes:
        given: the client, or the factory.
    """

    def __init__(self, given: Any, *, is_factory: bool) -> None:
        self.given = given
        self._is_factory = is_factory
        self._known: WeakKeyDictionary[
            asyncio.AbstractEventLoop, Access[AsyncDriver, AsyncFlights]
        ] = WeakKeyDictionary()
        self._pid = os.getpid()

    def access(self) -> Access[AsyncDriver, AsyncFlights]:
        """The access of the running loop."""
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._known, self._pid = WeakKeyDictionary(), os.getpid()
        found = self._known.get(loop)
        if found is None:
            client = self.given() if self._is_factory else self.given
            driver = AsyncDriver.of(client)
            found = self._known[loop] = Access(client, driver, AsyncFlights(driver))
        return found


class SyncSource:
    """Access of a sync class, one for each process.

    Attributes:
        given: the client, or the factory.
    """

    def __init__(self, given: Any, *, is_factory: bool) -> None:
        self.given = given
        self._is_factory = is_factory
        self._known: tuple[int, Access[SyncDriver, SyncFlights]] | None = None
        self._lock = threading.Lock()

    def access(self) -> Access[SyncDriver, SyncFlights]:
        """The access of this process."""
        pid = os.getpid()
        known = self._known
        if known is not None and known[0] == pid:
            return known[1]
        if known is not None:
            self._lock = threading.Lock()  # the parent's may be held by a thread that is not here
        with self._lock:
            if self._known is None or self._known[0] != pid:
                client = self.given() if self._is_factory else self.given
                driver = SyncDriver.of(client)
                self._known = (pid, Access(client, driver, SyncFlights(driver)))
            return self._known[1]
