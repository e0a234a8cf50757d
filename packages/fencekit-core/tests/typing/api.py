"""Use each public name as it is documented, for type checkers to read: mypy --strict and pyright.

Nothing here runs. What is asserted is what a user's editor shows.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from typing_extensions import assert_type

import fencekit
from fencekit import (
    AlreadyAcquiredError,
    AsyncClaim,
    AsyncDistributedLock,
    AsyncFenceGate,
    AsyncIdempotencyGuard,
    AsyncLockHandle,
    BeginOutcome,
    CanonicalizeError,
    Claim,
    DistributedLock,
    FencedOutError,
    FenceGate,
    FenceKitError,
    FenceKitHooks,
    FenceToken,
    HandleForked,
    IdempotencyError,
    IdempotencyExhausted,
    IdempotencyFailed,
    IdempotencyGuard,
    IdempotencyInProgress,
    IdempotencyNotOwned,
    IdempotencyPayloadMismatch,
    IdempotencyResultMissing,
    LockHandle,
    LockInfo,
    LockNotAcquired,
    LockNotOwned,
    OutcomeUnknown,
    OwnershipLost,
    RedisLock,
    ReplicationError,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    canonicalize,
    idempotency_key,
)
from fencekit.embedded import server
from fencekit.hooks import LockAcquired

MINUTE = timedelta(minutes=1)
HOURS = timedelta(hours=24)


def on_lost(handle: LockHandle) -> None:
    assert_type(handle.resource, str)


async def on_lost_async(handle: AsyncLockHandle) -> None:
    await asyncio.sleep(0)
    assert_type(handle.resource, str)


def on_acquired(event: LockAcquired) -> None:
    assert_type(event.resource, str)
    assert_type(event.token, int)
    assert_type(event.waited_ms, float)


# -- locks --------------------------------------------------------------------------------------


def locks(client: Redis) -> None:
    lock = DistributedLock(
        client,
        prefix="fencekit",
        fence_retention=timedelta(days=30),
        min_replicas=1,
        replica_timeout=timedelta(milliseconds=500),
        hooks=FenceKitHooks(on_acquired=on_acquired),
    )
    handle = lock.acquire(
        "invoices",
        ttl=MINUTE,
        owner_id="worker-1",
        blocking=True,
        wait=MINUTE,
        renew=True,
        max_hold=HOURS,
        on_lost=on_lost,
    )
    assert_type(handle, LockHandle)
    assert_type(handle.resource, str)
    assert_type(handle.owner_id, str)
    assert_type(handle.token, FenceToken)
    assert_type(handle.ttl, timedelta)
    assert_type(handle.remaining(), timedelta)
    lost: threading.Event = handle.lost
    assert_type(lost.is_set(), bool)
    lock.extend(handle, ttl=MINUTE)
    handle.extend(MINUTE)
    handle.extend()
    lock.release(handle)
    handle.release()
    assert_type(lock.try_acquire("invoices", ttl=MINUTE), LockHandle | None)
    with lock.hold("invoices", ttl=MINUTE, wait=None, renew=True) as held:
        assert_type(held, LockHandle)
    assert_type(lock.lock_key("invoices"), str)
    info = lock.inspect("invoices")
    assert_type(info, LockInfo | None)
    if info is not None:
        assert_type(info.owner_id, str | None)
        assert_type(info.token, FenceToken | None)
        assert_type(info.lapsed, tuple[int, ...])
    assert_type(lock.force_release("invoices"), bool)
    assert_type(lock.force_release("invoices", token=handle.token), bool)
    assert_type(lock.advance_fence("invoices", at_least=7), int)


async def async_locks(client: AsyncRedis) -> None:
    lock = AsyncDistributedLock(client, prefix="fencekit", hooks=FenceKitHooks())
    handle = await lock.acquire("invoices", ttl=MINUTE, wait=MINUTE, on_lost=on_lost_async)
    assert_type(handle, AsyncLockHandle)
    assert_type(handle.token, FenceToken)
    lost: asyncio.Event = handle.lost
    await lost.wait()
    await lock.extend(handle, ttl=MINUTE)
    await handle.extend(MINUTE)
    await lock.release(handle)
    await handle.release()
    assert_type(await lock.try_acquire("invoices", ttl=MINUTE), AsyncLockHandle | None)
    async with lock.hold("invoices", ttl=MINUTE) as held:
        assert_type(held, AsyncLockHandle)
    assert_type(lock.lock_key("invoices"), str)
    assert_type(await lock.inspect("invoices"), LockInfo | None)
    assert_type(await lock.force_release("invoices"), bool)
    assert_type(await lock.advance_fence("invoices", at_least=7), int)


# -- the gate -----------------------------------------------------------------------------------


def tokens() -> None:
    token = FenceToken(1_700_000_000_000_001, resource="invoices")
    assert_type(FenceToken(7, resource="order-1", record="claim"), FenceToken)
    assert_type(token.value, int)
    assert_type(token.resource, str)
    number: int = token
    assert_type(token > number, bool)


def gates(client: Redis, token: FenceToken) -> None:
    gate = FenceGate(client, prefix="fencekit", remote=True, fence_retention=MINUTE)
    gate.set_if_fresh(token, "invoices:status", "running", ttl=MINUTE)
    gate.set_if_fresh(token, "invoices:count", 7)
    gate.set_if_fresh(token, "invoices:blob", b"\x00")
    assert_type(gate.delete_if_fresh(token, "invoices:status"), bool)
    gate.hset_if_fresh(token, "invoices:hash", {"a": "1", "b": b"2", "c": 3, "d": 0.5})
    gate.check(token)
    gate.check_and_advance(token)
    assert_type(gate.current_max("invoices"), int | None)


async def async_gates(client: AsyncRedis, token: FenceToken) -> None:
    gate = AsyncFenceGate(client)
    await gate.set_if_fresh(token, "invoices:status", "running")
    assert_type(await gate.delete_if_fresh(token, "invoices:status"), bool)
    await gate.hset_if_fresh(token, "invoices:hash", {"a": "1"})
    await gate.check(token)
    await gate.check_and_advance(token)
    assert_type(await gate.current_max("invoices"), int | None)


# -- the guard ----------------------------------------------------------------------------------


def guards(client: Redis, lock: DistributedLock) -> None:
    guard = IdempotencyGuard(client, store_result=True, hooks=FenceKitHooks())
    key = idempotency_key({"batch_id": 7}, namespace="analysis")
    assert_type(key, str)
    assert_type(canonicalize({"batch_id": 7}), bytes)
    assert_type(guard.owner_id, str)
    assert_type(guard.try_begin(key, ttl=HOURS), bool)
    outcome = guard.try_begin_or_reclaim(key, lock=lock, lock_resource="analysis:7", ttl=HOURS)
    assert_type(outcome, BeginOutcome)
    if outcome is BeginOutcome.ALREADY_DONE:
        assert_type(guard.get_result(key), Any)
    guard.mark_done(key, result={"ok": True}, ttl=HOURS)
    guard.mark_done(key)
    with guard.begin(key, ttl=HOURS, lease=MINUTE, payload=7, max_attempts=3, renew=True) as claim:
        claims(claim)
    assert_type(guard.run(key, lambda: 7, ttl=HOURS, wait=MINUTE), Any)
    begun = guard.begin_many([key], ttl=HOURS)
    assert_type(begun, list[Claim])
    guard.complete_many((one, 7) for one in begun if one.started)
    if (status := guard.status(key)) is not None:
        assert_type(status.attempts, int)
    assert_type(guard.clear(key), bool)


def claims(claim: Claim) -> None:
    assert_type(claim.started, bool)
    assert_type(claim.replayed, bool)
    assert_type(claim.result, Any)
    assert_type(claim.outcome, BeginOutcome)
    assert_type(claim.retry_after, timedelta | None)
    assert_type(claim.fence, FenceToken)
    assert_type(claim.attempt, int)
    lost: threading.Event = claim.lost
    assert_type(lost.is_set(), bool)
    claim.check()
    claim.renew()
    claim.complete(7)
    claim.fail(ValueError("no"), terminal=False)
    claim.fail("no")
    claim.release()


async def async_guards(client: AsyncRedis, lock: AsyncDistributedLock) -> None:
    guard = AsyncIdempotencyGuard(client)
    assert_type(await guard.try_begin("key", ttl=HOURS), bool)
    outcome = await guard.try_begin_or_reclaim("key", lock=lock, lock_resource="a", ttl=HOURS)
    assert_type(outcome, BeginOutcome)
    await guard.mark_done("key", result=7)
    assert_type(await guard.get_result("key"), Any)
    async with guard.begin("key", ttl=HOURS) as claim:
        assert_type(claim, AsyncClaim)
        await claim.complete(7)
    waited = await guard.begin("key", ttl=HOURS, wait=MINUTE)
    assert_type(waited, AsyncClaim)
    lost: asyncio.Event = waited.lost
    await lost.wait()
    await waited.fail("no", terminal=True)
    assert_type(await guard.run("key", work, ttl=HOURS), Any)
    begun = await guard.begin_many(["key"], ttl=HOURS)
    assert_type(begun, list[AsyncClaim])
    await guard.complete_many((one, 7) for one in begun)
    assert_type(await guard.clear("key"), bool)


async def work() -> int:
    return await asyncio.sleep(0, 7)


# -- the rest -----------------------------------------------------------------------------------


async def bare_locks(client: AsyncRedis) -> None:
    lock = RedisLock(client, "key", timeout=10.0, blocking=True, blocking_timeout=5)
    try:
        async with lock as held:
            assert_type(held, RedisLock)
            await held.extend()
    except AlreadyAcquiredError as error:
        assert_type(error.key, str)
    await lock.acquire()
    await lock.release()


def errors(call: Callable[[], None]) -> None:
    try:
        call()
    except LockNotAcquired as error:
        assert_type(error.resource, str)
        assert_type(error.retry_after_ms, int)
        assert_type(error.holder, str)
    except LockNotOwned as error:
        assert_type(error.token, int | None)
    except ReplicationError as error:
        assert_type((error.wanted, error.confirmed), tuple[int, int])
    except HandleForked as error:
        assert_type(error.resource, str)
    except FencedOutError as error:
        assert_type((error.resource, error.token), tuple[str, int])
        assert_type(error.current, int | None)
    except StoreRefused as error:
        assert_type((error.code, error.sends), tuple[str, int])
    except OutcomeUnknown as error:
        assert_type(error.sends, int)
    except StoreUnavailable as error:
        same: StoreError = error
        assert_type(same.sends, int)
    except IdempotencyInProgress as error:
        assert_type((error.key, error.retry_after_ms), tuple[str, int])
    except IdempotencyExhausted as error:
        assert_type(error.attempts, int)
    except IdempotencyFailed as error:
        assert_type(error.error, str)
    except (IdempotencyPayloadMismatch, IdempotencyResultMissing, IdempotencyNotOwned) as error:
        base: IdempotencyError = error
        assert_type(base.key, str)
    except CanonicalizeError as error:
        assert_type((error.path, error.reason), tuple[str, str])
    except FenceKitError as error:
        assert_type(error.args, tuple[Any, ...])


def replaced(call: Callable[[], None]) -> None:
    try:
        call()
    except OwnershipLost as error:
        assert_type(error.args, tuple[Any, ...])


def demos() -> None:
    with server() as url:
        assert_type(url, str)
    with server(args=("--maxmemory", "64mb"), port=7000):
        assert_type(fencekit.__version__, str)
