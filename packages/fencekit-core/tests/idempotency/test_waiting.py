"""Waiting for an attempt that runs: latching on to its result, or taking over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencekit.errors import IdempotencyInProgress
from fencekit.idempotency import AsyncIdempotencyGuard
from harness.claims import Record
from harness.guards import Guards
from harness.statistics import CommandStats
from harness.waiting import eventually

HOUR, WAIT = timedelta(hours=1), timedelta(seconds=20)


def refuse() -> Any:
    raise AssertionError("this work must not be done")


def waiters(record: Record, count: int = 1) -> bool:
    """Whether so many listen on the key's channel; one connection for each process."""
    [(_, listening)] = record.client.pubsub_numsub(record.names.idem)
    return bool(listening >= count)


def test_a_waiter_latches_on_to_the_result(guards: Guards, record: Record) -> None:
    with guards.begin("job", ttl=HOUR) as claim:
        waiting = [guards.start("run", "job", refuse, ttl=HOUR, wait=WAIT) for _ in range(5)]
        eventually(lambda: waiters(record))
        time.sleep(0.1)
        done_at = time.monotonic()
        claim.complete({"n": 1})
    assert [one.result(5) for one in waiting] == [{"n": 1}] * 5
    assert time.monotonic() - done_at < 1.0, "woken, one after the other, not at the lease's end"


@pytest.mark.parametrize("end", ["fail", "release", "raise"])
def test_a_waiter_does_the_work_when_the_holder_did_not(
    guards: Guards, record: Record, end: str
) -> None:
    claim = guards.begin("job", ttl=HOUR)
    waiting = guards.start("run", "job", lambda: 7, ttl=HOUR, wait=WAIT)
    eventually(lambda: waiters(record))
    time.sleep(0.05)
    over_at = time.monotonic()
    if end == "raise":
        with pytest.raises(KeyError), claim:
            raise KeyError
    else:
        getattr(claim, end)(*(["Oops"] if end == "fail" else []))
    assert waiting.result(5) == 7
    assert time.monotonic() - over_at < 1.0


def test_of_many_waiters_one_takes_over_and_the_others_get_its_result(
    guards: Guards, record: Record
) -> None:
    runs: list[int] = []

    def work() -> int:
        runs.append(1)
        time.sleep(0.02)
        return len(runs)

    claim = guards.begin("job", ttl=HOUR)
    waiting = [guards.start("run", "job", work, ttl=HOUR, wait=WAIT) for _ in range(8)]
    eventually(lambda: waiters(record))
    time.sleep(0.1)
    claim.release()
    assert [one.result(10) for one in waiting] == [1] * 8
    assert runs == [1]


def test_a_waiter_takes_over_when_the_lease_is_over(guards: Guards) -> None:
    guards.begin("job", ttl=HOUR, lease=timedelta(milliseconds=400), renew=False)
    started = time.monotonic()
    assert guards.call("run", "job", lambda: 7, ttl=HOUR, wait=WAIT) == 7
    assert 0.3 < time.monotonic() - started < 1.0


def test_waiting_is_over_in_time(guards: Guards, record: Record) -> None:
    record.begin("a", owner="you", lease=60_000)
    started = time.monotonic()
    with pytest.raises(IdempotencyInProgress) as caught:
        guards.call("run", "job", refuse, ttl=HOUR, wait=timedelta(milliseconds=400))
    assert 0.35 < time.monotonic() - started < 0.8
    assert caught.value.owner_id == "you"
    with pytest.raises(IdempotencyInProgress):
        guards.call("run", "job", refuse, ttl=HOUR, wait=timedelta(0))


def test_begin_waits_too(guards: Guards, record: Record) -> None:
    with guards.begin("job", ttl=HOUR) as claim:
        waiting = guards.start("run", "job", refuse, ttl=HOUR, wait=timedelta.max)
        eventually(lambda: waiters(record))
        claim.complete(7)
    assert waiting.result(5) == 7
    assert guards.begin("job", ttl=HOUR, wait=WAIT).result == 7


def test_waiting_costs_the_server_nothing(
    guards: Guards, record: Record, commandstats: CommandStats
) -> None:
    claim = guards.begin("job", ttl=HOUR, renew=False)
    waiting = [guards.start("run", "job", refuse, ttl=HOUR, wait=WAIT) for _ in range(20)]
    eventually(lambda: waiters(record))
    time.sleep(0.3)
    commandstats.restart()
    time.sleep(1.0)
    assert commandstats.total("evalsha", "eval") == 0
    claim.complete(7)
    assert [one.result(5) for one in waiting] == [7] * 20


def test_a_waiter_for_the_lock_of_the_same_name_keeps_its_wake(
    make_guards: Callable[..., Guards], record: Record
) -> None:
    """A memo's waiter has a channel of its own: it cannot use up the wake of a lock's waiter."""
    guards = make_guards()
    assert record.names.wake != record.names.idem
    with guards.begin("job", ttl=HOUR) as claim:
        waiting = guards.start("run", "job", refuse, ttl=HOUR, wait=WAIT)
        eventually(lambda: waiters(record))
        [(_, listening)] = record.client.pubsub_numsub(record.names.wake)
        assert listening == 0
        claim.complete(7)
    assert waiting.result(5) == 7


async def test_a_waiter_that_is_cancelled_leaves_nothing(
    async_redis_client: Any, record: Record
) -> None:
    guard = AsyncIdempotencyGuard(async_redis_client)
    async with guard.begin("job", ttl=HOUR) as claim:
        waiting = asyncio.ensure_future(guard.run("job", refuse, ttl=HOUR, wait=WAIT))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await claim.complete(7)
    assert record.fields["ended"].count(":") == 1
    assert record.state == "done"
