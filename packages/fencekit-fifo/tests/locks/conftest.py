from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from harness.fifo import Queue
from harness.twins import Twin


@pytest_asyncio.fixture(params=["async", "sync"])
async def twin(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Twin]:
    twin = Twin(request.param, redis_url)
    yield twin
    await twin.close()


@pytest.fixture
def queue(redis_client: Any) -> Iterator[Queue]:
    queue = Queue(redis_client)
    yield queue
    queue.close()
