"""`acquire`, step by step: what it asks for, and what it withdraws when something is thrown at it.

No server and no clock: every step is answered by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fencekit.errors import (
    FenceKitError,
    OutcomeUnknown,
    ReplicationError,
    StoreRefused,
    StoreUnavailable,
)
from fencekit.keys import names
from fencekit.protocol import lock as protocol
from fencekit.protocol.lock import Claimant, Grant, Refusal, acquire
from fencekit.protocol.operation import AwaitWake, Listen, Now, Replication, Unlisten
from harness.flows import Play

NAMES = names("fencekit", "job")
CLAIMANT = Claimant(NAMES, "me", "a" * 32, 30_000, 3_600_000)
GRANTED = [1, b"1700000000000001"]
HELD = [0, 5_000, b"you"]
GONE = [2]
# What `AwaitWake` is answered with.
WOKEN, TIME_UP = True, False


def refused() -> StoreRefused:
    error = StoreRefused("OOM", "OOM no memory")
    error.sends = 1
    return error


def refused_after_a_lost_copy() -> StoreRefused:
    error = StoreRefused("READONLY", "READONLY a replica")
    error.sends = 2
    return error


def unknown() -> OutcomeUnknown:
    return OutcomeUnknown("no answer", sends=2)


INTERRUPTS: list[Callable[[], BaseException]] = [
    KeyboardInterrupt,
    asyncio.CancelledError,
    SystemExit,
    MemoryError,
]


def ids(made: Callable[[], BaseException]) -> str:
    return made.__name__


def begun(wait: float | None = None, claimant: Claimant = CLAIMANT) -> Play[Grant | Refusal]:
    """Return the flow at its first try."""
    play = Play(acquire(claimant, wait))
    if wait is not None:
        play.asks(Now)
        play.send(100.0)
    play.script("lock_acquire")
    return play


def listening(wait: float = 10.0, **first: Any) -> Play[Grant | Refusal]:
    """Return the flow at `Listen`, after a refusal."""
    play = begun(wait).answer(HELD, **first)
    assert play.asks(Listen).channel == NAMES.wake
    return play


def retrying(wait: float = 10.0, **first: Any) -> Play[Grant | Refusal]:
    """Return the flow at its second try."""
    play = listening(wait, **first).send()
    play.script("lock_acquire")
    return play


def asleep(wait: float = 10.0, **first: Any) -> Play[Grant | Refusal]:
    """Return the flow asleep, at 100.5 of 110."""
    play = retrying(wait, **first).answer(HELD)
    play.asks(Now)
    play.send(100.5)
    play.asks(AwaitWake)
    return play


def withdraws(play: Play[Any]) -> None:
    """Check that the step withdraws the attempt."""
    operation = play.script("lock_withdraw")
    assert operation.keys == (NAMES.lock, NAMES.fence, NAMES.gone)
    assert operation.args[:2] == ("me", CLAIMANT.attempt)
    assert not operation.patient


# -- without waiting ----------------------------------------------------------------------------


def test_a_free_lock_is_granted_in_one_step() -> None:
    play = begun().answer(GRANTED, sent_at=100.0)
    grant = play.result
    assert isinstance(grant, Grant)
    assert (int(grant.token), grant.token.resource) == (1_700_000_000_000_001, "job")
    assert grant.deadline == 130.0
    assert not grant.resent


def test_a_held_lock_is_refused_in_one_step() -> None:
    assert begun().answer(HELD).result == Refusal(5_000, "you")


@pytest.mark.parametrize("pttl", [-1, -2, 0])
def test_a_lease_that_is_just_over_has_nothing_left(pttl: int) -> None:
    assert begun().answer([0, pttl, b"you"]).result == Refusal(0, "you")


def test_a_holder_that_is_not_ours_is_still_named() -> None:
    assert begun().answer([0, 5, b"\xff"]).result == Refusal(5, "�")


def test_the_attempt_goes_with_its_terms() -> None:
    operation = begun().script("lock_acquire")
    assert operation.keys == (NAMES.lock, NAMES.fence, NAMES.gone)
    assert operation.args == ("me", CLAIMANT.attempt, 30_000, 3_600_000)
    assert operation.replication is None
    assert operation.patient


def test_a_grant_to_a_resent_acquire_remembers_that_a_copy_may_come() -> None:
    grant = begun().answer(GRANTED, sends=2).result
    assert isinstance(grant, Grant)
    assert grant.resent


def test_a_refusal_of_a_resent_acquire_is_withdrawn() -> None:
    play = begun().answer(HELD, sends=2)
    withdraws(play)
    assert play.answer([0]).result == Refusal(5_000, "you")


@pytest.mark.parametrize("error", [StoreUnavailable, refused, unknown], ids=ids)
def test_a_refusal_stays_one_when_its_withdraw_fails(error: Callable[[], FenceKitError]) -> None:
    play = begun().answer(HELD, sends=2)
    assert play.throw(error()).result == Refusal(5_000, "you")


def test_a_withdrawn_attempt_is_never_a_grant() -> None:
    assert begun().answer(GONE).result == Refusal(0, "me")


# -- waiting ------------------------------------------------------------------------------------


def test_a_free_lock_is_not_listened_for() -> None:
    assert isinstance(begun(wait=10.0).answer(GRANTED).result, Grant)


def test_what_became_free_while_subscribing_is_granted() -> None:
    play = retrying().answer(GRANTED, sent_at=100.2)
    assert play.asks(Unlisten) == Unlisten(NAMES.wake, 30.0)
    grant = play.send().result
    assert isinstance(grant, Grant)
    assert grant.deadline == pytest.approx(130.2)


def test_a_waiter_sleeps_until_its_time_is_up_or_the_holders_lease_is_over() -> None:
    step = asleep().asks(AwaitWake)
    assert step.channel == NAMES.wake
    assert step.seconds == 9.5
    assert 5.0 < step.alarm < 5.1, "just after the lease, and not all at once"


def test_a_woken_waiter_tries_again_until_it_is_granted() -> None:
    play = asleep()
    for second in (101.0, 102.0, 103.0):
        play.send(WOKEN)
        play.script("lock_acquire")
        play.answer(HELD).send(second)
        play.asks(AwaitWake)
    play.send(TIME_UP).send(104.0).answer(GRANTED)
    play.asks(Unlisten)
    assert isinstance(play.send().result, Grant)


def test_a_waiter_whose_time_is_up_is_refused() -> None:
    play = asleep().send(TIME_UP).send(110.0)
    step = play.asks(Unlisten)
    assert step.alarm == 0.0, "the alarm was due meanwhile: the next waiter looks at once"
    assert play.send().result == Refusal(5_000, "you")


def test_a_waiter_looks_just_after_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "random", lambda: 0.0)
    play = retrying(500.0).answer([0, 90_000, b"you"])
    assert play.send(100.0).asks(AwaitWake).alarm == pytest.approx(90.002)


def test_the_alarm_that_a_waiter_leaves_behind_counts_from_its_end() -> None:
    play = retrying(wait=2.0).answer([0, 60_000, b"you"]).send(100.0)
    play.send(TIME_UP).send(102.0)
    alarm = play.asks(Unlisten).alarm
    assert alarm is not None
    assert 58.0 < alarm < 58.1


def test_a_waiter_woken_as_its_time_runs_out_still_tries() -> None:
    """Found here: the wake of a release went to a waiter that left without trying, and was lost."""
    play = asleep().send(WOKEN)
    play.script("lock_acquire")
    play.answer(GRANTED)
    play.asks(Unlisten)
    assert isinstance(play.send().result, Grant)


def test_a_waiter_woken_as_its_time_runs_out_tries_once() -> None:
    play = asleep().send(WOKEN).answer(HELD).send(110.1)
    play.asks(Unlisten)
    assert isinstance(play.send().result, Refusal)


def test_no_time_to_wait_is_one_try_more() -> None:
    play = retrying(wait=0.0).answer(HELD)
    play.asks(Now)
    play.send(100.0)
    play.asks(Unlisten)
    assert isinstance(play.send().result, Refusal)


def test_waiting_for_ever_is_waiting() -> None:
    play = retrying(wait=8.64e13).answer(HELD).send(100.0)
    assert play.asks(AwaitWake).seconds > 1e13


@pytest.mark.parametrize("at", ["first", "second", "last"])
def test_a_copy_lost_at_any_try_is_remembered(at: str) -> None:
    play = retrying(sends=2 if at == "first" else 1)
    play.answer(HELD, sends=2 if at == "second" else 1).send(101.0).send(WOKEN)
    play.answer(GRANTED, sends=2 if at == "last" else 1)
    grant = play.send().result
    assert isinstance(grant, Grant)
    assert grant.resent


def test_a_copy_lost_on_the_way_is_withdrawn_when_the_time_is_up() -> None:
    play = asleep(sends=2).send(TIME_UP).send(110.0).send()
    withdraws(play)
    assert isinstance(play.answer([0]).result, Refusal)


# -- interrupted, cancelled ---------------------------------------------------------------------

LOOSE: list[tuple[str, Callable[[], Play[Any]]]] = [
    ("the only try", begun),
    ("the first try", lambda: begun(wait=10.0)),
    ("the second try", retrying),
    ("a later try", lambda: asleep().send(WOKEN)),
    ("unlistening with a grant", lambda: retrying().answer(GRANTED)),
    ("asleep, a copy lost before", lambda: asleep(sends=2)),
]
CLEAN: list[tuple[str, Callable[[], Play[Any]]]] = [
    ("the clock", lambda: Play(acquire(CLAIMANT, 10.0))),
    ("asleep", asleep),
    ("the clock after sleeping", lambda: asleep().send(TIME_UP)),
]


@pytest.mark.parametrize("interrupt", INTERRUPTS, ids=ids)
@pytest.mark.parametrize(("where", "reach"), LOOSE, ids=[where for where, _ in LOOSE])
def test_interrupted_with_an_attempt_under_way_it_is_withdrawn(
    where: str, reach: Callable[[], Play[Any]], interrupt: Callable[[], BaseException]
) -> None:
    del where
    play, error = reach(), interrupt()
    play.throw(error)
    withdraws(play)
    with pytest.raises(type(error)) as raised:
        play.answer([1])
    assert raised.value is error
    assert play.ended


@pytest.mark.parametrize("failure", [StoreUnavailable, refused, unknown], ids=ids)
@pytest.mark.parametrize(("where", "reach"), LOOSE, ids=[where for where, _ in LOOSE])
def test_the_interrupt_is_what_the_caller_sees_though_the_withdraw_fails(
    where: str, reach: Callable[[], Play[Any]], failure: Callable[[], FenceKitError]
) -> None:
    del where
    play = reach().throw(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        play.throw(failure())


@pytest.mark.parametrize("interrupt", INTERRUPTS, ids=ids)
@pytest.mark.parametrize(("where", "reach"), CLEAN, ids=[where for where, _ in CLEAN])
def test_interrupted_with_nothing_under_way_nothing_is_sent(
    where: str, reach: Callable[[], Play[Any]], interrupt: Callable[[], BaseException]
) -> None:
    del where
    play = reach()
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - an interrupt of any kind
        play.throw(interrupt())
    assert isinstance(raised.value, interrupt if isinstance(interrupt, type) else BaseException)
    assert play.ended


def test_interrupted_while_subscribing_the_attempt_is_withdrawn() -> None:
    play = listening().throw(KeyboardInterrupt())
    withdraws(play)
    with pytest.raises(KeyboardInterrupt):
        play.answer([0])


def test_interrupted_again_while_withdrawing_it_goes() -> None:
    play = begun().throw(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        play.throw(KeyboardInterrupt())
    assert play.ended


@pytest.mark.parametrize("reach", [begun, listening, retrying, asleep], ids=ids)
def test_a_flow_that_is_closed_asks_for_nothing_more(reach: Callable[[], Play[Any]]) -> None:
    reach()._flow.close()  # a flow that yielded now would raise RuntimeError


# -- errors of the store --------------------------------------------------------------------------

TRIES: list[tuple[str, Callable[[], Play[Any]]]] = [
    ("the only try", begun),
    ("the first try", lambda: begun(wait=10.0)),
    ("the second try", retrying),
    ("a later try", lambda: asleep().send(WOKEN)),
]
LATER: list[tuple[str, Callable[[], Play[Any]]]] = [
    ("the second try", lambda: retrying(sends=2)),
    ("a later try", lambda: asleep(sends=2).send(WOKEN)),
]


@pytest.mark.parametrize("failure", [StoreUnavailable, refused], ids=ids)
@pytest.mark.parametrize(("where", "reach"), TRIES, ids=[where for where, _ in TRIES])
def test_where_nothing_was_carried_out_nothing_is_withdrawn(
    where: str, reach: Callable[[], Play[Any]], failure: Callable[[], FenceKitError]
) -> None:
    del where
    play, error = reach(), failure()
    with pytest.raises(type(error)) as raised:
        play.throw(error)
    assert raised.value is error
    assert play.ended


@pytest.mark.parametrize(("where", "reach"), TRIES, ids=[where for where, _ in TRIES])
def test_an_unknown_outcome_that_was_withdrawn_is_known(
    where: str, reach: Callable[[], Play[Any]]
) -> None:
    del where
    play, error = reach(), unknown()
    play.throw(error)
    withdraws(play)
    with pytest.raises(StoreUnavailable, match="nothing is held") as raised:
        play.answer([0])
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("sends", [1, 2])
def test_one_copy_without_an_answer_is_enough_to_withdraw(sends: int) -> None:
    play = begun().throw(OutcomeUnknown("no answer", sends=sends))
    withdraws(play)
    with pytest.raises(StoreUnavailable, match="nothing is held"):
        play.answer([0])


@pytest.mark.parametrize("failure", [StoreUnavailable, refused, unknown], ids=ids)
@pytest.mark.parametrize(("where", "reach"), TRIES, ids=[where for where, _ in TRIES])
def test_an_unknown_outcome_whose_withdraw_fails_stays_unknown(
    where: str, reach: Callable[[], Play[Any]], failure: Callable[[], FenceKitError]
) -> None:
    del where
    play, error = reach(), unknown()
    play.throw(error)
    with pytest.raises(OutcomeUnknown) as raised:
        play.throw(failure())
    assert raised.value is error


@pytest.mark.parametrize(("where", "reach"), TRIES, ids=[where for where, _ in TRIES])
def test_a_refusal_of_the_store_after_a_lost_copy_is_withdrawn(
    where: str, reach: Callable[[], Play[Any]]
) -> None:
    del where
    play = reach().throw(refused_after_a_lost_copy())
    withdraws(play)
    with pytest.raises(StoreRefused):
        play.answer([0])


@pytest.mark.parametrize("error", [StoreUnavailable, refused], ids=ids)
@pytest.mark.parametrize(("where", "reach"), LATER, ids=[where for where, _ in LATER])
def test_an_error_after_an_earlier_copy_was_lost_is_withdrawn(
    where: str, reach: Callable[[], Play[Any]], error: Callable[[], FenceKitError]
) -> None:
    del where
    play = reach().throw(error())
    withdraws(play)
    with pytest.raises((StoreUnavailable, StoreRefused)):
        play.answer([0])


@pytest.mark.parametrize("failure", [StoreUnavailable, refused, unknown], ids=ids)
def test_a_lost_copy_that_could_not_be_withdrawn_is_an_unknown_outcome(
    failure: Callable[[], FenceKitError],
) -> None:
    """Found here: it was StoreRefused or StoreUnavailable, which promise that nothing is held."""
    for play, error in (
        (begun(), refused_after_a_lost_copy()),
        (retrying(sends=2), StoreUnavailable()),
        (retrying(sends=2), refused()),
    ):
        play.throw(error)
        withdraws(play)
        with pytest.raises(OutcomeUnknown, match="the lock may be held") as raised:
            play.throw(failure())
        assert raised.value.__cause__ is error


# -- replicas -----------------------------------------------------------------------------------

REPLICATED = Claimant(NAMES, "me", "a" * 32, 30_000, 3_600_000, Replication(2, 500))


def test_enough_replicas_confirm_the_grant() -> None:
    play = begun(claimant=REPLICATED)
    assert play.script("lock_acquire").replication == Replication(2, 500)
    assert isinstance(play.answer(GRANTED, replicas=2).result, Grant)


@pytest.mark.parametrize("wait", [None, 10.0])
def test_too_few_replicas_give_the_lock_back(wait: float | None) -> None:
    play = begun(wait, REPLICATED).answer(GRANTED, replicas=1)
    withdraws(play)
    with pytest.raises(ReplicationError) as raised:
        play.answer([1])
    assert (raised.value.wanted, raised.value.confirmed) == (2, 1)


def test_too_few_replicas_after_waiting_give_the_lock_back() -> None:
    play = begun(10.0, REPLICATED).answer(HELD).send().answer(GRANTED, replicas=0)
    play.asks(Unlisten)
    withdraws(play.send())
    with pytest.raises(ReplicationError):
        play.answer([1])


def test_replicas_do_not_matter_to_a_refusal() -> None:
    assert begun(claimant=REPLICATED).answer(HELD, replicas=0).result == Refusal(5_000, "you")


def test_too_few_replicas_and_no_answer_to_the_withdraw_is_an_unknown_outcome() -> None:
    """Found here: the error said that the lock was given back, when nobody knew."""
    play = begun(claimant=REPLICATED).answer(GRANTED, replicas=1)
    with pytest.raises(OutcomeUnknown) as raised:
        play.throw(StoreUnavailable())
    assert isinstance(raised.value.__cause__, ReplicationError)
