"""What else the scripts of the lock and of its gate leave and answer.

Each of these was asked for by a mutant of the scripts that nobody had noticed (`hatch run mutate`).
"""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from fencekit.protocol import lock
from harness import broken
from harness.broken import bites
from harness.conditions import forbidden
from harness.lab import Lab


def test_a_value_may_live_for_a_single_millisecond(lab: Lab) -> None:
    token = lab.token(int(lab.acquire().token))
    lab.do(lab.write(token, "set"))
    assert lab.client.pttl(lab.target) == -1
    short = lab.write(token, "set")
    lab.client.eval(short.script.source, 3, *short.keys, *short.args[:-1], 1)
    assert lab.client.pttl(lab.target) in {0, 1, -2}


def test_the_lowest_token_is_known(lab: Lab) -> None:
    assert lab.current(remote=True) is None
    assert lab.passes(1, remote=True)
    assert lab.current(remote=True) == 1


def test_withdrawn_attempts_are_scored_by_the_servers_clock(lab: Lab) -> None:
    # Not at the beginning of a second, where much is alike.
    while lab.client.time()[1] < 400_000:
        pass
    claimant = lab.claimant()
    before = lab.client.time()
    lab.withdraw(claimant)
    after = lab.client.time()
    score = lab.client.zscore(lab.names.gone, claimant.attempt)
    assert before[0] * 1000 + before[1] // 1000 <= score <= after[0] * 1000 + after[1] // 1000


def test_a_holder_that_wrote_something_else_is_told_as_it_stands(lab: Lab) -> None:
    lab.client.set(lab.names.lock, "somebody", px=30_000)
    assert lab.arrive(lock.acquire_operation(lab.claimant()))[2] == b"somebody"
    lab.client.delete(lab.names.lock)
    lab.acquire("them")
    assert lab.arrive(lock.acquire_operation(lab.claimant()))[2] == b"them"


def test_what_is_read_is_what_is_on_record(lab: Lab) -> None:
    lab.acquire()
    lab.lapse()
    held = lab.acquire("you")
    record = lab.record
    raw = lab.client.eval(lock.INSPECT.source, 2, lab.names.lock, lab.names.fence)
    assert raw[0] == f"you:{held.claimant.attempt}:{int(held.token)}".encode()
    assert [each.decode() for each in raw[2:]] == [
        record[field] for field in ("last", "open", "lapsed", "floor")
    ]


def test_a_withdraw_leaves_the_token_that_it_freed_on_record(lab: Lab) -> None:
    grant = lab.acquire()
    lab.lose_record()
    lab.withdraw(grant.claimant)
    assert lab.record["last"] == str(int(grant.token))


FREES = pytest.mark.parametrize("how", ["release", "late release", "withdraw", "force"])


def free(lab: Lab, how: str) -> None:
    """Take the lock, and have it freed."""
    grant = lab.acquire(sends=2 if how == "late release" else 1)
    if how == "late release":
        # What it frees is the grant of a copy that came after the lease.
        acquire = lab.sent[-1]
        lab.lapse()
        assert lab.arrive(acquire)[0] == 1
    if how == "withdraw":
        assert lab.withdraw(grant.claimant)
    elif how == "force":
        assert lab.force()
    else:
        lab.release(grant)
    assert lab.holder is None


@FREES
def test_whatever_frees_a_lock_wakes_who_waits(lab: Lab, how: str) -> None:
    with lab.client.pubsub() as listener:
        listener.subscribe(lab.names.wake)
        assert listener.get_message(timeout=1.0)["type"] == "subscribe"
        free(lab, how)
        assert listener.get_message(timeout=1.0)["data"] == b"free"


@FREES
def test_a_wake_that_is_forbidden_undoes_nothing(lab: Lab, how: str) -> None:
    with forbidden(lab.client, "publish"):
        free(lab, how)
    lab.acquire("you")
    # The grants that were freed have not lapsed; the forced one has, and the one before its copy.
    assert bool(lab.record["lapsed"]) == (how in {"force", "late release"})


def test_a_forced_release_lowers_nothing(lab: Lab) -> None:
    ahead = int(lab.acquire().token) + 3_600_000_000
    lab.advance(ahead)
    assert lab.force()
    assert lab.record["last"] == str(ahead + 1)


def test_a_forced_release_forgets_nothing(lab: Lab) -> None:
    before = lab.acquire()
    lab.release(before)
    lab.acquire()
    assert lab.force()
    assert lab.release(before) is lock.Verdict.RELEASED_BEFORE


@bites(broken.QUICK_RELEASE_IS_ABOVE_THE_FLOOR)
def test_a_record_advanced_to_the_very_token_that_holds_still_has_one_verdict(lab: Lab) -> None:
    grant = lab.acquire()
    lab.lose_record()
    lab.advance(int(grant.token))
    assert lab.release(grant) is lock.Verdict.RELEASED
    assert lab.release(grant) is lock.Verdict.RELEASED_BEFORE


def test_so_it_has_when_it_was_renewed_in_between(lab: Lab) -> None:
    grant = lab.acquire()
    lab.lose_record()
    lab.advance(int(grant.token))
    assert lab.renew(grant)
    assert lab.release(grant) is lock.Verdict.RELEASED
    assert lab.release(grant) is lock.Verdict.RELEASED_BEFORE


def test_a_withdraw_is_remembered_though_the_memory_is_full(lab: Lab) -> None:
    claimant = lab.claimant()
    lab.client.config_set("maxmemory", 1)
    try:
        lab.withdraw(claimant)
    finally:
        lab.client.config_set("maxmemory", 0)
    assert lab.refuses_late(claimant)


def test_what_is_read_of_a_free_lock_tells_the_last_from_the_open(lab: Lab) -> None:
    grant = lab.acquire()
    lab.release(grant)
    raw = lab.client.eval(lock.INSPECT.source, 2, lab.names.lock, lab.names.fence)
    assert raw[:4] == [None, -2, str(int(grant.token)).encode(), b"0"]


@pytest.mark.parametrize("command", ["hmget", "hset"])
def test_a_record_that_may_not_be_touched_changes_nothing_about_the_release(
    lab: Lab, command: str
) -> None:
    grant = lab.acquire()
    with forbidden(lab.client, command):
        assert lab.release(grant) is lock.Verdict.RELEASED
    assert lab.holder is None


@pytest.mark.parametrize("command", ["hmget", "hset", "pexpire", "set"])
def test_a_grant_that_may_not_be_noted_holds_nothing(lab: Lab, command: str) -> None:
    claimant = lab.claimant()
    with forbidden(lab.client, command), pytest.raises(ResponseError, match=r"NOPERM|permission"):
        lab.arrive(lock.acquire_operation(claimant))
    assert lab.holder is None
    lab.release(lab.acquire())
