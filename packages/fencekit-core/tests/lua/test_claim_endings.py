"""Ending and renewing an attempt: owner-checked, true however often the command arrives."""

from __future__ import annotations

import time
from typing import Any

import pytest

from harness.claims import Record, attempt, holds_by

ENDINGS = ["complete", "announce", "fail", "release"]
STATES = {"complete": "done", "announce": "done", "fail": "retryable", "release": "retryable"}
DONE = ["complete", "announce"]
HOW = {"complete": "c", "announce": "c", "fail": "f", "release": "r"}


@pytest.mark.parametrize("end", ENDINGS)
def test_each_ends_the_attempt_and_answers_the_same_again(record: Record, end: str) -> None:
    _, token, _ = record.begin("a")
    assert getattr(record, end)("a")[0] == 1
    fields = record.fields
    assert fields["state"] == STATES[end]
    assert fields["open"] == "0"
    assert getattr(record, end)("a") == [2]
    assert record.fields == fields
    assert not record.passes(int(token)), "the finished attempt is shut out"


@holds_by("claim_complete", "'last', r[5] + 1,")
def test_complete_advances_the_fence(record: Record) -> None:
    _, token, _ = record.begin("a")
    record.complete("a")
    assert record.last > int(token)


@holds_by("claim_fail", "'last', r[5] + 1,")
def test_fail_advances_the_fence(record: Record) -> None:
    _, token, _ = record.begin("a")
    record.fail("a")
    assert record.last > int(token)


@holds_by("claim_release", "'last', r[5] + 1,")
def test_release_advances_the_fence(record: Record) -> None:
    _, token, _ = record.begin("a")
    record.release("a")
    assert record.last > int(token)


@pytest.mark.parametrize("second", ENDINGS)
@pytest.mark.parametrize("first", ENDINGS)
def test_an_attempt_ends_once(record: Record, first: str, second: str) -> None:
    record.begin("a")
    getattr(record, first)("a")
    fields = record.fields
    expected = [2] if HOW[first] == HOW[second] else [0, HOW[first], STATES[first]]
    assert getattr(record, second)("a") == expected
    assert record.fields == fields


@holds_by("claim_complete", "if not running then", "if r[1] ~= 'running' then")
def test_complete_is_owner_checked(record: Record) -> None:
    record.begin("a", owner="me")
    assert record.complete("a", owner="you") == [0, "", "running"]
    assert record.complete("b", owner="me") == [0, "", "running"]
    assert record.state == "running"


@holds_by("claim_fail", "if not running then", "if r[1] ~= 'running' then")
def test_fail_is_owner_checked(record: Record) -> None:
    record.begin("a", owner="me")
    assert record.fail("b") == [0, "", "running"]
    assert record.state == "running"


@holds_by("claim_release", "if not running then", "if r[1] ~= 'running' then")
def test_release_is_owner_checked(record: Record) -> None:
    record.begin("a", owner="me")
    assert record.release("b") == [0, "", "running"]
    assert record.state == "running"


def test_complete_is_accepted_after_the_lease_if_nobody_reclaimed(record: Record) -> None:
    record.begin("a", lease=10)
    time.sleep(0.03)
    assert record.complete("a", "7") == [1]
    assert record.begin("b")[:3] == ["done", "json", "7"]


@pytest.mark.parametrize("end", ENDINGS)
@pytest.mark.parametrize("b_completes", [True, False])
def test_idempotency_powertools_5714(record: Record, end: str, b_completes: bool) -> None:  # noqa: FBT001
    """aws-powertools/powertools-lambda-typescript#5714: whoever was reclaimed changes nothing."""
    record.begin("a", owner="A")
    record.lapse()
    assert record.begin("b", owner="B")[0] == "reclaimed"
    if b_completes:
        assert record.complete("b", '"B"', owner="B") == [1]
    fields = record.fields
    assert getattr(record, end)("a", owner="A") == [0, "x", fields["state"]]
    assert record.renew("a", owner="A") == [0, "x", fields["state"]]
    assert record.fields == fields
    if b_completes:
        assert record.begin("c")[2] == '"B"'


