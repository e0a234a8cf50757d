"""`begin`, step by step: what is sent, what each answer means, and what is tidied up."""

from __future__ import annotations

from typing import Any

import pytest

from fencekit.errors import OutcomeUnknown, StoreRefused, StoreUnavailable
from fencekit.keys import names
from fencekit.protocol import idempotency as protocol
from fencekit.protocol.claim import BeginOutcome, Begun, Standing, Terms
from fencekit.protocol.operation import AwaitWake, Listen, Now, Unlisten
from harness.flows import Play

NAMES = names("fencekit", "job")
CHANNEL = "fencekit:{job}:idem"
BEGUN = [b"begun", 7, 1]
DONE = [b"done", b"json", b"[1]", b"p", b"t"]
ENDED = [b"ended", b"x"]


def running(left: int = 800) -> list[Any]:
    return [b"running", left, b"you", b"a" * 32, b"t"]


def terms(**changes: Any) -> Terms:
    return Terms(NAMES, "me", **{"lease_ms": 1_000, "ttl_ms": 9_000, **changes})


def unknown() -> OutcomeUnknown:
    return OutcomeUnknown("no answer", sends=2)


def refused(sends: int = 1) -> StoreRefused:
    error = StoreRefused("OOM", "OOM out of memory")
    error.sends = sends
    return error


def test_a_begin_is_one_command() -> None:
    play = Play(protocol.begin(terms(fingerprint="f", max_attempts=3, task_id="t")))
    operation = play.script("claim_begin")
    attempt = operation.args[1]
    assert operation.keys == ("fencekit:{job}:idem",)
    assert operation.args == ("me", attempt, 1_000, 9_000, "f", 3, "any", "t")
    begun = play.answer(BEGUN, sent_at=100.0).result
    assert isinstance(begun, Begun)
    assert (begun.outcome, begun.attempt) == (BeginOutcome.BEGUN, attempt)
    assert (begun.number, begun.resent) == (1, False)
    assert (begun.token, begun.token.resource, begun.token.record) == (7, "job", "claim")
    assert begun.deadline == pytest.approx(101.0), "counted from the send, not from the answer"


def test_attempts_are_never_made_twice() -> None:
    made = {protocol.new_attempt() for _ in range(1_000)}
    assert len(made) == 1_000
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in made)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (
            DONE,
            {
                "outcome": BeginOutcome.ALREADY_DONE,
                "memo": ("json", b"[1]"),
                "published": b"p",
                "task_id": "t",
            },
        ),
        (
            running(),
            {
                "outcome": BeginOutcome.IN_PROGRESS,
                "retry_after_ms": 800,
                "owner_id": "you",
                "attempt": "a" * 32,
                "task_id": "t",
            },
        ),
        (
            [b"failed", b"Oops: no", 2],
            {"outcome": BeginOutcome.FAILED, "error": "Oops: no", "attempts": 2},
        ),
        ([b"exhausted", b"", 3], {"outcome": BeginOutcome.EXHAUSTED, "error": "", "attempts": 3}),
        ([b"mismatch"], {"outcome": BeginOutcome.MISMATCH}),
    ],
)
def test_what_stands_is_told(reply: list[Any], expected: dict[str, Any]) -> None:
    standing = Play(protocol.begin(terms())).answer(reply).result
    assert isinstance(standing, Standing)
    assert {name: getattr(standing, name) for name in expected} == expected
    assert not standing.outcome.started


def test_a_reclaim_is_a_beginning() -> None:
    begun = Play(protocol.begin(terms())).answer([b"reclaimed", 8, 2]).result
    assert begun.outcome is BeginOutcome.RECLAIMED
    assert begun.outcome.started


def test_a_begin_that_was_resent_and_began_needs_no_withdraw() -> None:
    begun = Play(protocol.begin(terms())).answer(BEGUN, sends=2).result
    assert isinstance(begun, Begun)
    assert begun.resent
    # Its record outlives the copy that may be under way, however short the memo is kept.
    assert begun.kept_ms() == 120_000
    assert begun.kept_ms(500_000) == 500_000


