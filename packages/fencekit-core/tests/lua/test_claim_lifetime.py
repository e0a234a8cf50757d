"""How long a record lives: the memo from its completion, everything else at least its ttl."""

from __future__ import annotations

import pytest

from harness.claims import Record, holds_by

LATE_MS = 120_000


@pytest.mark.parametrize(
    ("lease", "ttl", "lives"), [(1_000, 50_000, 50_000), (50_000, 1_000, 50_000)]
)
def test_a_running_record_lives_its_ttl_and_its_lease(
    record: Record, lease: int, ttl: int, lives: int
) -> None:
    record.begin("a", lease=lease, ttl=ttl)
    assert lives - 1_000 < record.pttl <= lives


@holds_by("claim_renew", "live_at_least(idem, math.max(ttl_ms, lease_until - now))")
def test_renewing_keeps_the_record_alive(record: Record) -> None:
    record.begin("a", lease=1_000, ttl=1_000)
    record.renew("a", lease=60_000, ttl=1_000)
    assert record.pttl > 59_000
    record.renew("a", lease=60_000, ttl=90_000)
    assert record.pttl > 89_000


@holds_by("claim_complete", "'PEXPIRE', idem, ttl_ms", "'PEXPIRE', idem, 600000")
def test_the_memos_ttl_counts_from_completion(record: Record) -> None:
    record.begin("a", lease=500_000, ttl=500_000)
    record.complete("a", ttl=20_000)
    assert 19_000 < record.pttl <= 20_000


@pytest.mark.parametrize("end", ["fail", "release"])
def test_a_retryable_record_lives_at_least_its_ttl(record: Record, end: str) -> None:
    record.begin("a", ttl=10_000)
    getattr(record, end)("a", ttl=50_000)
    assert 49_000 < record.pttl <= 50_000
    record.begin("b", ttl=5_000)
    getattr(record, end)("b", ttl=5_000)
    assert record.pttl > 48_000, "never shortened"


def test_an_exhausted_record_lives_at_least_its_ttl(record: Record) -> None:
    record.begin("a", lease=1_000, ttl=1_000)
    record.lapse()
    record.begin("b", ttl=50_000, max_attempts=1)
    assert 49_000 < record.pttl <= 50_000


def test_a_memo_outlives_the_copies_of_a_withdrawn_begin(record: Record) -> None:
    record.withdraw("lost")
    record.begin("a", ttl=1_000)
    record.complete("a", ttl=1_000)
    assert LATE_MS - 1_000 < record.pttl <= LATE_MS
    assert record.begin("lost")[0] == "done"


def test_what_a_withdraw_or_a_clear_leaves_is_gone_in_two_minutes(record: Record) -> None:
    record.withdraw("a")
    assert LATE_MS - 1_000 < record.pttl <= LATE_MS
    record.drop()
    record.begin("a", ttl=9_000_000)
    record.withdraw("a")
    assert LATE_MS - 1_000 < record.pttl <= LATE_MS
    record.drop()
    record.begin("a", ttl=9_000_000)
    record.clear()
    assert LATE_MS - 1_000 < record.pttl <= LATE_MS


def test_every_operation_leaves_a_record_that_expires(record: Record) -> None:
    def expires() -> bool:
        return record.pttl != -1

    for label, end in enumerate(["complete", "fail", "release", "withdraw"]):
        assert record.withdraw(f"w{label}") == [0]
        assert expires()
        assert record.begin(str(label))[0] == "begun"
        assert expires()
        assert record.renew(str(label))[0] == 1
        assert expires()
        assert getattr(record, end)(str(label)) == [1]
        assert expires()
        record.clear()
        assert expires()
