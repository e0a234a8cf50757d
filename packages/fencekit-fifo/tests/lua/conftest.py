from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.fifo import Queue


@pytest.fixture
def queue(redis_client: Any) -> Iterator[Queue]:
    queue = Queue(redis_client)
    yield queue
    queue.close()
