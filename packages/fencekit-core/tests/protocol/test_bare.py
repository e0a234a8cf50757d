"""The bare lock's flows, step by step: no server, no clock."""

from __future__ import annotations

from typing import Any

import pytest

from fencekit.errors import OutcomeUnknown
from fencekit.protocol.bare import BareClaim, acquire, extend, release
from fencekit.protocol.operation import AwaitWake, Listen, Now, Unlisten
from harness.flows import Play

CLAIM = BareClaim("nightly", "fencekit:nightly", "a" * 32, 10_000)
GRANTED = [1]
WAKE, NO_WAKE = True, False


def held(left_ms: int) -> list[Any]:
    return [0, left_ms]


def test_an_acquire_is_one_command_and_its_deadline_counts_from_the_send() -> None:
    play = Play(acquire(CLAIM))
    operation = play.script("bare_acquire")
    assert (operation.keys, operation.args) == (("nightly",), ("a" * 32, 10_000))
    assert play.answer(GRANTED, sent_at=100.0).result == pytest.approx(110.0)


def test_who_does_not_wait_is_told_at_once() -> None:
    for left_ms in (500, 1, -1):
        assert Play(acquire(CLAIM)).answer(held(left_ms)).result is None


def test_a_waiter_listens_tries_again_and_sleeps_until_the_timeout_is_over() -> None:
    play = Play(acquire(CLAIM, 5.0))
    play.asks(Now)
    play.send(100.0).answer(held(500))
    play.asks(Now)
    play.send(100.0)
    assert play.asks(Listen) == Listen("fencekit:nightly", 105.0)
    play.send().answer(held(50)).send(101.0)
    step = play.asks(AwaitWake)
    assert step.channel == "fencekit:nightly"
    assert step.seconds == pytest.approx(4.0)
    assert step.alarm == pytest.approx(0.051)
    play.send(WAKE)
    play.script("bare_acquire")
    play.answer(GRANTED, sent_at=102.0)
    # Whoever waits beside us sleeps through our whole lease.
    assert play.asks(Unlisten) == Unlisten("fencekit:nightly", 10.0)
    assert play.send().result == pytest.approx(112.0)


@pytest.mark.parametrize("left_ms", [60_000, -1])
def test_a_holder_of_another_library_releases_without_a_word(left_ms: int) -> None:
    """A timeout far away, and none: it is looked at ten times a second."""
    play = Play(acquire(CLAIM, 5.0))
    play.send(100.0).answer(held(left_ms)).send(100.0).send().answer(held(left_ms)).send(100.0)
    assert play.asks(AwaitWake).alarm == pytest.approx(0.1)


def test_a_timeout_that_is_over_is_looked_at_just_after() -> None:
    play = Play(acquire(CLAIM, 5.0))
    play.send(100.0).answer(held(0)).send(100.0).send().answer(held(0)).send(100.0)
    assert play.asks(AwaitWake).alarm == pytest.approx(0.001)


def test_a_wait_ends_in_time_and_the_next_waiter_looks_soon() -> None:
    play = Play(acquire(CLAIM, 5.0))
    play.send(100.0).answer(held(500)).send(100.0).send().answer(held(500)).send(101.0)
    play.send(NO_WAKE).answer(held(500)).send(105.0)
    assert play.asks(Unlisten) == Unlisten("fencekit:nightly", 0.1)
    assert play.send().result is None


def test_a_wait_that_is_over_at_once_listens_to_nothing() -> None:
    play = Play(acquire(CLAIM, 0.0))
    play.send(100.0).answer(held(500)).send(100.0)
    assert play.result is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OutcomeUnknown("?")])
def test_whatever_happens_the_key_is_given_back(error: BaseException) -> None:
    play = Play(acquire(CLAIM))
    play.throw(error)
    operation = play.script("bare_release")
    assert operation.args == ("a" * 32, "fencekit:nightly")
    assert not operation.patient
    with pytest.raises(type(error)):
        play.answer([0])


def test_an_error_of_giving_back_does_not_hide_the_first() -> None:
    play = Play(acquire(CLAIM))
    play.throw(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        play.throw(OutcomeUnknown("?"))


@pytest.mark.parametrize(("reply", "done"), [(1, True), (0, False)])
def test_release_and_extend_are_one_command(reply: int, done: bool) -> None:  # noqa: FBT001
    play = Play(release(CLAIM))
    operation = play.script("bare_release")
    assert (operation.keys, operation.args) == (("nightly",), ("a" * 32, "fencekit:nightly"))
    assert operation.patient
    assert play.answer([reply]).result is done
    play = Play(extend(CLAIM))
    operation = play.script("bare_extend")
    assert (operation.keys, operation.args) == (("nightly",), ("a" * 32, 10_000))
    assert play.answer([reply]).result is done
