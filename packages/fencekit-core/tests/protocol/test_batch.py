"""Flows side by side, driven by hand: in rounds, one's error its own, interrupted together."""

from __future__ import annotations

from typing import Any

import pytest

from fencekit.errors import OutcomeUnknown, StoreUnavailable
from fencekit.protocol.batch import side_by_side
from fencekit.protocol.operation import (
    Answer,
    Flow,
    Listen,
    Now,
    Operation,
    Sleep,
    Together,
    perform,
    trace,
)
from fencekit.protocol.script import Script
from harness.flows import Play

SCRIPT = Script.parse("x", "--- X.\n-- Safe to re-send: yes\nreturn 1\n")


class Interrupt(BaseException):
    """As Ctrl-C."""


def operation(key: str) -> Operation[Any]:
    return Operation(SCRIPT, (key,), (), lambda reply: reply)


def asked(play: Play[Any]) -> list[str]:
    return [one.keys[0] for one in play.asks(Together).operations]


def tidying(key: str) -> Flow[Any]:
    try:
        return (yield from perform(operation(key)))
    except Interrupt:
        yield operation(f"tidy {key}")
        raise


def patiently(key: str, seconds: float) -> Flow[Any]:
    """As a completion: an error of the store is not the end."""
    while True:
        try:
            return (yield from perform(operation(key)))
        except StoreUnavailable:
            now = yield Now()
            if now >= 10.0:
                raise
        yield Sleep(seconds)


def test_what_is_asked_in_one_round_goes_together_and_each_has_its_outcome() -> None:
    play = Play(side_by_side([perform(operation("a")), trace(operation("b"))]))
    assert asked(play) == ["a", "b"]
    assert play.send([Answer(1), answer := Answer(2)]).result == [1, answer]


def test_none_ask_nothing() -> None:
    assert Play(side_by_side([])).result == []


def test_an_error_is_of_one() -> None:
    error = OutcomeUnknown("no answer", sends=2)
    play = Play(side_by_side([perform(operation(key)) for key in "abc"]))
    assert play.send([Answer(1), error, Answer(3)]).result == [1, error, 3]


def test_one_pause_and_one_look_at_the_clock_are_for_all() -> None:
    away = StoreUnavailable("away")
    flows = [patiently("a", 0.1), patiently("b", 0.3), perform(operation("c"))]
    play = Play(side_by_side(flows))
    play.send([away, away, Answer(3)]).asks(Now)
    assert play.send(1.0).asks(Sleep).seconds == 0.3
    assert asked(play.send()) == ["a", "b"]
    play.send([away, Answer(2)]).asks(Now)
    assert play.send(10.0).result == [away, 2, 3]


def test_nobody_sleeps_while_another_asks() -> None:
    def two_steps() -> Flow[Any]:
        yield operation("first")
        return (yield from perform(operation("second")))

    play = Play(side_by_side([patiently("a", 0.1), two_steps()]))
    play.send([StoreUnavailable("away"), Answer(1)]).asks(Now)
    assert asked(play.send(1.0)) == ["second"]
    assert asked(play.send([Answer(2)]).send()) == ["a"]
    assert play.send([Answer(1)]).result == [1, 2]


def test_an_interrupt_is_for_all_and_what_they_tidy_up_goes_together() -> None:
    play = Play(side_by_side([tidying("a"), perform(operation("b")), tidying("c")]))
    interrupt = Interrupt()
    assert asked(play.throw(interrupt)) == ["tidy a", "tidy c"]
    with pytest.raises(Interrupt) as raised:
        play.send([Answer(1), StoreUnavailable("away")])
    assert raised.value is interrupt


def test_an_interrupt_takes_back_what_had_ended_well() -> None:
    def undo(outcome: int) -> Operation[Any] | None:
        return operation(f"undo {outcome}") if outcome > 1 else None

    flows = [perform(operation(key)) for key in "abc"]
    play = Play(side_by_side([*flows, patiently("d", 0.1)], undo))
    away = StoreUnavailable("away")
    play.send([Answer(1), Answer(2), OutcomeUnknown("no answer", sends=1), away]).asks(Now)
    assert asked(play.throw(Interrupt())) == ["undo 2"]
    with pytest.raises(Interrupt):
        play.send([OutcomeUnknown("no answer", sends=1)])


def test_an_interrupt_of_the_tidying_ends_it() -> None:
    play = Play(side_by_side([tidying("a"), tidying("b")]))
    play.throw(Interrupt("first"))
    with pytest.raises(Interrupt, match="second"):
        play.throw(Interrupt("second"))
    assert play.ended


def test_a_flow_that_goes_wrong_is_an_interrupt_to_the_others() -> None:
    def wrong() -> Flow[Any]:
        yield operation("wrong")
        raise ZeroDivisionError

    play = Play(side_by_side([perform(operation("a")), wrong()], lambda _: operation("undo a")))
    assert asked(play.send([Answer(1), Answer(2)])) == ["undo a"]
    with pytest.raises(ZeroDivisionError):
        play.send([Answer(1)])


def test_what_cannot_be_done_side_by_side_is_refused() -> None:
    def listening() -> Flow[Any]:
        yield Listen("channel")

    with pytest.raises(TypeError, match="Listen"):
        Play(side_by_side([listening()]))


def test_flows_that_nobody_drives_any_more_are_closed() -> None:
    closed: list[str] = []

    def careful() -> Flow[Any]:
        try:
            yield operation("a")
        finally:
            closed.append("a")

    one = careful()  # kept here, or it would be closed as nobody's
    flow = side_by_side([one])
    next(flow)
    flow.close()
    assert closed == ["a"]
    one.close()


def test_every_question_has_an_answer() -> None:
    play = Play(side_by_side([perform(operation("a")), perform(operation("b"))]))
    with pytest.raises(ValueError, match="shorter"):
        play.send([Answer(1)])