@pytest.mark.parametrize("reply", [DONE, running(), [b"mismatch"], [b"failed", b"", 1]])
def test_a_begin_that_was_resent_and_did_not_begin_is_withdrawn(reply: list[Any]) -> None:
    play = Play(protocol.begin(terms()))
    attempt = play.script("claim_begin").args[1]
    play.answer(reply, sends=2)
    withdraw = play.script("claim_withdraw")
    assert withdraw.args == ("me", attempt)
    assert not withdraw.patient
    assert isinstance(play.answer([0]).result, Standing)


def test_an_attempt_that_was_reclaimed_before_its_answer_is_followed_by_a_fresh_one() -> None:
    play = Play(protocol.begin(terms()))
    first = play.script("claim_begin").args[1]
    play.answer(ENDED, sends=2)
    play.script("claim_withdraw")
    play.answer([0])
    second = play.script("claim_begin").args[1]
    assert first != second
    assert isinstance(play.answer(BEGUN).result, Begun)


def test_no_answer_is_withdrawn_and_then_nothing_has_begun() -> None:
    play = Play(protocol.begin(terms()))
    play.throw(unknown())
    play.script("claim_withdraw")
    with pytest.raises(StoreUnavailable, match="nothing has begun"):
        play.answer([0])


def test_no_answer_to_the_withdraw_either_is_unknown() -> None:
    play = Play(protocol.begin(terms()))
    play.throw(unknown())
    with pytest.raises(OutcomeUnknown):
        play.throw(unknown())


def test_what_was_never_sent_needs_no_withdraw() -> None:
    with pytest.raises(StoreUnavailable):
        Play(protocol.begin(terms())).throw(StoreUnavailable("no connection"))


def test_an_error_reply_answers_its_own_copy_only() -> None:
    with pytest.raises(StoreRefused):
        Play(protocol.begin(terms())).throw(refused())
    play = Play(protocol.begin(terms()))
    play.throw(refused(sends=2))
    play.script("claim_withdraw")
    with pytest.raises(StoreRefused):
        play.answer([0])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), RuntimeError("cancelled")])
def test_a_begin_that_is_interrupted_is_withdrawn(error: BaseException) -> None:
    play = Play(protocol.begin(terms()))
    attempt = play.script("claim_begin").args[1]
    play.throw(error)
    assert play.script("claim_withdraw").args[1] == attempt
    with pytest.raises(type(error)):
        play.answer([1])


def test_waiting_listens_tries_again_and_sleeps_until_the_lease_is_over() -> None:
    play = Play(protocol.begin(terms(), wait=5.0))
    play.asks(Now)
    play.send(100.0)
    play.answer(running())
    assert play.asks(Listen).channel == CHANNEL
    play.send()
    play.answer(running(600))
    play.asks(Now)
    play.send(101.0)
    step = play.asks(AwaitWake)
    assert step.seconds == pytest.approx(4.0)
    assert 0.6 < step.alarm < 0.63
    play.send(True)  # noqa: FBT003 - a wake
    play.send(101.5)
    play.answer(DONE)
    unlisten = play.asks(Unlisten)
    assert unlisten == Unlisten(CHANNEL, None), "who waits beside us is told at once"
    assert play.send().result.outcome is BeginOutcome.ALREADY_DONE


def test_a_waiter_that_takes_over_lets_the_others_sleep_through_its_lease() -> None:
    play = Play(protocol.begin(terms(), wait=5.0))
    play.send(100.0).answer(running()).send().answer([b"reclaimed", 8, 2])
    assert play.asks(Unlisten).alarm == pytest.approx(1.0)
    assert isinstance(play.send().result, Begun)


