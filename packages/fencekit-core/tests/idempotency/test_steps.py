"""The step-by-step calls: try_begin, try_begin_or_reclaim with a lock, mark_done, get_result."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from fencekit import AsyncDistributedLock, DistributedLock, FenceGate
from fencekit.errors import (
    IdempotencyExhausted,
    IdempotencyFailed,
    IdempotencyNotOwned,
    IdempotencyResultMissing,
)
from fencekit.guards import _REMEMBERED, _attempts
from fencekit.idempotency import AsyncIdempotencyGuard, IdempotencyGuard
from fencekit.protocol.claim import BeginOutcome
from harness.claims import Record
from harness.colours import Locks
from harness.guards import Guards
from harness.servers import Server
from harness.statistics import CommandStats

HOUR = timedelta(hours=1)
GRACE = timedelta(milliseconds=150)


@pytest.fixture
def locks(guards: Guards, server: Server) -> Iterator[Locks]:
    with Locks(guards.colour, server.url) as locks:
        yield locks


def try_pair(guards: Guards, lock: Any, key: str = "job") -> Any:
    return guards.call("try_begin_or_reclaim", key, lock=lock, lock_resource="resource", ttl=HOUR)


def test_begun_done_and_read(guards: Guards, record: Record) -> None:
    assert guards.call("try_begin", "job", ttl=HOUR) is True
    assert guards.call("try_begin", "job", ttl=HOUR) is False
    guards.call("mark_done", "job", result={"a": (1,)})
    assert guards.call("try_begin", "job", ttl=HOUR) is False
    assert guards.call("get_result", "job") == {"a": [1]}
    status = guards.call("status", "job")
    assert (status.state.value, status.attempts, status.encoding) == ("done", 1, "json")
    assert record.pttl > 3_500_000
    assert guards.call("clear", "job") is True
    assert guards.call("clear", "job") is False
    assert guards.call("status", "job") is None
    assert guards.call("try_begin", "job", ttl=HOUR) is True


def test_the_memo_is_kept_for_the_ttl_of_mark_done(guards: Guards, record: Record) -> None:
    guards.call("try_begin", "job", ttl=HOUR)
    guards.call("mark_done", "job", ttl=timedelta(seconds=50))
    assert 49_000 < record.pttl <= 50_000


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("nothing", "nothing is recorded"),
        ("running", "it is running"),
        ("failed", "it is failed"),
        ("done", "without one"),
    ],
)
def test_why_there_is_no_result(guards: Guards, state: str, reason: str) -> None:
    if state != "nothing":
        guards.call("try_begin", "job", ttl=HOUR)
    if state == "failed":
        guards.call("mark_failed", "job", "no", terminal=True)
    elif state == "done":
        guards.call("mark_done", "job")
    with pytest.raises(IdempotencyResultMissing, match=reason) as caught:
        guards.call("get_result", "job")
    assert reason in caught.value.reason


def test_none_is_a_result(guards: Guards) -> None:
    guards.call("try_begin", "job", ttl=HOUR)
    guards.call("mark_done", "job", result=None)
    assert guards.call("get_result", "job") is None


def test_completing_what_is_not_yours(
    make_guards: Callable[..., Guards], guards: Guards, record: Record
) -> None:
    other = make_guards()
    guards.call("try_begin", "job", ttl=HOUR)
    for call in (("mark_done", "job"), ("mark_failed", "job", "no"), ("give_back", "job")):
        with pytest.raises(IdempotencyNotOwned, match="not begun by this guard"):
            other.call(*call)
        with pytest.raises(IdempotencyNotOwned, match="not begun by this guard"):
            guards.start(*call).result(5)
    assert record.state == "running"
    record.lapse()
    record.begin("thief", owner="you")
    for call in (("mark_done", "job"), ("mark_failed", "job", "no"), ("give_back", "job")):
        with pytest.raises(IdempotencyNotOwned, match="took the work over"):
            guards.call(*call)
    assert record.fields["owner"] == "you"


def test_marking_done_again_is_silent_and_changes_nothing(guards: Guards) -> None:
    guards.call("try_begin", "job", ttl=HOUR)
    guards.call("mark_done", "job", result=1)
    guards.call("mark_done", "job", result=2)
    assert guards.call("get_result", "job") == 1


def test_a_failed_attempt_and_one_given_back(guards: Guards, record: Record) -> None:
    guards.call("try_begin", "job", ttl=HOUR)
    guards.call("mark_failed", "job", ValueError("no"))
    assert record.fields["error"] == "ValueError: no"
    assert guards.call("try_begin", "job", ttl=HOUR) is True
    assert record.fields["attempts"] == "2"
    guards.call("give_back", "job")
    assert record.fields["attempts"] == "1"
    assert guards.call("try_begin", "job", ttl=HOUR) is True


def test_the_pair_on_its_way(guards: Guards, locks: Locks) -> None:
    assert try_pair(guards, locks.lock) is BeginOutcome.BEGUN
    assert try_pair(guards, locks.lock) is BeginOutcome.IN_PROGRESS
    guards.call("mark_done", "job", result=1)
    assert try_pair(guards, locks.lock) is BeginOutcome.ALREADY_DONE


def test_idempotency_two_workers_one_pauses_before_its_lock(
    make_guards: Callable[..., Guards], locks: Locks
) -> None:
    """One begins and pauses before taking its lock, the other tries to reclaim: one run."""
    a, b = make_guards(), make_guards()
    runs = []
    assert try_pair(a, locks.lock) is BeginOutcome.BEGUN
    assert try_pair(b, locks.lock) is BeginOutcome.IN_PROGRESS, "the grace protects it"
    handle = locks.acquire("resource", ttl=timedelta(minutes=5))
    runs.append("a")
    assert try_pair(b, locks.lock) is BeginOutcome.IN_PROGRESS
    a.call("mark_done", "job", result=1)
    locks.release(handle)
    assert try_pair(b, locks.lock) is BeginOutcome.ALREADY_DONE
    assert runs == ["a"]


def test_without_a_grace_there_would_be_two_runs(
    make_guards: Callable[..., Guards], locks: Locks
) -> None:
    """The test above bites: as good as no grace, and the other takes over at once."""
    hasty = timedelta(milliseconds=1)
    a, b = make_guards(begin_grace=hasty), make_guards(begin_grace=hasty)
    assert try_pair(a, locks.lock) is BeginOutcome.BEGUN
    time.sleep(0.005)
    assert try_pair(b, locks.lock) is BeginOutcome.RECLAIMED


def test_reclaim_needs_the_grace_over_and_the_lock_free(
    make_guards: Callable[..., Guards], locks: Locks, record: Record
) -> None:
    a, b = make_guards(begin_grace=GRACE), make_guards(begin_grace=GRACE)
    assert try_pair(a, locks.lock) is BeginOutcome.BEGUN
    handle = locks.acquire("resource", ttl=timedelta(minutes=5))
    time.sleep(0.2)
    assert try_pair(b, locks.lock) is BeginOutcome.IN_PROGRESS, "the lock protects it"
    locks.release(handle)
    assert try_pair(b, locks.lock) is BeginOutcome.RECLAIMED
    assert try_pair(a, locks.lock) is BeginOutcome.IN_PROGRESS, "a new grace"
    with pytest.raises(IdempotencyNotOwned, match="took the work over"):
        a.call("mark_done", "job", result="late")
    b.call("mark_done", "job", result="B")
    assert a.call("get_result", "job") == "B"
    assert record.fields["attempts"] == "2"


def test_of_many_threads_that_reclaim_at_once_one_does(redis_client: Any) -> None:
    guard = IdempotencyGuard(redis_client, begin_grace=timedelta(milliseconds=50))
    lock = DistributedLock(redis_client)
    assert guard.try_begin("job", ttl=HOUR)
    time.sleep(0.08)
    slow = IdempotencyGuard(redis_client)
    found: list[BeginOutcome] = []
    barrier = threading.Barrier(12)

    def reclaim() -> None:
        barrier.wait()
        found.append(
            slow.try_begin_or_reclaim("job", lock=lock, lock_resource="resource", ttl=HOUR)
        )

    threads = [threading.Thread(target=reclaim) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(BeginOutcome.RECLAIMED) == 1
    assert found.count(BeginOutcome.IN_PROGRESS) == 11


async def test_of_many_tasks_that_reclaim_at_once_one_does(async_redis_client: Any) -> None:
    guard = AsyncIdempotencyGuard(async_redis_client, begin_grace=timedelta(milliseconds=50))
    lock = AsyncDistributedLock(async_redis_client)
    pair: dict[str, Any] = {"lock": lock, "lock_resource": "resource", "ttl": HOUR}
    assert await guard.try_begin_or_reclaim("job", **pair) is BeginOutcome.BEGUN
    await asyncio.sleep(0.08)
    slow = AsyncIdempotencyGuard(async_redis_client)
    found = await asyncio.gather(*(slow.try_begin_or_reclaim("job", **pair) for _ in range(12)))
    assert found.count(BeginOutcome.RECLAIMED) == 1
    assert found.count(BeginOutcome.IN_PROGRESS) == 11


def test_try_begin_alone_never_takes_over(guards: Guards, record: Record) -> None:
    assert guards.call("try_begin", "job", ttl=HOUR)
    record.lapse()
    assert guards.call("try_begin", "job", ttl=HOUR) is False
    guards.call("mark_done", "job")


def test_what_is_not_to_be_tried_any_more_is_raised(
    guards: Guards, locks: Locks, record: Record
) -> None:
    guards.call("try_begin", "job", ttl=HOUR)
    guards.call("mark_failed", "job", "no funds", terminal=True)
    assert guards.call("try_begin", "job", ttl=HOUR) is False
    with pytest.raises(IdempotencyFailed) as failed:
        try_pair(guards, locks.lock)
    assert failed.value.error == "no funds"
    record.clear()
    record.begin("a")
    record.fail("a")
    record.begin("b", max_attempts=1)
    with pytest.raises(IdempotencyExhausted):
        try_pair(guards, locks.lock)


def test_the_common_path_is_one_command_and_asks_no_lock(
    guards: Guards, locks: Locks, commandstats: CommandStats
) -> None:
    for key in ("warm-up", "job"):
        commandstats.restart()
        try_pair(guards, locks.lock, key)
    assert commandstats.total("evalsha") == 1
    commandstats.restart()
    try_pair(guards, locks.lock)
    assert commandstats.total("evalsha") == 1, "nor does one that is protected by its grace"
    guards.call("mark_done", "job")
    commandstats.restart()
    try_pair(guards, locks.lock)
    assert commandstats.total("evalsha") == 1


def test_the_quick_example_runs_as_written(redis_client: Any) -> None:
    guard, lock, fence = (
        IdempotencyGuard(redis_client),
        DistributedLock(redis_client),
        FenceGate(redis_client),
    )
    key, resource = "analysis:1", "analysis"

    def work() -> Any:
        outcome = guard.try_begin_or_reclaim(
            key, lock=lock, lock_resource=resource, ttl=timedelta(hours=24)
        )
        if outcome is BeginOutcome.ALREADY_DONE:
            try:
                return guard.get_result(key)
            except IdempotencyResultMissing:
                return None
        if outcome is BeginOutcome.IN_PROGRESS:
            return "in progress"
        handle = lock.acquire(resource, ttl=timedelta(minutes=5), owner_id=guard.owner_id)
        fence.set_if_fresh(handle.token, f"{resource}:status", "running")
        guard.mark_done(key, result={"rows": 3}, ttl=timedelta(hours=24))
        lock.release(handle)
        return "ran"

    assert work() == "ran"
    assert work() == {"rows": 3}
    assert redis_client.get("analysis:status") == b"running"


async def test_the_quick_examples_async_twin(async_redis_client: Any) -> None:
    guard, lock = (
        AsyncIdempotencyGuard(async_redis_client),
        AsyncDistributedLock(async_redis_client),
    )
    pair: dict[str, Any] = {"lock": lock, "lock_resource": "analysis", "ttl": timedelta(hours=24)}
    assert await guard.try_begin_or_reclaim("analysis:1", **pair) is BeginOutcome.BEGUN
    handle = await lock.acquire("analysis", ttl=timedelta(minutes=5), owner_id=guard.owner_id)
    await guard.mark_done("analysis:1", result={"rows": 3}, ttl=timedelta(hours=24))
    await lock.release(handle)
    assert await guard.try_begin_or_reclaim("analysis:1", **pair) is BeginOutcome.ALREADY_DONE
    assert await guard.get_result("analysis:1") == {"rows": 3}


def test_owner_ids(redis_client: Any, record: Record) -> None:
    guard = IdempotencyGuard(redis_client)
    seen = [guard.owner_id, guard.owner_id]
    thread = threading.Thread(target=lambda: seen.append(guard.owner_id))
    thread.start()
    thread.join()
    assert seen[0] == seen[1] != seen[2]
    named = IdempotencyGuard(redis_client, owner_id="worker-1")
    assert named.owner_id == "worker-1"
    named.try_begin("job", ttl=HOUR)
    assert record.fields["owner"] == "worker-1"


# Whose attempt it is: the execution context's.


async def test_tasks_that_share_a_guard_do_not_share_attempts(async_redis_client: Any) -> None:
    guard = AsyncIdempotencyGuard(async_redis_client)
    assert await guard.try_begin("parents", ttl=HOUR)

    async def sibling(key: str, other: str) -> None:
        assert await guard.try_begin(key, ttl=HOUR)
        await asyncio.sleep(0.01)
        with pytest.raises(IdempotencyNotOwned):
            await guard.mark_done(other)
        await guard.mark_done(key)

    await asyncio.gather(sibling("a", "b"), sibling("b", "a"))
    with pytest.raises(IdempotencyNotOwned):
        await guard.mark_done("a")

    async def child() -> None:
        await guard.mark_done("parents")

    await asyncio.create_task(child())


def test_a_thread_that_ended_leaves_nothing_to_a_later_one(redis_client: Any) -> None:
    guard = IdempotencyGuard(redis_client)
    outcomes: list[object] = []

    def begin() -> None:
        outcomes.append(guard.try_begin("job", ttl=HOUR))

    def finish() -> None:
        try:
            guard.mark_done("job")
        except IdempotencyNotOwned as error:
            outcomes.append(error.reason)

    for target in (begin, finish):  # the second often has the first one's thread id
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    assert outcomes == [True, "it was not begun by this guard in this thread or task"]


def test_what_a_context_remembers_is_bounded(redis_client: Any) -> None:
    guard = IdempotencyGuard(redis_client)

    def many() -> None:
        for n in range(_REMEMBERED + 10):
            assert guard.try_begin(f"k{n}", ttl=HOUR)
        assert len(_attempts.get()) == _REMEMBERED
        with pytest.raises(IdempotencyNotOwned):
            guard.mark_done("k0")
        guard.mark_done("k10")

    contextvars.Context().run(many)
    assert not _attempts.get().keys() & {(guard._serial, "k10")}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_not_begun_what_its_parent_began(redis_client: Any) -> None:
    guard = IdempotencyGuard(redis_client)
    guard.try_begin("job", ttl=HOUR)
    claim = guard.begin("claimed", ttl=HOUR)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            try:
                guard.mark_done("job")
            except IdempotencyNotOwned as error:
                status = 0 if "fork" in error.reason else 2
            try:
                claim.complete()
                status = 3
            except RuntimeError:
                pass
            with claim:  # what the child leaves is not the parent's end
                pass
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    guard.mark_done("job")
    claim.complete()
