"""What a release is answered: protocol.md §3, line by line, however often its command arrives.

Each test is shown failing on the script without its rule (harness/broken.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fencekit.protocol.lock import Grant, Verdict
from harness import broken
from harness.broken import bites

if TYPE_CHECKING:
    from harness.lab import Lab

RELEASED, BEFORE, LOST = Verdict.RELEASED, Verdict.RELEASED_BEFORE, Verdict.LOST


def lapsed(lab: Lab, owner: str = "me") -> Grant:
    """Return a grant whose lease has run out."""
    grant = lab.acquire(owner)
    lab.lapse()
    return grant


# -- the lock is mine ---------------------------------------------------------------------------


def test_a_lock_that_is_mine_is_released(lab: Lab) -> None:
    grant = lab.acquire()
    assert lab.release(grant) is RELEASED
    assert lab.holder is None
    assert lab.record["open"] == "0"
    assert lab.record["last"] == str(int(grant.token))


@bites(broken.RELEASE_IS_CHECKED)
@pytest.mark.parametrize("who", ["you", "me"])
def test_a_lock_that_is_anothers_is_left_alone(lab: Lab, who: str) -> None:
    old = lapsed(lab)
    lab.acquire(who)
    holder = lab.holder
    assert lab.release(old) is LOST
    assert lab.holder == holder


# -- released before ----------------------------------------------------------------------------


@bites(broken.RELEASE_LOOKS_AT_THE_RECORD)
def test_a_repeated_release_was_released_before(lab: Lab) -> None:
    grant = lab.acquire()
    assert [lab.release(grant) for _ in range(3)] == [RELEASED, BEFORE, BEFORE]


def test_a_repeated_release_was_released_before_whoever_came_since(lab: Lab) -> None:
    grant = lab.acquire()
    lab.release(grant)
    successor = lapsed(lab, "you")
    assert lab.release(grant) is BEFORE
    third = lab.acquire("they")
    assert lab.release(grant) is BEFORE
    assert lab.release(third) is RELEASED
    assert [lab.release(one) for one in (grant, successor, third)] == [BEFORE, LOST, BEFORE]


# -- anything else ------------------------------------------------------------------------------


@bites(broken.OPEN_IS_LOST)
def test_a_lease_that_ran_out_is_lost_before_anybody_came(lab: Lab) -> None:
    grant = lapsed(lab)
    assert [lab.release(grant) for _ in range(2)] == [LOST, LOST]


@bites(broken.LAPSED_IS_NOTED, broken.LAPSED_IS_LOST)
def test_a_lease_that_ran_out_is_lost_after_the_successor_released(lab: Lab) -> None:
    grant = lapsed(lab)
    assert lab.release(lab.acquire("you")) is RELEASED
    assert [lab.release(grant) for _ in range(2)] == [LOST, LOST]


def test_without_a_record_it_is_lost(lab: Lab) -> None:
    grant = lapsed(lab)
    lab.lose_record()
    assert lab.release(grant) is LOST


@bites(broken.UNMINTED_IS_UNKNOWN)
def test_a_token_that_the_record_has_not_heard_of_is_lost(lab: Lab) -> None:
    grant = lapsed(lab)
    lab.client.hset(lab.names.fence, mapping={"last": 7, "open": 0, "lapsed": "", "floor": 6})
    assert lab.release(grant) is LOST


def test_an_unknown_token_leaves_the_record_alone(lab: Lab) -> None:
    grant = lapsed(lab)
    lab.acquire("you")
    before = lab.state
    lab.release(grant)
    assert lab.state == before


# -- the lapsed list and the floor --------------------------------------------------------------


@bites(broken.LAPSED_IS_BOUNDED, broken.TRIMMING_RAISES_THE_FLOOR)
def test_32_lapsed_tokens_are_remembered_and_the_floor_rises_over_the_rest(lab: Lab) -> None:
    grants = [lapsed(lab) for _ in range(40)]
    last = lab.acquire()
    tokens = [str(int(grant.token)) for grant in grants]
    assert lab.record["lapsed"].split(",") == tokens[8:]
    assert lab.record["floor"] == tokens[7]
    assert {lab.release(grant) for grant in grants} == {LOST}
    assert lab.release(last) is RELEASED


@bites(broken.FLOOR_IS_UNKNOWN)
def test_below_the_floor_nothing_is_known(lab: Lab) -> None:
    released = lab.acquire()
    lab.release(released)
    for _ in range(34):
        lapsed(lab)
    lab.acquire()
    assert int(lab.record["floor"]) > int(released.token)
    assert lab.release(released) is LOST, "it fails closed"


def test_the_list_is_written_only_when_a_grant_finds_an_open_one(lab: Lab) -> None:
    for _ in range(3):
        lab.release(lab.acquire())
    assert lab.record["lapsed"] == ""


@bites(broken.GRANT_SETS_THE_FLOOR)
def test_a_record_that_a_grant_creates_knows_nothing_before_it(lab: Lab) -> None:
    old = lapsed(lab)
    lab.lose_record()
    grant = lab.acquire("you")
    assert lab.record["floor"] == str(int(grant.token) - 1)
    assert lab.release(old) is LOST
    assert [lab.release(grant) for _ in range(2)] == [RELEASED, BEFORE]


@bites(broken.ADVANCE_SETS_THE_FLOOR)
def test_a_record_that_an_advance_creates_knows_nothing_up_to_it(lab: Lab) -> None:
    old = lapsed(lab)
    lab.lose_record()
    lab.advance(int(old.token) + 5)
    assert lab.release(old) is LOST


@bites(broken.FIRST_GRANT_SETS_THE_FLOOR, broken.QUICK_GRANT_IS_ABOVE_THE_FLOOR)
@pytest.mark.parametrize("by", ["advance", "a remote gate"])
def test_the_first_grant_on_a_record_made_by_something_else_knows_nothing_before_it(
    lab: Lab, by: str
) -> None:
    old = lapsed(lab)
    lab.lose_record()
    if by == "advance":
        lab.advance(5)
    else:
        lab.passes(5, remote=True)
    grant = lab.acquire("you")
    assert lab.release(old) is LOST
    assert [lab.release(grant) for _ in range(2)] == [RELEASED, BEFORE]


@bites(broken.ADVANCE_LIFTS_THE_FLOOR)
def test_a_second_advance_knows_no_more_than_the_first(lab: Lab) -> None:
    old = lapsed(lab)
    lab.lose_record()
    lab.advance(5)
    lab.advance(int(old.token) + 5)
    assert lab.release(old) is LOST
    lab.acquire("you")
    assert lab.release(old) is LOST


def test_an_advance_forgets_nothing(lab: Lab) -> None:
    released, lost = lab.acquire(), None
    lab.release(released)
    lost = lapsed(lab)
    held = lab.acquire("you")
    lab.advance(int(held.token) + 1_000_000_000)
    assert [lab.release(one) for one in (released, lost)] == [BEFORE, LOST]
    assert [lab.release(held) for _ in range(2)] == [RELEASED, BEFORE]


# -- a record lost while the lock is held ---------------------------------------------------------


@bites(broken.RELEASE_RESTORES, broken.QUICK_RELEASE_IS_OF_THE_LAST)
def test_a_release_restores_a_lost_record_and_its_repetition_has_the_same_verdict(
    lab: Lab,
) -> None:
    grant = lab.acquire()
    lab.lose_record()
    assert [lab.release(grant) for _ in range(3)] == [RELEASED, BEFORE, BEFORE]
    assert lab.release(lab.acquire("you")) is RELEASED
    assert lab.release(grant) is BEFORE


@bites(broken.RENEW_RESTORES)
def test_a_renewal_restores_a_lost_record(lab: Lab) -> None:
    grant = lab.acquire()
    lab.lose_record()
    assert lab.renew(grant)
    token = str(int(grant.token))
    assert lab.record == {
        "last": token,
        "open": token,
        "lapsed": "",
        "floor": str(int(grant.token) - 1),
    }
    lab.lapse()
    lab.release(lab.acquire("you"))
    assert lab.release(grant) is LOST


def test_a_renewal_keeps_the_record_alive(lab: Lab) -> None:
    grant = lab.acquire()
    lab.client.pexpire(lab.names.fence, 1_000)
    lab.renew(grant)
    assert lab.client.pttl(lab.names.fence) > 3_000_000


@pytest.mark.parametrize("first", ["renew", "release"])
def test_a_restored_record_knows_nothing_of_earlier_grants(lab: Lab, first: str) -> None:
    old = lapsed(lab)
    grant = lab.acquire("you")
    lab.lose_record()
    if first == "renew":
        lab.renew(grant)
        assert lab.release(old) is LOST
    assert [lab.release(grant) for _ in range(2)] == [RELEASED, BEFORE]
    assert lab.release(old) is LOST


@bites(broken.LOCK_PROVES_ITS_TOKEN)
@pytest.mark.parametrize("first", ["renew", "release"])
def test_a_record_lost_and_advanced_while_held_still_has_one_verdict(lab: Lab, first: str) -> None:
    grant = lab.acquire()
    lab.lose_record()
    lab.advance(int(grant.token) + 1_000)
    if first == "renew":
        lab.renew(grant)
    assert [lab.release(grant) for _ in range(2)] == [RELEASED, BEFORE]
    assert lab.record["floor"] == str(int(grant.token) - 1)


@bites(broken.LOCK_PROVES_ONLY_ITS_TOKEN)
@pytest.mark.parametrize("first", ["renew", "release"])
def test_a_record_lost_and_made_anew_lower_knows_nothing_of_earlier_grants(
    lab: Lab, first: str
) -> None:
    old = lapsed(lab)
    grant = lab.acquire("you")
    lab.lose_record()
    lab.advance(5)
    if first == "renew":
        lab.renew(grant)
        assert lab.release(old) is LOST
    assert [lab.release(grant) for _ in range(2)] == [RELEASED, BEFORE]
    assert lab.release(old) is LOST


@bites(broken.LOST_RECORD_COMES_BACK_WHOLE)
def test_a_record_that_the_gate_brings_back_has_the_held_token_open(lab: Lab) -> None:
    grant = lab.acquire()
    lab.lose_record()
    lab.advance(5)
    assert lab.passes(grant.token)
    lab.lapse()
    assert lab.release(grant) is LOST
    lab.release(lab.acquire("you"))
    assert lab.release(grant) is LOST


# -- forced -------------------------------------------------------------------------------------


@bites(broken.FORCE_LEAVES_IT_OPEN)
def test_a_forced_holder_has_lost(lab: Lab) -> None:
    grant = lab.acquire()
    assert lab.force()
    assert lab.holder is None
    assert lab.release(grant) is LOST
    assert lab.release(lab.acquire("you")) is RELEASED
    assert lab.release(grant) is LOST


@bites(broken.FORCE_SHUTS_OUT)
def test_a_forced_holder_is_shut_out_at_once(lab: Lab) -> None:
    grant = lab.acquire()
    assert lab.passes(grant.token)
    lab.force()
    assert not lab.passes(grant.token)
    assert not lab.renew(grant)


def test_a_forced_holder_without_a_record_is_shut_out_and_has_lost(lab: Lab) -> None:
    grant = lab.acquire()
    lab.lose_record()
    assert lab.force()
    assert not lab.passes(grant.token)
    assert lab.release(grant) is LOST
    assert int(lab.acquire("you").token) > int(grant.token)


def test_forcing_a_free_lock_changes_nothing(lab: Lab) -> None:
    assert not lab.force()
    lab.release(lab.acquire())
    before = lab.state
    assert not lab.force()
    assert lab.state == before


# -- whose ---------------------------------------------------------------------------------------


@bites(broken.ACQUIRE_TELLS_ATTEMPTS_APART)
def test_another_attempt_of_one_owner_is_refused(lab: Lab) -> None:
    lab.acquire("me")
    assert lab.refuses("me")


@bites(broken.RENEW_IS_CHECKED)
@pytest.mark.parametrize("who", ["you", "me"])
def test_a_lapsed_holder_does_not_renew_its_successors_lease(lab: Lab, who: str) -> None:
    old = lapsed(lab)
    lab.acquire(who, ttl_ms=1_000)
    assert not lab.renew(old)
    assert lab.left_ms <= 1_000


@bites(broken.RENEW_NEVER_SHORTENS)
def test_a_renewal_never_shortens(lab: Lab) -> None:
    grant = lab.acquire()
    assert lab.renew(grant, 1_000)
    assert lab.left_ms > 50_000


def test_a_renewal_never_creates(lab: Lab) -> None:
    grant = lapsed(lab)
    before = lab.state
    assert not lab.renew(grant)
    assert lab.state == before


@bites(broken.WITHDRAW_IS_CHECKED)
def test_a_withdraw_takes_only_its_own_attempts_lock(lab: Lab) -> None:
    stranger = lab.claimant()
    lab.acquire()
    holder = lab.holder
    assert not lab.withdraw(stranger)
    assert lab.holder == holder
