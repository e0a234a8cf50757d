"""Wait for what happens in another thread, process or server."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def eventually(
    predicate: Callable[[], T], timeout: float = 2.0, *, interval: float = 0.005, why: str = ""
) -> T:
    """Return the predicate's first true value, asked every `interval` seconds.

    Raises:
        AssertionError: It is not true within `timeout` seconds; shows its last value.
    """
    deadline = time.monotonic() + timeout
    while not (value := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {why or predicate}; last {value!r}")
        time.sleep(interval)
    return value


async def eventually_async(
    predicate: Callable[[], T], timeout: float = 2.0, *, interval: float = 0.005, why: str = ""
) -> T:
    """Return the predicate's first true value while the loop goes on; otherwise as `eventually`.

    Raises:
        AssertionError: It is not true within `timeout` seconds; shows its last value.
    """
    deadline = time.monotonic() + timeout
    while not (value := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {why or predicate}; last {value!r}")
        await asyncio.sleep(interval)
    return value


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, as often as it takes, and return when they have ended.

    Once is not always enough: redis-py's async client loses a cancellation now and then.
    """
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=0.1)


async def until_waiting(lock: Any, count: int) -> None:
    """Return when so many wait for a FIFO lock.

    Raises:
        AssertionError: They do not within a thousand looks; shows the lock's statistics.
    """
    for _ in range(1000):
        if (await lock.stats()).waiting == count:
            return
        await asyncio.sleep(0.002)
    raise AssertionError(await lock.stats())
