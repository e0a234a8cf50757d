"""Caches of both colours on the default server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from harness import clients
from harness.caches import Kit, Profile, opened_kit
from harness.clients import Colour
from harness.servers import Server


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    chosen: Colour = request.param
    return chosen


@pytest_asyncio.fixture
async def kit(colour: Colour, server: Server) -> AsyncIterator[Kit]:
    """Caches of the test's colour on the default server."""
    async with opened_kit(colour, server.url) as made:
        yield made


@pytest.fixture
def profile() -> Profile:
    return Profile(id=1)


@pytest.fixture
def store(server: Server) -> Iterator[Any]:
    """A plain client, to look at what is stored."""
    with clients.opened(server.url) as client:
        yield client
