"""What else the scripts of the record leave and answer.

Each of these was asked for by a mutant of the scripts that nobody had noticed (`hatch run mutate`).
"""

from __future__ import annotations

import pytest

from harness.claims import Record, attempt

AHEAD = 2**52
LATE_MS = 120_000


def test_a_reclaims_token_rises_above_a_record_that_is_ahead_of_the_clock(record: Record) -> None:
    record.begin("a")
    record.client.hset(record.names.idem, "last", AHEAD)
    record.lapse()
    assert record.begin("b")[:2] == ["reclaimed", AHEAD + 1]


def test_a_begin_that_is_repeated_keeps_the_record_alive(record: Record) -> None:
    record.begin("a", lease=1_000, ttl=10_000)
    record.begin("a", lease=1_000, ttl=60_000)
    assert record.pttl > 59_000
    record.begin("a", lease=90_000, ttl=1_000)
    assert record.pttl > 89_000


def test_whoever_may_not_reclaim_is_told_who_runs_it(record: Record) -> None:
    record.begin("a", owner="them", task_id="message")
    record.lapse()
    assert record.begin("b", reclaim="none") == ["running", 0, "them", attempt("a"), "message"]
    assert record.begin("b", reclaim=attempt("c"))[:2] == ["running", 0]
    assert record.begin("b", reclaim=attempt("a"))[0] == "reclaimed"


def test_a_message_without_an_id_is_told_as_such(record: Record) -> None:
    record.begin("a")
    record.client.hdel(record.names.idem, "task_id")
    record.lapse()
    assert record.begin("b", reclaim="none")[4] == ""


def test_a_second_attempt_is_protected_for_its_lease(record: Record) -> None:
    record.begin("a")
    record.release("a")
    record.begin("b", lease=30_000)
    state, left = record.begin("c")[:2]
    assert state == "running"
    assert 29_000 < left <= 30_000


def test_the_floor_stays_where_the_record_began(record: Record) -> None:
    token = record.begin("a")[1]
    record.release("a")
    record.begin("b")
    assert record.fields["floor"] == str(token - 1)


def test_nothing_is_open_once_the_record_is_exhausted_or_cleared(record: Record) -> None:
    record.begin("a")
    record.lapse()
    assert record.begin("b", max_attempts=1)[0] == "exhausted"
    assert record.fields["open"] == "0"
    record.clear()
    assert record.fields["open"] == "0"


def test_a_begin_that_was_withdrawn_unbegun_is_remembered_as_long_as_a_copy_may_come(
    record: Record,
) -> None:
    record.withdraw("lost")
    record.begin("a", lease=1_000, ttl=1_000)
    assert record.pttl > LATE_MS - 1_000
    record.fail("a", ttl=1_000)
    assert record.begin("lost") == ["ended", "w"]


def test_clearing_again_is_clearing_before_and_nothing_else_is(record: Record) -> None:
    assert record.clear(0) == [0], "there is nothing"
    record.begin("a")
    seen = record.last
    assert record.clear(seen - 1) == [0]
    assert record.clear(seen) == [1]
    assert record.clear(seen) == [1]
    assert record.clear(seen - 1) == [0]


def test_nothing_is_left_of_a_lease_that_is_over(record: Record) -> None:
    record.begin("a")
    record.lapse()
    assert record.read()[3] == 0


@pytest.mark.parametrize("end", ["complete", "fail", "release", "withdraw"])
def test_how_earlier_attempts_ended_is_kept_when_the_next_one_ends(
    record: Record, end: str
) -> None:
    record.withdraw("lost")
    record.begin("a")
    getattr(record, end)("a")
    assert f"{attempt('lost')}:w" in record.fields["ended"]


@pytest.mark.parametrize(
    ("end", "word"),
    [("complete", b"done"), ("fail", b"free"), ("release", b"free"), ("withdraw", b"free")],
)
def test_every_end_wakes_who_waits(record: Record, end: str, word: bytes) -> None:
    with record.client.pubsub() as listener:
        listener.subscribe(record.names.idem)
        assert listener.get_message(timeout=1.0)["type"] == "subscribe"
        record.begin("a")
        getattr(record, end)("a")
        assert listener.get_message(timeout=1.0)["data"] == word


def test_a_clear_wakes_who_waits(record: Record) -> None:
    with record.client.pubsub() as listener:
        listener.subscribe(record.names.idem)
        assert listener.get_message(timeout=1.0)["type"] == "subscribe"
        record.begin("a")
        record.clear()
        assert listener.get_message(timeout=1.0)["data"] == b"free"


def test_nothing_is_open_once_the_begin_is_withdrawn(record: Record) -> None:
    record.begin("a")
    record.withdraw("a")
    assert record.fields["open"] == "0"


def test_the_floor_is_the_first_tokens_where_only_withdrawn_begins_were_known(
    record: Record,
) -> None:
    record.withdraw("lost")
    token = record.begin("a")[1]
    assert record.fields["floor"] == str(token - 1)


def test_a_release_takes_back_its_own_attempt_and_no_other(record: Record) -> None:
    record.begin("a")
    record.fail("a")
    record.begin("b")
    record.release("b")
    assert record.fields["attempts"] == "1"
    assert record.begin("c")[2] == 2


def test_a_withdrawn_reclaim_leaves_what_the_attempt_before_it_left(record: Record) -> None:
    record.begin("a", fingerprint="f")
    record.lapse()
    record.begin("b", fingerprint="f")
    record.withdraw("b")
    assert (record.state, record.fields["attempts"]) == ("retryable", "1")
    assert record.begin("c", fingerprint="g")[0] == "mismatch"


def test_a_renewed_record_lives_as_long_as_asked_for_and_no_longer(record: Record) -> None:
    record.begin("a", lease=1_000, ttl=10_000)
    record.renew("a", lease=1_000, ttl=20_000)
    assert 19_000 < record.pttl <= 20_000
    record.renew("a", lease=90_000, ttl=1_000)
    assert 89_000 < record.pttl <= 90_000
