"""Commands that arrive twice, or after everything else: none of them changes what stands.

The broken variants show that each test bites: the same test, on the script without its rule.
"""

from __future__ import annotations

import pytest

from harness.claims import Record, attempt, holds_by

ENDINGS = ["complete", "fail", "release"]


@holds_by(
    "claim_withdraw", "local ended = with_ended(r[6], attempt, 'w')", "local ended = r[6] or ''"
)
def test_a_withdrawn_begin_that_arrives_late_starts_nothing(record: Record) -> None:
    assert record.withdraw("a") == [0]
    assert record.begin("a") == ["ended", "w"]
    assert record.state is None
    assert record.begin("b")[2] == 1


@holds_by("claim_withdraw", "math.max(tonumber(r[4]) - 1, 0)", "tonumber(r[4])")
def test_a_withdrawn_attempt_is_uncounted_and_the_next_begins_at_once(record: Record) -> None:
    _, token, _ = record.begin("a", max_attempts=1)
    assert record.withdraw("a") == [1]
    assert record.withdraw("a") == [0]
    assert not record.passes(int(token))
    code, _, number = record.begin("b", max_attempts=1)
    assert (code, number) == ("begun", 1)


def test_a_withdrawn_first_begin_leaves_no_payload_and_no_state(record: Record) -> None:
    record.begin("a", fingerprint="f1")
    record.withdraw("a")
    assert set(record.fields) == {
        "last",
        "open",
        "floor",
        "ended",
        "attempts",
        "lease_until",
    }
    assert record.begin("b", fingerprint="f2")[0] == "begun"


def test_a_withdrawn_later_begin_leaves_payload_and_error(record: Record) -> None:
    record.begin("a", fingerprint="f1")
    record.fail("a", "Oops")
    record.begin("b", fingerprint="f1")
    record.withdraw("b")
    assert record.fields["error"] == "Oops"
    assert record.fields["attempts"] == "1"
    assert record.begin("c", fingerprint="f2") == ["mismatch"]


@pytest.mark.parametrize("state", ["running", "done", "failed", "exhausted"])
def test_withdrawing_what_never_began_leaves_the_others_alone(record: Record, state: str) -> None:
    record.begin("a", max_attempts=1)
    if state == "done":
        record.complete("a")
    elif state == "failed":
        record.fail("a", terminal=True)
    elif state == "exhausted":
        record.lapse()
        record.begin("x", max_attempts=1)
    before, pttl = record.fields, record.pttl
    assert record.withdraw("b") == [0]
    after = record.fields
    assert after.pop("ended") == before.pop("ended", "") + f"{attempt('b')}:w "
    assert after == before
    if state != "running":
        assert record.pttl <= pttl, "a memo is not kept longer for it"


@holds_by("claim_withdraw", "if how_ended(r[6], attempt) then", "if false then")
def test_a_withdraw_that_arrives_twice_is_noted_once(record: Record) -> None:
    record.begin("a")
    record.withdraw("a")
    before = record.fields
    record.withdraw("a")
    assert record.fields == before


@pytest.mark.parametrize("late", ENDINGS)
@pytest.mark.parametrize(
    "then", ["nothing", "begin", "begin and complete", "clear", "clear and begin"]
)
@pytest.mark.parametrize("end", ENDINGS)
def test_a_late_copy_of_an_end_changes_nothing(
    record: Record, end: str, then: str, late: str
) -> None:
    record.begin("a")
    getattr(record, end)("a")
    if "clear" in then:
        record.clear()
    if "begin" in then:
        record.begin("b", owner="you")
    if "complete" in then:
        record.complete("b", '"B"', owner="you")
    before = record.fields
    getattr(record, late)("a")
    record.renew("a")
    record.begin("a")
    assert record.fields == before


@holds_by("claim_clear", "ended = with_ended(ended, r[2], 'k')")
def test_the_attempt_that_was_cleared_away_stays_away(record: Record) -> None:
    _, token, _ = record.begin("a")
    assert record.clear() == [1]
    assert record.begin("a") == ["ended", "k"]
    assert record.complete("a") == [0, "k", ""]
    assert record.renew("a") == [0, "k", ""]
    assert not record.passes(int(token))
    code, later, number = record.begin("b")
    assert (code, number) == ("begun", 1)
    assert int(later) > int(token)


@holds_by("claim_clear", "if not r[1] or last ~= seen then", "if not r[1] then")
def test_a_late_copy_of_clear_leaves_a_later_record_alone(record: Record) -> None:
    record.begin("a")
    record.complete("a")
    seen = record.last
    assert record.clear(seen) == [1]
    before = record.fields
    assert record.clear(seen) == [1], "a repeated command"
    assert record.fields == before
    record.begin("b")
    assert record.clear(seen) == [0]
    assert record.state == "running"


def test_two_swaps_of_one_lapsed_attempt_succeed_once(record: Record) -> None:
    record.begin("a")
    record.lapse()
    seen = attempt("a")
    assert record.begin("b", reclaim=seen)[0] == "reclaimed"
    assert record.begin("c", reclaim=seen)[0] == "running"
    record.lapse()
    assert record.begin("c", reclaim=seen)[:2] == ["running", 0]
