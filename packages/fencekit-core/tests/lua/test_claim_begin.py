"""Every row of the record's table (docs: the idempotency record), asked of the script itself.

A test marked `holds_by` is run a second time without that rule of the Lua, and must fail then.
"""

from __future__ import annotations

import time

import pytest

from harness.claims import Record, attempt, holds_by


def test_nothing_there_begins_and_mints_a_fence(record: Record) -> None:
    before = time.time()
    code, token, number = record.begin("a", task_id="t1")
    assert (code, number) == ("begun", 1)
    assert before * 1e6 - 1e6 < int(token) < time.time() * 1e6 + 1e6
    fields = record.fields
    assert fields["state"] == "running"
    assert fields["owner"] == "me"
    assert fields["attempt"] == attempt("a")
    assert fields["attempts"] == "1"
    assert fields["last"] == fields["open"] == str(token)
    assert int(fields["floor"]) == int(token) - 1
    assert fields["task_id"] == "t1"
    assert record.passes(int(token))


def test_lease_until_is_the_servers_clock_in_milliseconds(record: Record) -> None:
    record.begin("a", lease=5_000)
    seconds, micros = record.client.time()
    now_ms = seconds * 1000 + micros // 1000
    assert 4_000 < int(record.fields["lease_until"]) - now_ms <= 5_000


@holds_by("claim_begin", "attempts = attempts + 1")
def test_retryable_begins_again_and_counts(record: Record) -> None:
    _, first, _ = record.begin("a")
    record.fail("a")
    code, second, number = record.begin("b")
    assert (code, number) == ("begun", 2)
    assert int(second) > int(first)
    assert not record.passes(int(first))
    assert record.passes(int(second))


@holds_by("claim_begin", "if held[2] == attempt and held[1] == owner then", "if false then")
def test_running_this_very_attempt_is_confirmed_with_the_same_fence(record: Record) -> None:
    first = record.begin("a", lease=1_000)
    until = int(record.fields["lease_until"])
    time.sleep(0.02)
    assert record.begin("a", lease=1_000) == first
    assert int(record.fields["lease_until"]) > until


@holds_by("claim_begin", "return {held[6] or 'begun',", "return {'begun',")
def test_a_repeated_begin_answers_as_the_first_did(record: Record) -> None:
    record.begin("a")
    record.lapse()
    first = record.begin("b")
    assert first[0] == "reclaimed"
    assert record.begin("b") == first


@holds_by("claim_begin", "math.max(lease_until, now + lease_ms)", "now + lease_ms")
def test_a_late_copy_of_begin_never_shortens_a_lease(record: Record) -> None:
    record.begin("a", lease=1_000)
    record.renew("a", lease=60_000)
    until = record.fields["lease_until"]
    record.begin("a", lease=1_000)
    assert record.fields["lease_until"] == until


@holds_by("claim_begin", "if how then", "if false then")
def test_a_late_copy_of_begin_from_a_failed_attempt_starts_nothing(record: Record) -> None:
    record.begin("a")
    record.fail("a")
    assert record.begin("a") == ["ended", "f"]
    assert record.state == "retryable"


def test_the_same_attempt_of_another_owner_is_another(record: Record) -> None:
    record.begin("a", owner="me")
    assert record.begin("a", owner="you")[0] == "running"


@pytest.mark.parametrize("end", ["complete", "fail", "release", "withdraw", "reclaim", "clear"])
def test_an_attempt_that_ended_starts_nothing(record: Record, end: str) -> None:
    record.begin("a")
    if end == "reclaim":
        record.lapse()
        record.begin("b")
    else:
        getattr(record, end)(*([] if end == "clear" else ["a"]))
    before = record.fields
    assert record.begin("a")[0] == ("done" if end == "complete" else "ended")
    assert record.fields == before


@holds_by("claim_begin", "if now < lease_until then", "if false then")
def test_running_with_a_live_lease_is_in_progress(record: Record) -> None:
    record.begin("a", owner="me", lease=10_000, task_id="t1")
    reply = record.begin("b", owner="you")
    assert reply == ["running", reply[1], "me", attempt("a"), "t1"]
    assert 9_000 < reply[1] <= 10_000
    assert record.fields["attempt"] == attempt("a")


@holds_by("claim_begin", "began = 'reclaimed'", "began = 'begun'")
def test_running_with_its_lease_over_is_reclaimed(record: Record) -> None:
    _, first, _ = record.begin("a", owner="me")
    record.lapse()
    code, second, number = record.begin("b", owner="you")
    assert (code, number) == ("reclaimed", 2)
    assert int(second) > int(first)
    assert record.fields["ended"] == f"{attempt('a')}:x "
    assert record.fields["open"] == str(second)
    assert not record.passes(int(first)), "the old attempt is shut out at once"


