from __future__ import annotations

from typing import Any

import pytest

from harness.claims import Record
from harness.lab import Lab


@pytest.fixture
def record(redis_client: Any) -> Record:
    return Record(redis_client)


@pytest.fixture
def lab(redis_client: Any) -> Lab:
    return Lab(redis_client)
