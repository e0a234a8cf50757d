"""What an older release wrote is read, and its processes and ours work side by side on one Redis.

What each release takes, answers and stores is frozen beside this file. Where today's code differs,
these tests fail, and say that this is a decision: processes of both releases run beside each other
while a fleet is updated, so a new format must be read before it is written, by a release earlier.
They bite: the last test changes a script of today in each way that matters.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fencekit import (
    DistributedLock,
    FencedOutError,
    FenceGate,
    FenceToken,
    IdempotencyFailed,
    IdempotencyGuard,
)
from fencekit.celery.published import is_published
from fencekit.fifo import SyncFifoLock
from versions.life import (
    FROZEN,
    Life,
    Profile,
    freeze,
    profiles,
    restore,
    scripts,
    spelling,
    timeless,
)

LEASE = timedelta(seconds=30)
every_release = pytest.mark.parametrize("release", FROZEN)


def decision(release: str, what: str) -> str:
    return (
        f"{what} is not what {release} has, and this is a decision: processes of both run on one "
        "Redis while a fleet is updated. If it is meant, say in docs/decisions/ how the two get "
        "along and in the changelog what to update first, and freeze the new format under the "
        "name of the release that writes it (python -m versions NAME); a frozen file is never "
        "edited."
    )


@every_release
def test_keys_and_channels_are_spelled_as_they_were(release: str) -> None:
    spelled, was = spelling(), FROZEN[release]["spelling"]
    assert was.items() <= spelled.items(), decision(release, "the spelling of a key")


@every_release
def test_scripts_take_and_answer_what_they_did(release: str) -> None:
    now = scripts()
    for name, was in FROZEN[release]["scripts"].items():
        assert name in now, decision(release, f"that there is no {name}.lua")
        for what in ("keys", "args", "answers"):
            assert now[name][what] == was[what], decision(release, f"{what} of {name}.lua")


@every_release
def test_what_is_written_is_what_was_written(redis_client: Any, release: str) -> None:
    now, was = freeze(redis_client), FROZEN[release]
    for found, expected in zip(timeless(now["store"]), timeless(was["store"]), strict=True):
        assert found == expected, decision(release, f"what is stored under {expected[0]}")
    for found, expected in zip(now["answers"], was["answers"], strict=True):
        assert found == expected, decision(release, f"an answer of {expected[0]}.lua")


@every_release
@pytest.mark.parametrize("turn", ["old first", "new first", "old begins", "new begins"])
def test_old_and_new_lead_one_life_together(redis_client: Any, release: str, turn: str) -> None:
    """Every command in turn by the other release; or one begins what the other ends."""
    old, new = FROZEN[release]["scripts"], scripts()
    count = 0

    def source(name: str) -> str:
        nonlocal count
        count += 1
        if turn.endswith("first"):
            ours = count % 2 == (turn == "new first")
        else:
            first = name in {"lock_acquire", "claim_begin", "fifo_acquire", "fill_begin"}
            ours = first == (turn == "new begins")
        return str((new if ours else old)[name]["source"])

    life = Life(redis_client, source, lambda name: old[name]["args"])
    life.lead()
    for found, expected in zip(life.answers, FROZEN[release]["answers"], strict=True):
        assert found == expected, decision(release, f"an answer of {expected[0]}.lua")
    was = [each for each in timeless(FROZEN[release]["store"]) if each[0] != ":profile:9"]
    assert timeless(life.store()) == was, decision(release, "what is stored")


# -- records as they were left, read by today's classes -----------------------------------------


@pytest.fixture(params=FROZEN)
def left_behind(request: pytest.FixtureRequest, redis_client: Any) -> Any:
    """A client of a server on which a release has left its records."""
    restore(redis_client, FROZEN[request.param]["store"])
    return redis_client


def _token(left_behind: Any, name: str) -> int:
    return int(left_behind.hget(f"fencekit:{{{name}}}:fence", "last"))


def test_a_lock_that_was_left_is_seen_held_judged_and_freed(left_behind: Any) -> None:
    lock, gate = DistributedLock(left_behind), FenceGate(left_behind)
    held = lock.inspect("held")
    assert held is not None
    assert (held.owner_id, held.token) == ("me", _token(left_behind, "held"))
    assert lock.try_acquire("held", ttl=LEASE) is None
    token = FenceToken(_token(left_behind, "held"), resource="held")
    gate.set_if_fresh(token, "held:status", "still")
    assert lock.force_release("held")
    with pytest.raises(FencedOutError):
        gate.set_if_fresh(token, "held:status", "too late")
    assert int(lock.acquire("held", ttl=LEASE).token) > int(token)


def test_tokens_rise_above_what_was_left(left_behind: Any) -> None:
    lock = DistributedLock(left_behind)
    for name in ("freed", "forced", "lifted"):
        was = _token(left_behind, name)
        handle = lock.acquire(name, ttl=LEASE)
        assert int(handle.token) > was
        lock.release(handle)


def test_a_fence_that_was_left_ahead_of_the_clock_is_not_undercut(left_behind: Any) -> None:
    ahead = 2**52
    left_behind.hset("fencekit:{freed}:fence", "last", ahead)
    assert int(DistributedLock(left_behind).acquire("freed", ttl=LEASE).token) == ahead + 1


def test_records_that_were_left_are_answered_from(left_behind: Any) -> None:
    guard = IdempotencyGuard(left_behind)
    assert guard.run("done", lambda: pytest.fail("ran again"), ttl=LEASE) == {"rows": 42}
    with pytest.raises(IdempotencyFailed) as failed:
        guard.run("failed", lambda: pytest.fail("ran again"), ttl=LEASE)
    assert failed.value.error == "Oops: no"
    found = {
        name: getattr(guard.status(name), "state", None)
        for name in ("done", "failed", "running", "retryable", "cleared", "withdrawn")
    }
    assert {name: state and state.value for name, state in found.items()} == {
        "done": "done",
        "failed": "failed",
        "running": "running",
        "retryable": "retryable",
        "cleared": None,
        "withdrawn": None,
    }
    for name in ("retryable", "cleared", "withdrawn"):
        assert guard.run(name, lambda: "run", ttl=LEASE) == "run"


def test_a_claim_that_was_left_running_is_taken_over_when_its_lease_is_over(
    left_behind: Any,
) -> None:
    left_behind.hset("fencekit:{running}:idem", "lease_until", "1")
    was = int(left_behind.hget("fencekit:{running}:idem", "last"))
    claim = IdempotencyGuard(left_behind).begin("running", ttl=LEASE)
    assert claim.outcome.value == "reclaimed"
    assert int(claim.fence) > was
    claim.complete("now")


def test_what_was_published_is_known(left_behind: Any) -> None:
    status = IdempotencyGuard(left_behind).status("done")
    assert status is not None
    assert is_published(status.published, "task-1")
    assert not is_published(status.published, "task-2")


def test_a_queue_that_was_left_is_counted_and_taken_up(left_behind: Any) -> None:
    lock = SyncFifoLock(left_behind, "queued", lease_ms=2000, alive_ms=2000)
    assert lock.stats().waiting == 1
    # Both processes that were in it are gone: the holder's lease ends, the waiter's window is over.
    left_behind.delete("fencekit:{queued}:lock")
    left_behind.zadd("fencekit:{queued}:members", {"fencekit:proc:p": 1})
    was = _token(left_behind, "queued")
    lease = lock.acquire(5.0)
    assert int(lease.fence) > was
    lock.release(lease)


def test_cache_entries_that_were_left_are_hits(left_behind: Any) -> None:
    assert profiles(left_behind).get(9) == Profile(name="Ada")


# -- the tests above bite -----------------------------------------------------------------------

CHANGES = {
    "the value of a lock": ("lock_acquire", "owner .. ':' .. attempt", "attempt .. ':' .. owner"),
    "a field of the fence": ("lock_acquire", "'lapsed', lapsed", "'lapses', lapsed"),
    "a state of a record": ("claim_complete", "'state', 'done'", "'state', 'complete'"),
    "an answer": ("claim_begin", "return {'done', r[5]", "return {'finished', r[5]"),
    "how an attempt ended": ("claim_fail", "'f'", "'x'"),
    "an entry of the queue": ("fifo_acquire", "'w', waiter, 'c'", "'w', waiter, 'channel'"),
    "a ticket of the cache": ("fill_begin", "':'", "'/'"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_format_is_told_to_be_a_decision(
    redis_client: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    script, rule, instead = CHANGES[change]
    changed = scripts()
    assert rule in changed[script]["source"], "the script has changed: so must this"
    changed[script]["source"] = changed[script]["source"].replace(rule, instead)
    monkeypatch.setattr("versions.life.scripts", lambda: changed)
    with pytest.raises(AssertionError, match="this is a decision"):
        test_what_is_written_is_what_was_written(redis_client, "0.1.0")


def test_an_argument_more_and_another_key_are_told_to_be_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = scripts()
    changed["lock_acquire"]["args"].append("priority")
    monkeypatch.setitem(globals(), "scripts", lambda: changed)
    with pytest.raises(AssertionError, match=r"args of lock_acquire.*this is a decision"):
        test_scripts_take_and_answer_what_they_did("0.1.0")
    elsewhere = {**spelling(), "lock": "a/b:lock"}
    monkeypatch.setitem(globals(), "spelling", lambda: elsewhere)
    with pytest.raises(AssertionError, match="this is a decision"):
        test_keys_and_channels_are_spelled_as_they_were("0.1.0")
