"""RedisLock contends with the client library's own lock, on every server."""

from __future__ import annotations

import asyncio
import time

import pytest

from conformance.stage import Rig
from fencekit import AlreadyAcquiredError, LockNotOwned, RedisLock

KEY = "fencekit:app:nightly"


@pytest.fixture(autouse=True)
def _async_only(rig: Rig) -> None:
    if not rig.is_async:
        pytest.skip("the library itself has the sync one")


async def test_one_holder(rig: Rig) -> None:
    first, second = RedisLock(rig.client, KEY), RedisLock(rig.another_client(), KEY)
    async with first:
        with pytest.raises(AlreadyAcquiredError):
            await second.acquire()
        await first.extend()
    async with second:
        with pytest.raises(LockNotOwned):
            await first.extend()


async def test_it_contends_with_the_librarys_lock(rig: Rig) -> None:
    if rig.backend.topology == "cluster" and rig.family == "valkey":
        pytest.skip("valkey-py's cluster client has no lock")
    if rig.backend.acl is not None:
        pytest.skip("the library's lock needs more of the ACL than ours")
    theirs = rig.client.lock(KEY, timeout=10, blocking=False)
    async with RedisLock(rig.client, KEY):
        assert not await theirs.acquire()
    assert await theirs.acquire()
    with pytest.raises(AlreadyAcquiredError):
        await RedisLock(rig.client, KEY).acquire()
    await theirs.release()


async def test_a_release_wakes_a_waiter(rig: Rig) -> None:
    first = RedisLock(rig.client, KEY, timeout=30)
    second = RedisLock(rig.another_client(), KEY, timeout=30, blocking=True)
    await first.acquire()
    waiter = asyncio.create_task(second.acquire())
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await first.release()
    await asyncio.wait_for(waiter, 5)
    assert time.monotonic() - began < 1.5
    await second.release()


async def test_expiry(rig: Rig) -> None:
    short = RedisLock(rig.client, KEY, timeout=0.1)
    await short.acquire()
    await asyncio.sleep(0.15)
    async with RedisLock(rig.client, KEY):
        await short.release()  # tolerates that it has expired
        with pytest.raises(AlreadyAcquiredError):
            await RedisLock(rig.client, KEY).acquire()