@holds_by(
    "claim_complete",
    "return r[1] == 'running' and r[2] == owner and r[3] == attempt, r",
    "return r[1] == 'running' and r[2] == owner, r",
)
def test_one_owner_with_two_attempts_is_told_apart(record: Record) -> None:
    record.begin("a")
    record.lapse()
    record.begin("b")
    assert record.complete("a")[0] == 0
    assert record.state == "running"


@holds_by("claim_release", "math.max(tonumber(r[4]) - 1, 0)", "tonumber(r[4])")
def test_release_gives_the_attempt_back_uncounted(record: Record) -> None:
    for n in range(5):
        assert record.begin(f"r{n}", max_attempts=1) == ["begun", record.last, 1]
        record.release(f"r{n}")
    assert record.fields["attempts"] == "0"


def test_fail_counts_and_keeps_the_error_until_it_is_done(record: Record) -> None:
    record.begin("a")
    record.fail("a", "Oops: one")
    assert record.fields["error"] == "Oops: one"
    assert record.begin("b")[2] == 2
    assert record.fields["error"] == "Oops: one"
    record.complete("b")
    assert "error" not in record.fields


@pytest.mark.parametrize("end", ENDINGS)
def test_no_record_is_lost_and_none_is_made(record: Record, end: str) -> None:
    record.begin("a")
    record.drop()
    assert getattr(record, end)("a") == [0, "", ""]
    assert record.renew("a") == [0, "", ""]
    assert record.fields == {}, "it fails closed: nobody knows who ran since"


@holds_by("claim_renew", "math.max(until_now, now + lease_ms)", "now + lease_ms")
def test_renew_only_extends(record: Record) -> None:
    record.begin("a", lease=60_000)
    before = record.fields["lease_until"]
    code, left = record.renew("a", lease=1_000)
    assert code == 1
    assert 59_000 < left <= 60_000
    assert record.fields["lease_until"] == before
    assert record.renew("a", lease=90_000)[1] > 89_000


def test_renew_is_accepted_after_the_lease_if_nobody_reclaimed(record: Record) -> None:
    record.begin("a")
    record.lapse()
    assert record.renew("a", lease=5_000) == [1, 5_000]
    assert record.begin("b")[0] == "running"


@pytest.mark.parametrize("end", ENDINGS)
def test_renew_after_the_end_is_lost(record: Record, end: str) -> None:
    record.begin("a")
    getattr(record, end)("a")
    assert record.renew("a") == [0, HOW[end], STATES[end]]


def test_sixteen_ended_attempts_are_remembered_and_no_more(record: Record) -> None:
    for n in range(20):
        record.begin(f"n{n}")
        record.fail(f"n{n}")
    entries = record.fields["ended"].split()
    assert entries == [f"{attempt(f'n{n}')}:f" for n in range(4, 20)]
    assert record.fail("n4") == [2]
    assert record.fail("n3") == [0, "", "retryable"]


def test_whoever_waits_is_woken_by_each_end(record: Record) -> None:
    listener = record.client.pubsub()
    listener.subscribe(record.names.idem)
    assert listener.get_message(timeout=1)["type"] == "subscribe"
    heard = []
    for end in ENDINGS[::-1]:
        record.begin(end)
        getattr(record, end)(end)
        heard.append(_message(listener))
        if end in DONE:
            record.clear()
            heard.append(_message(listener))
    listener.close()
    assert heard == [b"free", b"free", b"done", b"free", b"done", b"free"]


def _message(listener: Any) -> Any:
    message = listener.get_message(timeout=1)
    return message and message["data"]


def test_read_tells_the_state_and_changes_nothing(record: Record) -> None:
    assert record.read()[0] is None
    _, token, _ = record.begin("a", lease=9_000, ttl=70_000, task_id="t")
    before = record.fields
    state, owner, attempts, left, last, encoding, error, task_id, _, pttl = record.read()
    assert (state, owner, attempts, last) == ("running", "me", "1", str(token))
    assert (encoding, error, task_id) == (None, None, "t")
    assert 8_000 < left <= 9_000
    assert 69_000 < pttl <= 70_000
    assert record.fields == before
    record.complete("a", published="p")
    reply = record.read()
    assert (reply[0], reply[3], reply[5], reply[8]) == ("done", 0, "json", "p")
