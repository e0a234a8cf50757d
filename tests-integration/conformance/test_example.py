"""The quick example runs as written, and so does its async twin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from conformance.stage import Rig
from fencekit import (
    AsyncDistributedLock,
    AsyncFenceGate,
    AsyncIdempotencyGuard,
    BeginOutcome,
    DistributedLock,
    FenceGate,
    IdempotencyGuard,
    IdempotencyResultMissing,
)


def analyze(redis: Any, key: str, resource: str) -> Any:
    lock, fence, guard = DistributedLock(redis), FenceGate(redis), IdempotencyGuard(redis)
    outcome = guard.try_begin_or_reclaim(
        key, lock=lock, lock_resource=resource, ttl=timedelta(hours=24)
    )
    if outcome is BeginOutcome.ALREADY_DONE:
        try:
            return guard.get_result(key)
        except IdempotencyResultMissing:
            return None
    if outcome is BeginOutcome.IN_PROGRESS:
        return None
    handle = lock.acquire(resource, ttl=timedelta(minutes=5), owner_id=guard.owner_id)
    try:
        fence.set_if_fresh(handle.token, f"{resource}:status", "running")
        result = {"rows": 42}
        guard.mark_done(key, result=result, ttl=timedelta(hours=24))
        return result
    finally:
        lock.release(handle)


async def analyze_async(redis: Any, key: str, resource: str) -> Any:
    lock, fence = AsyncDistributedLock(redis), AsyncFenceGate(redis)
    guard = AsyncIdempotencyGuard(redis)
    outcome = await guard.try_begin_or_reclaim(
        key, lock=lock, lock_resource=resource, ttl=timedelta(hours=24)
    )
    if outcome is BeginOutcome.ALREADY_DONE:
        try:
            return await guard.get_result(key)
        except IdempotencyResultMissing:
            return None
    if outcome is BeginOutcome.IN_PROGRESS:
        return None
    handle = await lock.acquire(resource, ttl=timedelta(minutes=5), owner_id=guard.owner_id)
    try:
        await fence.set_if_fresh(handle.token, f"{resource}:status", "running")
        result = {"rows": 42}
        await guard.mark_done(key, result=result, ttl=timedelta(hours=24))
        return result
    finally:
        await lock.release(handle)


async def test_the_quick_example(rig: Rig) -> None:
    if rig.backend.topology == "cluster":
        pytest.skip("there the key must be named beside the lock: see test_cluster.py")
    # The prefix in the resource lets the example run under the smallest ACL too.
    key, resource = "analysis:sha256-of-7", "fencekit:app:analysis:7"
    for _ in range(2):
        if rig.is_async:
            result = await analyze_async(rig.client, key, resource)
        else:
            result = analyze(rig.client, key, resource)
        assert result == {"rows": 42}
    assert rig.ask("GET", f"{resource}:status") == "running"
