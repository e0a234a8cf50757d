"""`guard.begin`: claims, how a `with` ends them, and what they tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencekit import FencedOutError, FenceGate
from fencekit.errors import (
    IdempotencyNotOwned,
    IdempotencyPayloadMismatch,
    IdempotencyResultMissing,
)
from fencekit.hooks import ClaimBegun, ClaimDone, ClaimOutcome, FenceKitHooks
from fencekit.protocol.claim import Announcement, BeginOutcome
from fencekit.protocol.memo import Memo
from harness.claims import Record
from harness.guards import Guards
from harness.waiting import eventually

HOUR = timedelta(hours=1)
SHORT = timedelta(milliseconds=300)


def test_an_attempt_from_begin_to_replay(guards: Guards, record: Record) -> None:
    with guards.begin("job", ttl=HOUR, task_id="t1") as claim:
        assert (claim.key, claim.outcome) == ("job", BeginOutcome.BEGUN)
        assert (claim.started, claim.replayed, claim.attempt) == (True, False, 1)
        assert (claim.fence, claim.fence.resource, claim.fence.record) == (
            record.last,
            "job",
            "claim",
        )
        assert claim.retry_after is None
        assert claim.error is None
        assert claim.task_id == "t1"
        assert not claim.lost.is_set()
        claim.check()
        with pytest.raises(IdempotencyResultMissing):
            _ = claim.result
        claim.complete({"n": (1,)})
        assert claim.result == {"n": [1]}
    assert record.state == "done"
    replay = guards.begin("job", ttl=HOUR)
    assert (replay.started, replay.replayed, replay.result) == (False, True, {"n": [1]})
    assert replay.outcome is BeginOutcome.ALREADY_DONE
    assert replay.task_id == "t1"
    with replay:
        pass


def test_a_claim_that_is_in_the_way(guards: Guards, record: Record) -> None:
    record.begin("a", owner="you", lease=9_000)
    with guards.begin("job", ttl=HOUR) as claim:
        assert claim.outcome is BeginOutcome.IN_PROGRESS
        assert not claim.started
        assert claim.owner_id == "you"
        assert timedelta(seconds=8) < claim.retry_after <= timedelta(seconds=9)
        for act in (lambda: claim.fence, lambda: claim.lost, claim.check, claim.complete):
            with pytest.raises(IdempotencyNotOwned, match="did not begin"):
                act()
    assert record.state == "running"


def test_a_claim_that_took_over_says_so(guards: Guards, record: Record) -> None:
    record.begin("a", owner="you")
    record.lapse()
    with guards.begin("job", ttl=HOUR) as claim:
        assert claim.outcome is BeginOutcome.RECLAIMED
        assert (claim.started, claim.reclaimed, claim.attempt) == (True, True, 2)
        claim.complete()
    assert not guards.begin("job", ttl=HOUR).reclaimed
    with guards.begin("other", ttl=HOUR) as claim:
        assert not claim.reclaimed
        claim.release()


def test_an_exception_records_a_failed_attempt(guards: Guards, record: Record) -> None:
    with pytest.raises(KeyError), guards.begin("job", ttl=HOUR):
        raise KeyError("k")
    assert record.state == "retryable"
    assert record.fields["error"] == "KeyError: 'k'"
    assert guards.begin("job", ttl=HOUR, renew=False).attempt == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_so_does_what_is_no_exception(
    guards: Guards, record: Record, error: type[BaseException]
) -> None:
    with pytest.raises(error), guards.begin("job", ttl=HOUR):
        raise error
    assert record.state == "retryable"
    assert record.fields["attempts"] == "1"


def test_a_with_that_is_left_without_a_verdict_raises(guards: Guards, record: Record) -> None:
    with (
        pytest.raises(RuntimeError, match=r"without complete\(\), fail\(\) or release\(\)"),
        guards.begin("job", ttl=HOUR),
    ):
        pass
    assert record.state == "retryable"
    assert record.fields["attempts"] == "1"


@pytest.mark.parametrize(
    ("end", "state", "attempts"),
    [("complete", "done", "1"), ("fail", "retryable", "1"), ("release", "retryable", "0")],
)
def test_each_end_is_recorded_and_silent_when_repeated(
    guards: Guards, record: Record, end: str, state: str, attempts: str
) -> None:
    args = ["Oops"] if end == "fail" else []
    with guards.begin("job", ttl=HOUR) as claim:
        getattr(claim, end)(*args)
        before = record.fields
        getattr(claim, end)(*args)
        for other in {"complete", "fail", "release"} - {end}:
            with pytest.raises(IdempotencyNotOwned, match="already"):
                getattr(claim, other)(*(["Oops"] if other == "fail" else []))
        with pytest.raises(IdempotencyNotOwned):
            claim.check()
    assert record.fields == before
    assert (before["state"], before["attempts"]) == (state, attempts)


def test_an_error_after_complete_leaves_the_work_done(guards: Guards, record: Record) -> None:
    claim = guards.begin("job", ttl=HOUR)
    with pytest.raises(KeyError), claim:
        _complete_and_raise(claim)
    assert record.state == "done"


def _complete_and_raise(claim: Any) -> None:
    claim.complete(7)
    raise KeyError


def test_a_terminal_failure(guards: Guards) -> None:
    with guards.begin("job", ttl=HOUR) as claim:
        claim.fail("no funds", terminal=True)
    with guards.begin("job", ttl=HOUR) as claim:
        assert claim.outcome is BeginOutcome.FAILED
        assert (claim.error, claim.attempt) == ("no funds", 1)


def test_another_payload_raises(guards: Guards) -> None:
    with guards.begin("job", ttl=HOUR, payload=[1]) as claim:
        with pytest.raises(IdempotencyPayloadMismatch):
            guards.begin("job", ttl=HOUR, payload=[2])
        claim.complete()


def test_idempotency_powertools_5714(make_guards: Callable[..., Guards], record: Record) -> None:
    """A's lease is 0.2 s, A sleeps; B reclaims and completes; A completes, or fails."""
    a, b = make_guards(), make_guards()
    late = a.begin("job", ttl=HOUR, lease=timedelta(milliseconds=200), renew=False)
    time.sleep(0.3)
    with b.begin("job", ttl=HOUR) as claim:
        assert claim.outcome is BeginOutcome.RECLAIMED
        assert claim.attempt == 2
        assert late.lost.is_set()
        with pytest.raises(IdempotencyNotOwned):
            late.check()
        claim.complete("B")
    with pytest.raises(IdempotencyNotOwned, match="took the work over"), late:
        late.complete("A")
    assert b.call("get_result", "job") == "B"
    with pytest.raises(IdempotencyNotOwned):
        late.fail("A failed")
    assert b.call("get_result", "job") == "B"
    assert record.fields["attempts"] == "2"