def test_waiting_ends_in_time() -> None:
    play = Play(protocol.begin(terms(), wait=5.0))
    play.send(100.0).answer(running()).send().answer(running()).send(100.1)
    play.asks(AwaitWake)
    play.send(False).send(105.0)  # noqa: FBT003 - no wake
    play.asks(Unlisten)
    assert play.send().result.outcome is BeginOutcome.IN_PROGRESS
    play = Play(protocol.begin(terms(), wait=0.0))
    play.send(100.0).answer(running()).send().answer(running()).send(100.0)
    play.asks(Unlisten)
    assert play.send().result.outcome is BeginOutcome.IN_PROGRESS


def test_the_alarm_that_a_waiter_leaves_behind_counts_from_its_end() -> None:
    """Found in the lock's twin: the next waiter looked late by as long as this one had slept."""
    play = Play(protocol.begin(terms(), wait=5.0))
    play.send(100.0).answer(running()).send().answer(running(9_000)).send(100.0)
    play.send(False).send(105.0)  # noqa: FBT003 - no wake
    alarm = play.asks(Unlisten).alarm
    assert alarm is not None
    assert 4.0 < alarm < 4.1


def test_a_waiter_that_slept_longer_than_the_lease_leaves_no_time_behind() -> None:
    play = Play(protocol.begin(terms(), wait=5.0))
    play.send(100.0).answer(running()).send().answer(running(1_000)).send(100.0)
    play.send(False).send(105.0)  # noqa: FBT003 - no wake
    assert play.asks(Unlisten).alarm == 0.0


def test_a_waiter_looks_just_after_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "random", lambda: 0.0)
    play = Play(protocol.begin(terms(), wait=500.0))
    play.send(100.0).answer(running()).send().answer(running(90_000)).send(100.0)
    assert play.asks(AwaitWake).alarm == pytest.approx(90.002)


def test_a_withdraw_tells_whether_the_attempt_had_begun() -> None:
    operation = protocol.withdraw(terms(), "a" * 32)
    assert [operation.parse([number]) for number in (1, 0)] == [True, False]


def test_a_waiter_woken_as_its_time_runs_out_still_tries() -> None:
    """Found in the lock's twin: a wake went to a waiter that left without trying, and was lost."""
    play = Play(protocol.begin(terms(), wait=5.0))
    play.send(100.0).answer(running()).send().answer(running()).send(100.1)
    play.send(True).send(105.0)  # noqa: FBT003 - a wake
    play.script("claim_begin")
    play.answer(DONE)
    play.asks(Unlisten)
    assert play.send().result.outcome is BeginOutcome.ALREADY_DONE


def test_each_try_of_a_waiter_is_an_attempt_of_its_own() -> None:
    play = Play(protocol.begin(terms(), wait=5.0))
    play.send(100.0)
    first = play.script("claim_begin").args[1]
    play.answer(running()).send()
    assert play.script("claim_begin").args[1] != first


def test_a_waiter_that_is_cancelled_asleep_leaves_nothing_to_withdraw() -> None:
    play = Play(protocol.begin(terms(), wait=5.0))
    play.send(100.0).answer(running()).send().answer(running()).send(100.1)
    play.asks(AwaitWake)
    with pytest.raises(KeyboardInterrupt):
        play.throw(KeyboardInterrupt())


def test_a_waiter_that_began_and_is_cancelled_before_it_knows_gives_back() -> None:
    play = Play(protocol.begin(terms(), wait=5.0))
    play.send(100.0).answer(running()).send()
    attempt = play.script("claim_begin").args[1]
    play.answer(BEGUN)
    play.asks(Unlisten)
    play.throw(KeyboardInterrupt())
    assert play.script("claim_withdraw").args[1] == attempt
    with pytest.raises(KeyboardInterrupt):
        play.answer([1])


def test_terms_for_one_attempt_only_are_otherwise_the_same() -> None:
    some = terms(fingerprint="f", max_attempts=3, task_id="t")
    one = some.reclaiming("b" * 32)
    assert one.reclaim == "b" * 32
    same = [name for name in Terms.__slots__ if name != "reclaim"]
    assert [getattr(one, name) for name in same] == [getattr(some, name) for name in same]