@holds_by("claim_begin", "elseif reclaim ~= 'any' and reclaim ~= held[2] then", "elseif false then")
def test_a_begin_that_may_reclaim_nobody_leaves_a_lapsed_attempt(record: Record) -> None:
    record.begin("a")
    record.lapse()
    assert record.begin("b", reclaim="none")[:2] == ["running", 0]
    assert record.begin("b", reclaim=attempt("other"))[:2] == ["running", 0]
    assert record.begin("b", reclaim=attempt("a"))[0] == "reclaimed"


@holds_by("claim_begin", "max_attempts > 0 and attempts >= max_attempts", "false")
def test_a_lapsed_attempt_was_the_last_one(record: Record) -> None:
    _, token, _ = record.begin("a", max_attempts=1)
    record.lapse()
    assert record.begin("b", max_attempts=1) == ["exhausted", "", 1]
    assert record.state == "exhausted"
    assert not record.passes(int(token)), "the fence has advanced"
    assert record.complete("a") == [0, "e", "exhausted"]
    assert record.state == "exhausted"


@holds_by(
    "claim_begin",
    "'state', 'exhausted', 'last', token,",
    "'state', 'exhausted',",
)
def test_exhausting_advances_the_fence(record: Record) -> None:
    _, token, _ = record.begin("a")
    record.lapse()
    record.begin("b", max_attempts=1)
    assert not record.passes(int(token))


def test_a_retryable_record_has_no_attempt_left(record: Record) -> None:
    for label in "ab":
        assert record.begin(label, max_attempts=2)[0] == "begun"
        record.fail(label, f"Oops {label}")
    assert record.begin("c", max_attempts=2) == ["exhausted", "Oops b", 2]
    # It is a state, not an opinion: a caller who would allow more gets the same answer.
    assert record.begin("d", max_attempts=9) == ["exhausted", "Oops b", 2]
    record.clear()
    assert record.begin("e", max_attempts=2)[0] == "begun"


def test_done_answers_with_the_memo(record: Record) -> None:
    record.begin("a", task_id="t1")
    record.complete("a", b'{"n":1}', published="p")
    assert record.begin("b") == ["done", "json", '{"n":1}', "p", "t1"]
    record.lapse()
    assert record.begin("c")[0] == "done", "a lease means nothing any more"


def test_failed_for_good_answers_with_the_error(record: Record) -> None:
    record.begin("a")
    record.fail("a", "CardDeclined: no", terminal=True)
    assert record.begin("b") == ["failed", "CardDeclined: no", 1]
    assert record.state == "failed"


@holds_by(
    "claim_begin",
    "if fingerprint ~= '' and known ~= '' and fingerprint ~= known then",
    "if false then",
)
@pytest.mark.parametrize("state", ["running", "lapsed", "retryable", "done", "failed", "exhausted"])
def test_another_fingerprint_is_neither_run_nor_replayed(record: Record, state: str) -> None:
    record.begin("a", fingerprint="f1", max_attempts=1)
    if state == "lapsed":
        record.lapse()
    elif state in {"retryable", "exhausted"}:
        record.fail("a")
    elif state == "done":
        record.complete("a")
    elif state == "failed":
        record.fail("a", terminal=True)
    if state == "exhausted":
        record.begin("b", fingerprint="f1", max_attempts=1)
    before = record.fields
    assert record.begin("c", fingerprint="f2", max_attempts=1) == ["mismatch"]
    assert record.fields == before


def test_idempotency_powertools_5705(record: Record) -> None:
    """aws-powertools/powertools-lambda-typescript#5705: an identical replay is no mismatch."""
    record.begin("a", fingerprint="f1")
    record.complete("a", "7")
    assert record.begin("b", fingerprint="f1")[:3] == ["done", "json", "7"]


def test_a_payload_that_was_not_shown_is_not_compared(record: Record) -> None:
    record.begin("a", fingerprint="")
    record.fail("a")
    assert record.begin("b", fingerprint="f1")[0] == "begun"
    record.fail("b")
    assert record.begin("c", fingerprint="")[0] == "begun"
    record.fail("c")
    assert record.fields["fingerprint"] == "f1", "what is known is kept"
    assert record.begin("d", fingerprint="f2") == ["mismatch"]


def test_tokens_rise_even_after_the_record_is_lost(record: Record) -> None:
    last = 0
    for n in range(20):
        _, token, _ = record.begin(str(n))
        assert int(token) > last
        last = int(token)
        record.drop()


def test_a_token_far_ahead_of_the_clock_still_rises_and_is_written_exactly(record: Record) -> None:
    record.begin("a")
    record.fail("a")
    ahead = 2**53 - 2**32
    record.client.hset(record.names.idem, "last", ahead)
    assert record.begin("b")[1] == ahead + 1
    record.complete("b")
    assert record.last == ahead + 2
