"""Guards of both colours for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

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
def record(redis_client: Any) -> Record:
    """The record of "job", to look into and to tamper with."""
    return Record(redis_client)
