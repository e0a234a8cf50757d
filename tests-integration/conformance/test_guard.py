"""IdempotencyGuard, on every server, through every client, in both colours."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from conformance.forks import in_a_fork
from conformance.stage import LONG, Rig, entered, got, ms
from fencekit import (
    FencedOutError,
    HandleForked,
    IdempotencyExhausted,
    IdempotencyFailed,
    IdempotencyInProgress,
    IdempotencyNotOwned,
    IdempotencyPayloadMismatch,
    IdempotencyResultMissing,
)
from fencekit.protocol.claim import BeginOutcome

JSON = {"amount": 1250, "lines": [1, 2.5, None, True, "ä"], "nested": {"b": 1, "a": 2}}


async def test_done_once_and_answered_ever_after(rig: Rig) -> None:
    guard, other, key = rig.guard(), rig.guard(rig.another_client()), rig.target("job")
    async with entered(guard.begin("charge:1", ttl=LONG, payload=JSON)) as claim:
        assert claim.started
        assert (claim.replayed, claim.attempt) == (False, 1)
        await got(claim.check())
        await got(claim.renew())
        await got(claim.complete(JSON))
    async with entered(other.begin("charge:1", ttl=LONG, payload=JSON)) as again:
        assert again.replayed
        assert not again.started
        assert again.result == JSON
        assert list(again.result) == list(JSON)
    with pytest.raises(IdempotencyPayloadMismatch):
        await got(guard.begin("charge:1", ttl=LONG, payload={"amount": 1}))
    assert await got(guard.get_result("charge:1")) == JSON
    assert rig.ask("GET", key) is None


async def test_a_claim_writes_through_the_gate(rig: Rig) -> None:
    guard, gate, key = rig.guard(), rig.gate(), rig.target("job")
    stale = await got(guard.begin("job", ttl=LONG, lease=ms(60), renew=False))
    await got(gate.set_if_fresh(stale.fence, key, "first"))
    await rig.sleep(0.1)
    assert stale.lost.is_set()
    fresh = await got(guard.begin("job", ttl=LONG))
    assert fresh.outcome is BeginOutcome.RECLAIMED
    assert (fresh.attempt, fresh.fence > stale.fence) == (2, True)
    with pytest.raises(FencedOutError):
        await got(gate.set_if_fresh(stale.fence, key, "late"))
    with pytest.raises(IdempotencyNotOwned):
        await got(stale.complete("late"))
    await got(gate.set_if_fresh(fresh.fence, key, "second"))
    await got(fresh.complete("done"))
    assert rig.ask("GET", key) == "second"


async def test_a_lapsed_attempt_completes_while_nobody_has_taken_over(rig: Rig) -> None:
    guard = rig.guard()
    claim = await got(guard.begin("job", ttl=LONG, lease=ms(50), renew=False))
    await rig.sleep(0.1)
    await got(claim.complete("late but true"))
    assert await got(guard.get_result("job")) == "late but true"


async def test_a_running_attempt_is_in_the_way(rig: Rig) -> None:
    guard = rig.guard()
    claim = await got(guard.begin("job", ttl=LONG, lease=LONG))
    standing = await got(guard.begin("job", ttl=LONG))
    assert standing.outcome is BeginOutcome.IN_PROGRESS
    assert ms(25_000) < standing.retry_after <= LONG
    with pytest.raises(IdempotencyInProgress):
        await got(guard.run("job", lambda: 1, ttl=LONG))
    status = await got(guard.status("job"))
    assert (status.state.value, status.attempts, status.fence) == ("running", 1, claim.fence)
    await got(claim.release())
    again = await got(guard.begin("job", ttl=LONG))
    assert again.attempt == 1  # given back, uncounted
    await got(again.release())


async def test_a_lease_is_renewed_while_the_work_runs(rig: Rig) -> None:
    guard = rig.guard()
    async with entered(guard.begin("job", ttl=LONG, lease=ms(1200))) as claim:
        await rig.sleep(1.5)
        assert not claim.lost.is_set()
        assert not (await got(guard.begin("job", ttl=LONG))).started
        await got(claim.complete(None))


async def test_run_calls_once(rig: Rig) -> None:
    guard = rig.guard()
    calls: list[int] = []

    def work() -> Any:
        calls.append(1)
        return (1, 2)

    for _ in range(3):
        assert await got(guard.run("job", work, ttl=LONG)) == [1, 2]
    assert calls == [1]


async def test_who_waits_gets_the_result(rig: Rig) -> None:
    guard, other = rig.guard(), rig.guard(rig.another_client())
    claim = await got(guard.begin("job", ttl=LONG))

    async def wait() -> Any:
        return await got(other.run("job", lambda: "twice", ttl=LONG, wait=LONG))

    waiters = [rig.start(wait()) for _ in range(3)]
    await rig.sleep(0.1)
    completed_at = time.monotonic()
    await got(claim.complete("once"))
    for waiter in waiters:
        assert await waiter.result() == "once"
    assert time.monotonic() - completed_at < 1.5


async def test_attempts_that_fail_are_counted(rig: Rig) -> None:
    guard = rig.guard()

    async def work(number: int) -> None:
        async with entered(guard.begin("job", ttl=LONG, max_attempts=2)) as claim:
            assert claim.attempt == number
            raise ZeroDivisionError

    for number in (1, 2):
        with pytest.raises(ZeroDivisionError):
            await work(number)
    assert (await got(guard.begin("job", ttl=LONG, max_attempts=2))).outcome is (
        BeginOutcome.EXHAUSTED
    )
    with pytest.raises(IdempotencyExhausted):
        await got(guard.run("job", lambda: 1, ttl=LONG, max_attempts=2))
    assert await got(guard.clear("job"))
    claim = await got(guard.begin("job", ttl=LONG))
    await got(claim.fail("card declined", terminal=True))
    with pytest.raises(IdempotencyFailed):
        await got(guard.run("job", lambda: 1, ttl=LONG))


async def test_many_keys_in_one_pipeline(rig: Rig) -> None:
    guard, keys = rig.guard(), [f"job-{number}" for number in range(20)]
    claims = await got(guard.begin_many(keys, ttl=LONG))
    assert [claim.key for claim in claims if claim.started] == keys
    await got(guard.complete_many([(claim, claim.key) for claim in claims]))
    again = await got(guard.begin_many(keys, ttl=LONG))
    assert [claim.result for claim in again] == keys


async def test_step_by_step(rig: Rig) -> None:
    guard = rig.guard()
    assert await got(guard.status("job")) is None
    assert await got(guard.try_begin("job", ttl=LONG))
    assert not await got(guard.try_begin("job", ttl=LONG))
    with pytest.raises(IdempotencyNotOwned):
        await got(rig.guard().mark_done("job", result=1))
    await got(guard.mark_done("job", result=[1]))
    assert await got(guard.get_result("job")) == [1]
    assert await got(guard.try_begin("silent", ttl=LONG))
    await got(guard.mark_done("silent"))
    with pytest.raises(IdempotencyResultMissing):
        await got(guard.get_result("silent"))
    assert await got(guard.clear("job"))
    assert await got(guard.try_begin("job", ttl=LONG))


async def test_a_coarser_lock_protects_the_work(rig: Rig) -> None:
    """On a cluster the record and the lock live in different slots, mostly on different nodes."""
    lock, grace = rig.lock(), ms(80)
    for key, resource in (("job:1", "account:7"), ("job:2", "account:8"), ("job:3", "account:9")):
        first, second = rig.guard(begin_grace=grace), rig.guard(begin_grace=grace)

        async def begin(guard: Any, key: str = key, resource: str = resource) -> BeginOutcome:
            call = guard.try_begin_or_reclaim(key, lock=lock, lock_resource=resource, ttl=LONG)
            outcome: BeginOutcome = await got(call)
            return outcome

        assert await begin(first) is BeginOutcome.BEGUN
        assert await begin(second) is BeginOutcome.IN_PROGRESS  # within the grace
        handle = await got(lock.acquire(resource, ttl=LONG, owner_id=first.owner_id))
        await rig.sleep(0.12)
        assert await begin(second) is BeginOutcome.IN_PROGRESS  # its worker holds the lock
        await got(lock.release(handle))
        assert await begin(second) is BeginOutcome.RECLAIMED
        with pytest.raises(IdempotencyNotOwned):
            await got(first.mark_done(key, result="late"))
        await got(second.mark_done(key, result="done"))
        assert await begin(first) is BeginOutcome.ALREADY_DONE


async def test_scripts_may_be_flushed_between_any_two_operations(rig: Rig) -> None:
    guard, flush = rig.guard(), rig.backend.forget_scripts
    flush()
    claim = await got(guard.begin("job", ttl=LONG))
    flush()
    await got(claim.renew())
    flush()
    await got(claim.fail("not yet"))
    flush()
    claim = await got(guard.begin("job", ttl=LONG))
    flush()
    await got(claim.release())
    flush()
    assert (await got(guard.status("job"))).state.value == "retryable"
    flush()
    claims = await got(guard.begin_many(["job", "other", "third"], ttl=LONG))
    flush()
    await got(guard.complete_many([(claim, 1) for claim in claims]))
    flush()
    assert await got(guard.get_result("job")) == 1
    flush()
    assert await got(guard.clear("job"))


async def test_a_fork_starts_afresh(rig: Rig) -> None:
    guard = rig.guard()
    claim = await got(guard.begin("job", ttl=LONG))

    async def child() -> None:
        with pytest.raises(HandleForked):
            await got(claim.complete(1))
        assert not (await got(guard.begin("job", ttl=LONG))).started
        assert await got(guard.run("other", lambda: "child", ttl=LONG)) == "child"

    in_a_fork(lambda: rig.run(child()))
    await got(claim.complete(1))
    assert await got(guard.run("other", lambda: "parent", ttl=LONG)) == "child"


async def test_a_cancelled_begin_leaves_nothing(rig: Rig) -> None:
    if not rig.is_async:
        pytest.skip("threads are not cancelled")
    guard = rig.guard()
    for turns in range(12):

        async def begin(key: str = f"job-{turns}") -> Any:
            return await guard.begin(key, ttl=LONG, lease=LONG)

        task = asyncio.create_task(begin())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().release()
        assert await guard.run(f"job-{turns}", lambda: 1, ttl=LONG, wait=ms(1000)) == 1
