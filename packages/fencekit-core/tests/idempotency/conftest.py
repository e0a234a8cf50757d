"""Guards of both colours for the tests of this room."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import pytest_asyncio

from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.sync import SyncDriver
from harness.claims import Record
from harness.clients import Colour
from harness.guards import Guards
from harness.servers import Server


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    chosen: Colour = request.param
    return chosen


@pytest.fixture
def make_guards(colour: Colour, server: Server) -> Iterator[Callable[..., Guards]]:
    """Make guards of the test's colour, each with a client of its own, on the default server."""
    with ExitStack() as stack:

        def make(url: str | None = None, **options: Any) -> Guards:
            return stack.enter_context(Guards(colour, url or server.url, **options))

        yield make


@pytest.fixture
def guards(make_guards: Callable[..., Guards]) -> Guards:
    return make_guards()


@pytest.fixture
def redis_client(redis_client: Any) -> Iterator[Any]:
    """The stock client; what fencekit opened beside it is closed before it."""
    yield redis_client
    SyncDriver.of(redis_client).close()


@pytest_asyncio.fixture
async def async_redis_client(async_redis_client: Any) -> AsyncIterator[Any]:
    """The stock async client; what fencekit opened beside it is closed before it."""
    yield async_redis_client
    await AsyncDriver.of(async_redis_client).aclose()


@pytest.fixture
def record(redis_client: Any) -> Record:
    """The record of "job", to look into and to tamper with."""
    return Record(redis_client)
