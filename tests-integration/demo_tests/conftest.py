"""The demo's tests begin early: each takes seconds, most of them spent waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put them first, so that no process is left with one when the others have ended."""
    items.sort(key=lambda item: item.path.parent != HERE)  # stable
