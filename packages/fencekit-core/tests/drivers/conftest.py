"""Locks of both colours for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from harness.clients import Colour
from harness.colours import COLOURS, Locks


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Colour:
    chosen: Colour = request.param
    return chosen


@pytest.fixture
def make_locks(colour: Colour) -> Iterator[Callable[..., Locks]]:
    """Make locks of the test's colour on a URL; each has a client of its own."""
    with ExitStack() as stack:

        def make(url: str, **options: Any) -> Locks:
            return stack.enter_context(Locks(colour, url, **options))

        yield make