def test_a_fence_that_was_replaced_is_refused(
    make_guards: Callable[..., Guards], redis_client: Any
) -> None:
    a, b = make_guards(), make_guards()
    gate = FenceGate(redis_client)
    late = a.begin("job", ttl=HOUR, lease=timedelta(milliseconds=50), renew=False)
    gate.set_if_fresh(late.fence, "target", "A")
    time.sleep(0.08)
    with b.begin("job", ttl=HOUR) as claim:
        with pytest.raises(FencedOutError):
            gate.set_if_fresh(late.fence, "target", "late")
        gate.set_if_fresh(claim.fence, "target", "B")
        claim.complete()
    with pytest.raises(FencedOutError):
        gate.set_if_fresh(claim.fence, "target", "after the end")
    assert redis_client.get("target") == b"B"


def test_completing_after_the_lease_when_nobody_took_over(guards: Guards, record: Record) -> None:
    with guards.begin("job", ttl=HOUR, lease=timedelta(milliseconds=50), renew=False) as claim:
        time.sleep(0.08)
        assert claim.lost.is_set()
        claim.complete(7)
    assert record.state == "done"


def test_the_lease_is_renewed_while_the_work_runs(make_guards: Callable[..., Guards]) -> None:
    a, b = make_guards(), make_guards()
    with a.begin("job", ttl=HOUR, lease=SHORT) as claim:
        for _ in range(8):
            time.sleep(0.1)
            assert b.begin("job", ttl=HOUR).outcome is BeginOutcome.IN_PROGRESS
            claim.check()
        claim.complete()


def test_without_renewal_it_is_not_and_lost_is_set_in_time(
    make_guards: Callable[..., Guards],
) -> None:
    a, b = make_guards(), make_guards()
    claim = a.begin("job", ttl=HOUR, lease=SHORT, renew=False)
    while not claim.lost.is_set():
        assert b.begin("job", ttl=HOUR).outcome is BeginOutcome.IN_PROGRESS
        time.sleep(0.01)
    eventually(lambda: b.begin("job", ttl=HOUR, renew=False).started, timeout=0.5)


def test_renewing_by_hand(guards: Guards, record: Record) -> None:
    with guards.begin("job", ttl=HOUR, lease=timedelta(milliseconds=200), renew=False) as claim:
        time.sleep(0.1)
        claim.renew()
        time.sleep(0.13)
        claim.check()
        claim.renew(timedelta(seconds=9))
        until = int(record.fields["lease_until"])
        claim.renew(timedelta(milliseconds=10))
        assert int(record.fields["lease_until"]) == until, "never shortened"
        time.sleep(0.05)
        claim.check()
        claim.complete()


def test_a_renewal_that_is_refused_sets_lost(guards: Guards, record: Record) -> None:
    with guards.begin("job", ttl=HOUR, lease=SHORT) as claim:
        record.lapse()
        record.begin("thief", owner="you")
        eventually(claim.lost.is_set, timeout=1.0)
        with pytest.raises(IdempotencyNotOwned):
            claim.check()
    assert record.fields["owner"] == "you"


def test_renewing_what_is_lost_raises_and_sets_lost(guards: Guards, record: Record) -> None:
    with guards.begin("job", ttl=HOUR, renew=False) as claim:
        record.lapse()
        record.begin("thief", owner="you")
        with pytest.raises(IdempotencyNotOwned, match="took the work over"):
            claim.renew()
        assert claim.lost.is_set()


