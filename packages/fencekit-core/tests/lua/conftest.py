from __future__ import annotations

from typing import Any

import pytest

from harness.claims import Record


@pytest.fixture
def record(redis_client: Any) -> Record:
    return Record(redis_client)
