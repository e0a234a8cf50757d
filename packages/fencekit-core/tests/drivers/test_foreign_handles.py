"""A handle is given back through the client that it was made with, or refused.

Through another one the server has never heard of the lock, and its verdict would be LOST, while the
lock stands. (It was, before the check: the test failed with LockNotOwned.)
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fencekit import AsyncDistributedLock, DistributedLock
from harness.clients import aopened, opened

if TYPE_CHECKING:
    from harness.servers import Server

LEASE = timedelta(seconds=5)


def test_another_lock_on_the_same_client_may_release(redis_client: Any) -> None:
    handle = DistributedLock(redis_client).acquire("ours", ttl=LEASE)
    DistributedLock(redis_client, prefix="elsewhere").release(handle)
    assert redis_client.exists("fencekit:{ours}:lock") == 0


def test_a_lock_on_another_client_refuses(server: Server, redis_client: Any) -> None:
    handle = DistributedLock(redis_client).acquire("ours", ttl=LEASE)
    with opened(server.url) as other:
        foreign = DistributedLock(other)
        with pytest.raises(ValueError, match="another client"):
            foreign.release(handle)
        with pytest.raises(ValueError, match="another client"):
            foreign.extend(handle, ttl=LEASE)
    handle.release()


async def test_an_async_lock_on_another_client_refuses(
    server: Server, async_redis_client: Any
) -> None:
    handle = await AsyncDistributedLock(async_redis_client).acquire("ours", ttl=LEASE)
    async with aopened(server.url) as other:
        with pytest.raises(ValueError, match="another client"):
            await AsyncDistributedLock(other).release(handle)
    await handle.release()