def test_a_completed_claim_is_not_lost_by_a_renewal_that_crossed_it(guards: Guards) -> None:
    claim = guards.begin("job", ttl=HOUR)
    inner = getattr(claim, "claim", claim)
    claim.complete()
    inner.lose()
    assert not claim.lost.is_set()


def test_many_at_once(guards: Guards, record: Record) -> None:
    record.begin("a", owner="you")
    done = guards.begin("done", ttl=HOUR)
    done.complete("memo")
    keys = ["k1", "job", "done", "k2"]
    claims = guards.call("begin_many", keys, ttl=HOUR, payloads=[1, None, None, 2])
    assert [claim.key for claim in claims] == keys
    assert [claim.outcome.value for claim in claims] == [
        "begun",
        "in_progress",
        "already_done",
        "begun",
    ]
    assert claims[2].result == "memo"
    guards.call("complete_many", [(claims[0], "r1"), (claims[3], "r2")])
    assert [guards.call("get_result", key) for key in ("k1", "k2")] == ["r1", "r2"]
    again = guards.call("begin_many", ["k1", "k2"], ttl=HOUR, payloads=[1, 3])
    assert [claim.outcome.value for claim in again] == ["already_done", "mismatch"]
    assert guards.call("begin_many", [], ttl=HOUR) == []


def test_completing_many_tells_each_and_raises_the_first_error(
    guards: Guards, record: Record
) -> None:
    claims = guards.call("begin_many", ["k1", "job", "k2"], ttl=HOUR, renew=False)
    record.lapse()
    record.begin("thief", owner="you")
    pairs = [(claim, claim.key) for claim in claims]
    with pytest.raises(IdempotencyNotOwned) as caught:
        guards.call("complete_many", pairs)
    assert caught.value.key == "job"
    assert [guards.call("get_result", key) for key in ("k1", "k2")] == ["k1", "k2"]


def test_one_key_twice_among_many_begins_once(guards: Guards) -> None:
    claims = guards.call("begin_many", ["k", "k"], ttl=HOUR, renew=False)
    assert [claim.started for claim in claims] == [True, False]


def test_hooks_are_told(make_guards: Callable[..., Guards]) -> None:
    told: list[Any] = []
    hooks = FenceKitHooks(on_begin=told.append, on_outcome=told.append, on_done=told.append)
    guards = make_guards(hooks=hooks)
    with guards.begin("job", ttl=HOUR) as claim:
        claim.complete(7)
    guards.begin("job", ttl=HOUR)
    begun, outcome, done, replayed = told
    assert begun == ClaimBegun(key="job", attempt=1, fence=int(claim.fence), reclaimed=False)
    assert outcome == ClaimOutcome(key="job", outcome="begun")
    assert done == ClaimDone(
        key="job", fence=int(claim.fence), ended="completed", ran_ms=done.ran_ms
    )
    assert 0 < done.ran_ms < 5_000
    assert replayed == ClaimOutcome(key="job", outcome="already_done")


def test_an_own_encoding_obeys_what_the_guard_may_keep(make_guards: Callable[..., Guards]) -> None:
    for options, marker in (
        ({"store_result": False}, "not-kept"),
        ({"max_result_bytes": 3}, "too-large"),
    ):
        guards = make_guards(**options)
        with guards.begin(marker, ttl=HOUR) as claim:
            claim.complete_memo(Memo("yaml", b"a: 1"))
        assert guards.begin(marker, ttl=HOUR).memo == Memo(marker, b"")


def test_an_own_encoding_is_stored_as_it_is(guards: Guards) -> None:
    with guards.begin("job", ttl=HOUR) as claim:
        claim.complete_memo(Memo("yaml", b"\x00a: 1"), published=b"once")
    replay = guards.begin("job", ttl=HOUR)
    assert replay.memo == Memo("yaml", b"\x00a: 1")
    assert replay.published == b"once"
    with pytest.raises(IdempotencyResultMissing, match="'yaml'"):
        _ = replay.result


def test_a_result_is_announced_in_the_step_that_completes(
    guards: Guards, redis_client: Any
) -> None:
    with guards.begin("job", ttl=HOUR) as claim:
        assert not claim.announced
        claim.complete_memo(Memo("yaml", b"1"), announcement=Announcement("notice", b"told", 9_000))
    assert claim.announced
    assert redis_client.get("notice") == b"told"
    assert 8_000 < redis_client.pttl("notice") <= 9_000
    replay = guards.begin("job", ttl=HOUR)
    assert replay.memo == Memo("yaml", b"1")
    assert not replay.announced


def test_who_was_replaced_announces_nothing(guards: Guards, redis_client: Any) -> None:
    late = guards.begin("job", ttl=HOUR, lease=timedelta(milliseconds=50), renew=False)
    time.sleep(0.06)
    with guards.begin("job", ttl=HOUR) as claim:
        claim.complete(1)
    with pytest.raises(IdempotencyNotOwned):
        late.complete_memo(Memo("yaml", b"0"), announcement=Announcement("notice", "late", 0))
    assert not late.announced
    assert redis_client.get("notice") is None
