"""Renew, release, inspect, force_release and advance, step by step; no server, no clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fencekit.errors import OutcomeUnknown, StoreError, StoreRefused, StoreUnavailable
from fencekit.keys import names
from fencekit.protocol.lock import (
    Claimant,
    Grant,
    LockInfo,
    Verdict,
    advance,
    force_release,
    inspect,
    new_attempt,
    release,
    renew,
    renew_operation,
    withdraw_operation,
)
from fencekit.protocol.token import FenceToken
from harness.flows import Play

NAMES = names("fencekit", "job")
CLAIMANT = Claimant(NAMES, "me", "a" * 32, 30_000, 3_600_000)
TOKEN = FenceToken(1_700_000_000_000_001, resource="job")


def granted(*, resent: bool = False) -> Grant:
    return Grant(CLAIMANT, TOKEN, 130.0, resent=resent)


FLOWS: list[tuple[str, Callable[[], Any]]] = [
    ("renew", lambda: renew(granted(), 1_000)),
    ("release", lambda: release(granted())),
    ("inspect", lambda: inspect(NAMES)),
    ("force_release", lambda: force_release(NAMES, 1_000)),
    ("advance", lambda: advance(NAMES, 5, 1_000)),
]
ERRORS: list[Callable[[], BaseException]] = [
    StoreUnavailable,
    lambda: StoreRefused("OOM", "OOM"),
    lambda: OutcomeUnknown("?"),
    KeyboardInterrupt,
    asyncio.CancelledError,
]


@pytest.mark.parametrize("error", ERRORS, ids=range(len(ERRORS)))
@pytest.mark.parametrize(("name", "flow"), FLOWS, ids=[name for name, _ in FLOWS])
def test_an_error_comes_out_as_it_is_and_nothing_more_is_sent(
    name: str, flow: Callable[[], Any], error: Callable[[], BaseException]
) -> None:
    del name
    play, thrown = Play(flow()), error()
    with pytest.raises(type(thrown)) as raised:
        play.throw(thrown)
    assert raised.value is thrown
    assert play.ended


# -- renew --------------------------------------------------------------------------------------


def test_a_renewal_moves_the_deadline_from_its_send() -> None:
    grant = granted()
    play = Play(renew(grant, 60_000))
    operation = play.script("lock_renew")
    assert operation.args == ("me", CLAIMANT.attempt, int(TOKEN), 60_000, 3_600_000)
    assert type(operation.args[2]) is int
    assert play.answer([1, 60_000], sent_at=110.0).result
    assert grant.deadline == 170.0


def test_a_shorter_renewal_leaves_the_deadline() -> None:
    grant = granted()
    assert Play(renew(grant, 1_000)).answer([1, 20_000], sent_at=110.0).result
    assert grant.deadline == 130.0


def test_a_lost_lease_is_not_renewed() -> None:
    grant = granted()
    assert not Play(renew(grant, 60_000)).answer([0], sent_at=110.0).result
    assert grant.deadline == 130.0


def test_the_keepers_renewal_tells_the_milliseconds_left() -> None:
    operation = renew_operation(CLAIMANT, TOKEN, 30_000)
    assert operation.parse([1, 30_000]) == 30_000
    assert operation.parse([0]) is None


# -- release ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "verdict"), [(1, Verdict.RELEASED), (2, Verdict.RELEASED_BEFORE), (0, Verdict.LOST)]
)
def test_a_release_has_the_verdict_of_the_server(reply: int, verdict: Verdict) -> None:
    assert Play(release(granted())).answer([reply]).result is verdict


@pytest.mark.parametrize("reply", [0, 2])
def test_what_was_lost_and_is_said_to_be_free_was_lost_by_a_failover(reply: int) -> None:
    grant = granted()
    grant.lost = True
    assert Play(release(grant)).answer([reply]).result is Verdict.LOST


def test_what_was_lost_by_our_clock_only_may_still_be_released() -> None:
    grant = granted()
    grant.lost = True
    assert Play(release(grant)).answer([1]).result is Verdict.RELEASED


def test_a_release_that_was_asked_for_before_may_have_done_it() -> None:
    grant = granted()
    grant.lost = True
    with pytest.raises(OutcomeUnknown):
        Play(release(grant)).throw(OutcomeUnknown("?"))
    assert Play(release(grant)).answer([2]).result is Verdict.RELEASED_BEFORE


@pytest.mark.parametrize(
    "error", [StoreUnavailable("the primary is gone"), StoreRefused("LOADING", "LOADING")]
)
def test_a_release_that_never_left_cannot_have_done_it(error: StoreError) -> None:
    """Found here: a failover refuses the first release, and the second was taken for a repeat."""
    error.sends = int(isinstance(error, StoreRefused))
    grant = granted()
    grant.lost = True
    with pytest.raises(type(error)):
        Play(release(grant)).throw(error)
    assert Play(release(grant)).answer([2]).result is Verdict.LOST


def test_a_release_that_never_left_does_not_undo_one_that_did() -> None:
    grant = granted()
    grant.lost = True
    with pytest.raises(OutcomeUnknown):
        Play(release(grant)).throw(OutcomeUnknown("?", sends=1))
    with pytest.raises(StoreUnavailable):
        Play(release(grant)).throw(StoreUnavailable("the primary is gone"))
    assert Play(release(grant)).answer([2]).result is Verdict.RELEASED_BEFORE


def test_a_lease_that_nobody_watched_is_lost_by_the_clock() -> None:
    """Found here: only a keeper noted the loss, and without one the failover stayed silent."""
    assert Play(release(granted())).answer([2], sent_at=130.0).result is Verdict.LOST
    assert Play(release(granted())).answer([2], sent_at=129.9).result is Verdict.RELEASED_BEFORE


def test_of_several_copies_an_earlier_one_may_have_come_in_time() -> None:
    play = Play(release(granted()))
    assert play.answer([2], sent_at=131.0, sends=2).result is Verdict.RELEASED_BEFORE


@pytest.mark.parametrize(("resent", "bury"), [(False, 0), (True, 1)])
def test_a_release_buries_the_attempt_if_a_copy_of_its_acquire_may_come(
    resent: bool,  # noqa: FBT001
    bury: int,
) -> None:
    operation = Play(release(granted(resent=resent))).script("lock_release")
    assert operation.keys == (NAMES.lock, NAMES.fence, NAMES.gone)
    assert operation.args == (
        "me",
        CLAIMANT.attempt,
        int(TOKEN),
        3_600_000,
        bury,
        NAMES.wake,
    )


def test_a_repeated_release_is_the_same_command() -> None:
    grant = granted(resent=True)
    first, second = (Play(release(grant)).script("lock_release") for _ in range(2))
    assert (first.keys, first.args) == (second.keys, second.args)


def test_a_withdraw_tells_whether_the_attempt_held_the_lock() -> None:
    operation = withdraw_operation(CLAIMANT)
    assert operation.args == ("me", CLAIMANT.attempt, 3_600_000, NAMES.wake)
    assert [operation.parse([code]) for code in (1, 0)] == [True, False]


# -- inspect ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "info"),
    [
        ([None, -2, None, None, None, None], None),
        (
            [b"me:abc:7", 900, b"7", b"7", b"3,5", b"2"],
            LockInfo("job", "me", FenceToken(7, resource="job"), 900, 7, (3, 5)),
        ),
        ([None, -2, b"7", b"0", b"", b"6"], LockInfo("job", None, None, 0, 7)),
        (
            [b"me:abc:7", 900, None, None, None, None],
            LockInfo("job", "me", FenceToken(7, resource="job"), 900, 0),
        ),
        (
            [b"somebody else's", -1, None, None, None, None],
            LockInfo("job", "somebody else's", None, 0, 0),
        ),
        ([b"\xff", 5, None, None, None, None], LockInfo("job", "�", None, 5, 0)),
    ],
    ids=["nothing", "held", "free", "no record", "foreign", "not UTF-8"],
)
def test_inspect_reads_what_is_there(reply: list[Any], info: LockInfo | None) -> None:
    play = Play(inspect(NAMES))
    assert play.script("lock_inspect").script.read_only
    assert play.answer(reply).result == info


def test_inspect_makes_a_token_of_this_name() -> None:
    info = Play(inspect(NAMES)).answer([b"me:abc:7", 900, b"7", b"7", b"", b"2"]).result
    assert info is not None
    assert info.token is not None
    assert info.token.resource == "job"


# -- force_release ------------------------------------------------------------------------------


def forcing() -> Play[bool]:
    play = Play(force_release(NAMES, 1_000))
    play.script("lock_inspect")
    return play.answer([b"you:abc:7", 900, b"7", b"7", b"", b"2"])


def test_force_frees_the_token_that_was_read() -> None:
    play = forcing()
    operation = play.script("lock_force")
    assert operation.args == (7, 1_000, NAMES.wake)
    assert play.answer([1]).result


def test_force_leaves_a_newer_holder_alone() -> None:
    assert not forcing().answer([0]).result


@pytest.mark.parametrize(
    "reply", [[None, -2, None, None, None, None], [None, -2, b"7", b"0", b"", b"6"]]
)
def test_there_is_nothing_to_force_in_a_free_lock(reply: list[Any]) -> None:
    assert not Play(force_release(NAMES, 1_000)).answer(reply).result


def test_force_from_whom_was_seen_asks_nobody_who_holds_it_now() -> None:
    play = Play(force_release(NAMES, 1_000, 6))
    assert play.script("lock_force").args == (6, 1_000, NAMES.wake)
    assert not play.answer([0]).result


# -- advance ------------------------------------------------------------------------------------


def test_advance_returns_the_highest_token() -> None:
    play = Play(advance(NAMES, 5, 1_000))
    operation = play.script("fence_advance")
    assert (operation.keys, operation.args) == ((NAMES.fence,), (5, 1_000))
    assert play.answer([b"1700000000000001"]).result == 1_700_000_000_000_001


# -- attempts -----------------------------------------------------------------------------------


def test_attempts_are_128_bits_and_do_not_repeat() -> None:
    attempts = {new_attempt() for _ in range(1_000)}
    assert len(attempts) == 1_000
    assert {len(attempt) for attempt in attempts} == {32}
    assert all(int(attempt, 16) >= 0 for attempt in attempts)
