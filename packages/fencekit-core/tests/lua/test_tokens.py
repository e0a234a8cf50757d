"""Fencing tokens: protocol.md §2, line by line.

Each test is shown failing on the script without its rule (harness/broken.py).
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from fencekit.protocol.token import MAX_SHOWN_TOKEN, check_token_value
from harness import broken
from harness.broken import bites

if TYPE_CHECKING:
    from harness.lab import Lab


def test_a_token_is_the_servers_time_in_microseconds(lab: Lab) -> None:
    seconds, microseconds = lab.client.time()
    before = seconds * 1_000_000 + microseconds
    token = int(lab.acquire().token)
    seconds, microseconds = lab.client.time()
    assert before <= token <= seconds * 1_000_000 + microseconds


def test_tokens_of_a_name_rise_strictly(lab: Lab) -> None:
    tokens = []
    for _ in range(50):
        grant = lab.acquire()
        tokens.append(int(grant.token))
        lab.release(grant)
    assert tokens == sorted(set(tokens))


@bites(broken.RISES_WITH_THE_RECORD)
def test_tokens_rise_though_the_clock_was_set_back(lab: Lab) -> None:
    lab.release(lab.acquire())
    ahead = lab.step_clock_back()
    for expected in range(ahead + 1, ahead + 4):
        grant = lab.acquire()
        assert int(grant.token) == expected
        lab.release(grant)


def test_tokens_rise_by_jumps_when_the_clock_is_set_forward(lab: Lab) -> None:
    first = lab.acquire()
    lab.release(first)
    time.sleep(0.01)
    assert int(lab.acquire().token) >= int(first.token) + 10_000


@bites(broken.RISES_WITH_THE_CLOCK)
def test_tokens_rise_after_the_record_is_lost(lab: Lab) -> None:
    before = []
    for _ in range(5):
        grant = lab.acquire()
        before.append(int(grant.token))
        lab.release(grant)
    lab.lose_record()
    assert int(lab.acquire().token) > max(before)


def test_a_token_lifted_above_the_clock_is_as_durable_as_its_record(lab: Lab) -> None:
    lab.release(lab.acquire())
    ahead = lab.step_clock_back()
    lab.lose_record()
    assert int(lab.acquire().token) < ahead, "what the docs refuse to promise"


def test_a_record_expires_its_retention_after_its_lock(lab: Lab) -> None:
    lab.acquire(ttl_ms=1_000, retention_ms=5_000)
    assert 5_000 < lab.client.pttl(lab.names.fence) <= 6_000
    other = lab.fresh()
    other.acquire(ttl_ms=5_000, retention_ms=1_000)
    assert 5_000 < other.client.pttl(other.names.fence) <= 6_000


def test_a_record_ahead_of_the_clock_is_kept_as_long_by_who_keeps_records_for_less(
    lab: Lab,
) -> None:
    """Red where it expires with the shortest retention: the next token is below the last."""
    lab.release(lab.acquire())
    ahead = lab.step_clock_back()
    grant = lab.acquire(ttl_ms=60_000, retention_ms=1_000)
    assert int(grant.token) > ahead
    assert lab.client.pttl(lab.names.fence) > 3_000_000
    lab.force()
    assert lab.client.pttl(lab.names.fence) > 3_000_000
    lab.release(lab.acquire(ttl_ms=1_000, retention_ms=1_000))
    assert lab.client.pttl(lab.names.fence) > 3_000_000


@bites(broken.GRANTED_BEYOND_THE_LEASE)
def test_a_record_outlives_a_release_at_the_end_of_its_lease_by_its_retention(lab: Lab) -> None:
    lab.release(lab.acquire(ttl_ms=60_000, retention_ms=100_000))
    assert 150_000 < lab.client.pttl(lab.names.fence) <= 160_000


@bites(broken.RENEWED_BEYOND_THE_LEASE)
def test_a_record_outlives_a_release_after_a_renewal_by_its_retention(lab: Lab) -> None:
    grant = lab.acquire(ttl_ms=60_000, retention_ms=100_000)
    lab.renew(grant, ttl_ms=120_000)
    lab.release(grant)
    assert 210_000 < lab.client.pttl(lab.names.fence) <= 220_000


def test_nothing_is_left_of_a_name_no_longer_used(lab: Lab) -> None:
    lab.release(lab.acquire(sends=2, ttl_ms=50, retention_ms=50))
    keys = lab.client.keys(f"fencekit:{{{lab.names.name}}}:*")
    assert all(0 < lab.client.pttl(key) <= 120_000 for key in keys)
    time.sleep(0.12)  # beyond lease and retention
    left = lab.client.keys(f"fencekit:{{{lab.names.name}}}:*")
    assert left == [lab.names.gone.encode()], "withdrawn attempts, for two minutes"


@bites(broken.ALL_DIGITS)
def test_tokens_are_written_in_digits(lab: Lab) -> None:
    grant = lab.acquire()
    token = str(int(grant.token))
    assert lab.record["last"] == lab.record["open"] == token
    assert lab.holder == f"me:{grant.claimant.attempt}:{token}"


@pytest.mark.parametrize("last", [2**52, 2**53 - 2**32, 2**53 - 3])
def test_tokens_are_exact_up_to_2_to_the_53(lab: Lab, last: int) -> None:
    lab.client.hset(lab.names.fence, mapping={"last": last, "open": 0, "lapsed": "", "floor": 0})
    grant = lab.acquire()
    assert int(grant.token) == last + 1
    assert json.loads(json.dumps(grant.token)) == float(grant.token) == last + 1
    lab.renew(grant)
    assert lab.release(grant).name == "RELEASED"
    assert lab.record["last"] == str(last + 1)


def test_the_time_stays_below_the_highest_token_that_may_be_shown_until_2255() -> None:
    in_2255 = int((2255 - 1970) * 365.2425 * 86_400 * 1_000_000)
    assert in_2255 < MAX_SHOWN_TOKEN < 2**53 - 1
    assert check_token_value(in_2255) == in_2255


@bites(broken.ADVANCE_ONLY_LIFTS)
def test_advance_never_lowers(lab: Lab) -> None:
    grant = lab.acquire()
    assert lab.advance(5) == int(grant.token)
    assert lab.record["last"] == str(int(grant.token))
    assert lab.advance(int(grant.token)) == int(grant.token)


def test_the_next_token_is_above_what_the_fence_was_advanced_to(lab: Lab) -> None:
    at_least = int(time.time() * 1_000_000) + 10_000_000
    assert lab.advance(at_least) == at_least
    assert int(lab.acquire().token) == at_least + 1
    assert lab.advance(at_least + 100) == at_least + 100


def test_an_advance_creates_a_record_that_expires(lab: Lab) -> None:
    assert lab.advance(7) == 7
    assert lab.record == {"last": "7", "open": "0", "lapsed": "", "floor": "7"}
    assert 0 < lab.client.pttl(lab.names.fence) <= 3_600_000


def test_an_advance_does_not_shorten_the_records_life(lab: Lab) -> None:
    lab.acquire(ttl_ms=1_000, retention_ms=7_200_000)
    lab.advance(7)
    assert lab.client.pttl(lab.names.fence) > 7_000_000


def test_the_highest_advance_leaves_four_billion_tokens(lab: Lab) -> None:
    lab.advance(MAX_SHOWN_TOKEN)
    grant = lab.acquire()
    assert int(grant.token) == MAX_SHOWN_TOKEN + 1
    lab.release(grant)
    assert int(lab.acquire().token) == MAX_SHOWN_TOKEN + 2
