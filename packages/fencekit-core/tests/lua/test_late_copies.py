"""Commands that arrive twice, or after everything else: none of them changes what stands.

A copy is let through by the script itself here, at every point in time; test_faults.py beside this
loses, doubles and holds back the real commands of real locks. Each test is shown failing on the
script without its rule (harness/broken.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fencekit.protocol.lock import Verdict
from harness import broken
from harness.broken import bites

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencekit.protocol.lock import Grant
    from fencekit.protocol.operation import Operation
    from harness.lab import Lab

# -- acquire ------------------------------------------------------------------------------------


@bites(broken.ACQUIRE_KNOWS_ITS_ATTEMPT)
def test_a_second_copy_of_acquire_is_granted_the_same_token(lab: Lab) -> None:
    grant = lab.acquire()
    assert lab.arrive(lab.sent[0]) == [1, str(int(grant.token)).encode()]
    assert lab.release(grant) is Verdict.RELEASED


@bites(broken.ACQUIRE_SETS_THE_LEASE_ANEW)
def test_a_second_copy_of_acquire_sets_the_lease_anew(lab: Lab) -> None:
    lab.acquire()
    lab.client.pexpire(lab.names.lock, 1_000)
    lab.arrive(lab.sent[0])
    assert lab.left_ms > 50_000


@bites(broken.ACQUIRE_NEVER_SHORTENS)
def test_a_late_copy_of_acquire_does_not_shorten_what_was_extended_since(lab: Lab) -> None:
    grant = lab.acquire()
    lab.renew(grant, 600_000)
    lab.arrive(lab.sent[0])
    assert lab.left_ms > 500_000


@bites(broken.RELEASE_BURIES, broken.QUICK_RELEASE_HAS_ONE_COPY, broken.GONE_IS_REFUSED)
def test_a_late_copy_of_acquire_after_its_release_is_granted_nothing(lab: Lab) -> None:
    grant = lab.acquire(sends=2)
    acquire = lab.sent[0]
    assert lab.release(grant) is Verdict.RELEASED
    before = lab.state
    assert lab.arrive(acquire) == [2]
    assert lab.state == before


@bites(broken.LATE_RELEASE_BURIES)
def test_a_late_copy_of_acquire_after_a_lost_lease_is_granted_nothing(lab: Lab) -> None:
    grant = lab.acquire(sends=2)
    acquire = lab.sent[0]
    lab.lapse()
    assert lab.release(grant) is Verdict.LOST
    assert lab.arrive(acquire) == [2]
    assert lab.holder is None


@bites(broken.LATE_RELEASE_WITHDRAWS)
@pytest.mark.parametrize("why", ["lapsed", "forced"])
def test_a_copy_of_acquire_that_came_between_lease_and_release_is_nobodys(
    lab: Lab, why: str
) -> None:
    """Found here: a copy was granted the lock anew, and it stood until its lease was over."""
    grant = lab.acquire(sends=2)
    acquire = lab.sent[0]
    if why == "lapsed":
        lab.lapse()
    else:
        lab.force()
    assert lab.arrive(acquire)[0] == 1, "nobody has ended the attempt yet"
    assert [lab.release(grant) for _ in range(2)] == [Verdict.LOST, Verdict.LOST]
    assert lab.holder is None
    assert lab.arrive(acquire) == [2]
    assert lab.release(lab.acquire("you")) is Verdict.RELEASED
    assert lab.release(grant) is Verdict.LOST


@bites(broken.WITHDRAW_BURIES, broken.GONE_IS_REFUSED)
def test_an_acquire_that_arrives_after_its_withdraw_is_granted_nothing(lab: Lab) -> None:
    claimant = lab.claimant()
    assert not lab.withdraw(claimant)
    before = lab.state
    assert lab.refuses_late(claimant)
    assert lab.state == before
    lab.acquire("you")


def test_a_withdraw_frees_what_the_attempt_was_granted(lab: Lab) -> None:
    grant = lab.acquire()
    assert lab.withdraw(grant.claimant)
    assert lab.holder is None
    assert lab.record["open"] == "0"
    assert lab.arrive(lab.sent[0]) == [2]


def test_a_late_copy_of_acquire_while_another_holds_changes_nothing(lab: Lab) -> None:
    grant = lab.acquire(sends=2)
    acquire = lab.sent[0]
    lab.release(grant)
    lab.acquire("you")
    before = lab.state
    assert lab.arrive(acquire)[0] == 0
    assert lab.state == before


def test_withdrawn_attempts_are_kept_for_two_minutes(lab: Lab) -> None:
    lab.withdraw(lab.claimant())
    assert 100_000 < lab.client.pttl(lab.names.gone) <= 120_000


@bites(broken.GONE_ENDS)
def test_withdrawn_attempts_are_not_kept_for_longer(lab: Lab) -> None:
    old, young = lab.claimant(), lab.claimant()
    lab.withdraw(old)
    lab.withdraw(young)
    now = lab.client.zscore(lab.names.gone, old.attempt)
    lab.client.zadd(lab.names.gone, {old.attempt: now - 121_000, young.attempt: now - 100_000})
    newest = lab.claimant()
    lab.withdraw(newest)
    kept = {attempt.decode() for attempt in lab.client.zrange(lab.names.gone, 0, -1)}
    assert kept == {young.attempt, newest.attempt}


# -- everything else ----------------------------------------------------------------------------


def _of_renew(lab: Lab, grant: Grant) -> None:
    lab.renew(grant, 600_000)


def _of_release(lab: Lab, grant: Grant) -> None:
    lab.release(grant)


def _of_withdraw(lab: Lab, grant: Grant) -> None:
    lab.withdraw(grant.claimant)


def _of_force(lab: Lab, grant: Grant) -> None:
    del grant
    lab.force()


def _of_set(lab: Lab, grant: Grant) -> None:
    lab.passes(grant.token, "set", value="old")


def _of_delete(lab: Lab, grant: Grant) -> None:
    lab.passes(grant.token, "delete")


def _of_hset(lab: Lab, grant: Grant) -> None:
    lab.passes(grant.token, "hset", value="old")


def _of_advance(lab: Lab, grant: Grant) -> None:
    lab.passes(grant.token, "advance")


COMMANDS = [
    _of_renew,
    _of_release,
    _of_withdraw,
    _of_force,
    _of_set,
    _of_delete,
    _of_hset,
    _of_advance,
]


def copies_of(lab: Lab, command: Callable[[Lab, Grant], None]) -> list[Operation[Any]]:
    """Return the command that a holder sent before it gave the lock back."""
    grant = lab.acquire(sends=2)
    sent = len(lab.sent)
    command(lab, grant)
    copies = [one for one in lab.sent[sent:] if not one.script.read_only]
    lab.release(grant)
    return copies


@bites(
    broken.RELEASE_IS_CHECKED,
    broken.RENEW_IS_CHECKED,
    broken.WITHDRAW_IS_CHECKED,
    broken.FORCE_IS_CHECKED,
    broken.STALE_IS_REFUSED,
)
def test_late_copies_of_everything_change_nothing_for_the_successor(lab: Lab) -> None:
    for command in COMMANDS:
        each = lab.fresh()
        (late,) = copies_of(each, command)
        successor = each.acquire("me", ttl_ms=30_000)
        assert each.passes(successor.token, "set", value="new")
        assert each.passes(successor.token, "hset", value="new")
        before = each.state
        each.arrive(late)
        assert each.state == before, command.__name__
        assert each.left_ms <= 30_000, command.__name__
        assert each.release(successor) is Verdict.RELEASED


@pytest.mark.parametrize("command", COMMANDS)
def test_a_late_copy_changes_nothing_after_the_successor_has_released(
    lab: Lab, command: Callable[[Lab, Grant], None]
) -> None:
    (late,) = copies_of(lab, command)
    successor = lab.acquire("you")
    lab.passes(successor.token, "set", value="new")
    lab.passes(successor.token, "hset", value="new")
    lab.release(successor)
    before = lab.state
    lab.arrive(late)
    assert lab.state == before


@pytest.mark.parametrize("command", [_of_renew, _of_release, _of_withdraw, _of_force])
def test_a_late_copy_changes_nothing_where_nobody_came_since(
    lab: Lab, command: Callable[[Lab, Grant], None]
) -> None:
    (late,) = copies_of(lab, command)
    before = lab.state
    lab.arrive(late)
    assert lab.state == before


@pytest.mark.parametrize("command", [_of_set, _of_delete, _of_hset, _of_advance])
def test_a_second_copy_of_a_write_writes_the_same_again(
    lab: Lab, command: Callable[[Lab, Grant], None]
) -> None:
    grant = lab.acquire()
    command(lab, grant)
    before = lab.state
    lab.arrive(lab.sent[-1])
    assert lab.state == before


@bites(broken.ADVANCE_ONLY_LIFTS)
def test_a_late_copy_of_advance_lowers_nothing(lab: Lab) -> None:
    lab.advance(1_000)
    late = lab.sent[-1]
    lab.advance(2_000)
    lab.arrive(late)
    assert lab.record["last"] == "2000"
    grant = lab.acquire()
    before = lab.state
    lab.arrive(late)
    assert lab.state == before
    assert lab.passes(grant.token)


def test_a_late_copy_of_renew_does_not_revive_a_released_lock(lab: Lab) -> None:
    grant = lab.acquire()
    lab.renew(grant)
    late = lab.sent[-1]
    lab.release(grant)
    assert lab.arrive(late) == [0]
    assert lab.holder is None


@bites(broken.FORCE_KNOWS_ITS_FIRST_COPY)
@pytest.mark.parametrize("then", ["nothing", "a successor", "a successor that lapsed"])
def test_a_second_copy_of_force_says_that_it_was_done(lab: Lab, then: str) -> None:
    """Found here: the second copy found the lock free, and the answer was that it had been."""
    lab.acquire()
    lab.force()
    late = lab.sent[-1]
    if then != "nothing":
        lab.acquire("you")
    if then == "a successor that lapsed":
        lab.lapse()
        lab.acquire("they")
    before = lab.state
    assert lab.arrive(late) == [1]
    assert lab.state == before


@bites(broken.FORCE_ONLY_CLAIMS_ITS_OWN)
def test_a_force_that_comes_after_the_lease_was_over_has_freed_nothing(lab: Lab) -> None:
    lab.acquire()
    force = lab.force_of_what_is_held()
    lab.lapse()
    assert lab.arrive(force) == [0]


def test_a_force_that_comes_after_the_release_has_freed_nothing(lab: Lab) -> None:
    grant = lab.acquire()
    force = lab.force_of_what_is_held()
    lab.release(grant)
    assert lab.arrive(force) == [0]
    lab.acquire("you")
    assert lab.arrive(force) == [0]


def test_a_late_copy_of_a_write_undoes_a_later_write_of_the_same_token(lab: Lab) -> None:
    """What the fence cannot refuse: the token is the same. A later *holder* is safe, see above."""
    grant = lab.acquire()
    lab.passes(grant.token, value="first")
    late = lab.sent[-1]
    lab.passes(grant.token, value="second")
    assert lab.arrive(late) == [1]
    assert lab.client.get(lab.target) == b"first"
