"""The acquire flow, step by step, without a server.

Those that `red_by` marks are run once more, and fail, with that rule taken out: entering on an
offer whatever its age, ending a cancelled acquire without a withdraw. Seen to fail by hand, with
`OpenMail` moved behind the first `acquire_operation`:
`test_it_opens_its_mailbox_before_it_takes_a_place`.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from fencekit.errors import FenceKitError, OutcomeUnknown, StoreRefused, StoreUnavailable
from fencekit.fifo import protocol
from fencekit.fifo.offers import Offer, TakeUp
from fencekit.fifo.protocol import RECHECK, FifoGrant, Holder
from fencekit.protocol.lock import Refusal, Verdict
from fencekit.protocol.operation import Answer, AwaitMail, Now, OpenMail, Operation
from harness.fifo import make_ticket
from harness.flows import Play
from harness.mutations import changed, nothing_is_withdrawn, red_by

TICKET = make_ticket()

QUEUED = Answer([0, 900, b"her:" + b"b" * 32 + b":41", b"1000000", 0, 2, 0], sent_at=10.0)


class FakePlace:
    def __init__(self, *, ready: bool = True) -> None:
        self.ready = ready
        self.until = math.inf
        self.told: list[str] = []

    def open(self) -> None:
        raise AssertionError("only a driver opens it")

    def receive(self, seconds: float | None) -> None:
        raise AssertionError(f"only a driver waits for it, {seconds} s")

    def queued(self, answer: Answer, holder: Holder, *, revived: bool) -> None:
        assert answer.reply[0] == 0
        self.told.append("revived" if revived else f"queued behind {holder.owner_id}")

    def heard(self, answer: Answer, holder: Holder) -> None:
        assert answer.sent_at >= 0
        self.told.append(f"heard of {holder.owner_id}")

    def entered(self) -> None:
        self.told.append("entered")

    def close(self) -> None:
        self.told.append("closed")


def _offered(take_up: TakeUp) -> Offer:
    """An offer whose take-up is under way."""
    offer = Offer.make(42, 25.0, 5.0)
    offer.take_up = take_up
    return offer


class Driven:
    """A flow, and the step that it waits at."""

    def __init__(self, wait: float | None = None, *, ready: bool = True) -> None:
        self.place = FakePlace(ready=ready)
        self.flow = protocol.acquire(TICKET, self.place, wait)
        self.step: Any = next(self.flow)

    def send(self, value: Any) -> Any:
        self.step = self.flow.send(value)
        return self.step

    def end(self, value: Any) -> FifoGrant | Refusal:
        with pytest.raises(StopIteration) as stop:
            self.flow.send(value)
        outcome: FifoGrant | Refusal = stop.value.value
        return outcome

    def granted(self, value: Any) -> FifoGrant:
        outcome = self.end(value)
        assert isinstance(outcome, FifoGrant)
        return outcome

    def throw(self, error: BaseException) -> Any:
        self.step = self.flow.throw(error)
        return self.step

    def at(self, kind: type[object]) -> None:
        assert isinstance(self.step, kind)

    @property
    def script(self) -> str:
        assert isinstance(self.step, Operation)
        return self.step.script.name

    def to_the_mailbox(self) -> None:
        """Take a place and wait."""
        self.at(OpenMail)
        self.send(None)
        self.send(QUEUED)
        if isinstance(self.step, Now):
            self.send(11.0)
        self.at(AwaitMail)


def test_a_free_lock_costs_one_look() -> None:
    driven = Driven(ready=False)
    assert driven.script == "fifo_look"
    grant = driven.granted(Answer([1, b"42", 0], sent_at=10.0))
    assert (int(grant.token), grant.deadline, grant.before, grant.queued) == (42, 70.0, 0, False)
    assert driven.place.told == ["closed"]


def test_it_opens_its_mailbox_before_it_takes_a_place() -> None:
    driven = Driven(ready=False)
    driven.send(Answer([0]))
    driven.at(OpenMail)
    driven.send(None)
    assert driven.script == "fifo_acquire"
    driven.send(QUEUED)
    assert driven.step == AwaitMail(driven.place, None)
    assert driven.place.told == ["queued behind her"]


def test_a_subscribed_process_takes_its_place_at_once() -> None:
    driven = Driven()
    driven.at(OpenMail)
    driven.send(None)
    assert driven.script == "fifo_acquire"
    grant = driven.granted(Answer([1, b"42", 0], sent_at=10.0))
    assert not grant.queued
    # A message that still names it must not free the lock.
    assert driven.place.told == ["entered", "closed"]


def test_a_fresh_offer_is_entered_at_once_while_its_take_up_is_under_way() -> None:
    driven = Driven()
    driven.to_the_mailbox()
    take_up = TakeUp(60.0)
    offer = _offered(take_up)
    driven.send(offer)
    driven.at(Now)
    grant = driven.granted(22.4)
    assert (int(grant.token), grant.deadline, grant.before) == (42, 25.0, 2)
    assert grant.take_up is take_up
    assert grant.queued


@red_by(changed(Offer, "make", lambda token, deadline, _: Offer(token, deadline, deadline)))
def test_a_stale_offer_is_asked_for() -> None:
    driven = Driven()
    driven.to_the_mailbox()
    driven.send(_offered(TakeUp(60.0)))
    driven.send(22.6)
    assert driven.script == "fifo_renew"
    driven.send(Answer([0]))
    # It has lapsed: the place is asked for, and is there still.
    assert driven.script == "fifo_acquire"
    driven.send(QUEUED)
    driven.send(Offer.make(43, 35.0, 5.0))
    assert driven.script == "fifo_renew"
    grant = driven.granted(Answer([1, 60_000], sent_at=31.0))
    assert (int(grant.token), grant.deadline) == (43, 91.0)


def test_a_take_up_that_was_refused_is_not_entered_on() -> None:
    driven = Driven()
    driven.to_the_mailbox()
    take_up = TakeUp(60.0)
    take_up.refused = True
    driven.send(_offered(take_up))
    assert driven.script == "fifo_renew"


def test_a_grant_of_our_own_process_is_entered_at_once() -> None:
    driven = Driven()
    driven.to_the_mailbox()
    driven.send(Offer.make(42, 70.0, 5.0, taken=True))
    grant = driven.granted(11.0)
    assert (int(grant.token), grant.deadline, grant.take_up) == (42, 70.0, None)


def test_a_recheck_asks_again_and_keeps_the_place() -> None:
    driven = Driven()
    driven.to_the_mailbox()
    driven.send(RECHECK)
    assert driven.script == "fifo_acquire"
    driven.send(QUEUED)
    driven.at(AwaitMail)


def test_running_out_of_time_gives_up_the_place() -> None:
    driven = Driven(5.0)
    driven.at(Now)
    driven.send(10.0)
    driven.to_the_mailbox()
    assert driven.step == AwaitMail(driven.place, 4.0)
    driven.send(None)
    assert driven.script == "fifo_withdraw"
    assert driven.step.args[-1] == 0, "every copy was answered: there is nothing to bury"
    outcome = driven.end(Answer([0, 900, b"her:x:41", b"1000000", 0]))
    assert outcome == Refusal(900, "her")
    assert driven.place.told == ["queued behind her", "closed", "heard of her"]


def test_no_time_at_all_takes_no_place() -> None:
    driven = Driven(0)
    driven.send(10.0)
    assert driven.script == "fifo_look"
    driven.send(Answer([0]))
    assert driven.script == "fifo_acquire"
    assert driven.step.args[-1] == 0
    refused = Answer([0, 900, b"her:x:41", b"1000000", 0, -1, 0])
    assert driven.end(refused) == Refusal(900, "her")


@red_by(nothing_is_withdrawn)
def test_cancelled_while_it_waits_it_withdraws() -> None:
    driven = Driven()
    driven.to_the_mailbox()
    driven.throw(asyncio.CancelledError())
    assert driven.script == "fifo_withdraw"
    with pytest.raises(asyncio.CancelledError):
        driven.flow.send(Answer([0, 0, b"", b"1000000", 0]))
    assert "closed" in driven.place.told


@red_by(nothing_is_withdrawn)
def test_cancelled_while_a_command_is_under_way_it_buries_the_attempt() -> None:
    driven = Driven()
    driven.send(None)
    driven.throw(asyncio.CancelledError())
    assert driven.script == "fifo_withdraw"
    assert driven.step.args[-1] == 1
    with pytest.raises(asyncio.CancelledError):
        driven.flow.send(Answer([0, 0, b"", b"1000000", 0]))


def test_a_resent_acquire_is_buried_when_it_ends() -> None:
    driven = Driven(5.0)
    driven.send(10.0)
    driven.send(None)
    driven.send(Answer(QUEUED.reply, sends=2, sent_at=10.0))
    driven.send(11.0)
    driven.send(None)
    assert driven.script == "fifo_withdraw"
    assert driven.step.args[-1] == 1


def test_nothing_was_sent_nothing_is_withdrawn() -> None:
    driven = Driven(ready=False)
    with pytest.raises(StoreUnavailable):
        driven.flow.throw(StoreUnavailable("not sent"))
    assert driven.place.told == ["closed"]


@pytest.mark.parametrize(
    ("withdrawn", "expected"),
    [(True, StoreUnavailable), (False, OutcomeUnknown)],
    ids=["answered", "unanswered"],
)
def test_an_unknown_outcome_is_undone(*, withdrawn: bool, expected: type[FenceKitError]) -> None:
    driven = Driven()
    driven.send(None)
    driven.throw(OutcomeUnknown("no answer"))
    assert driven.script == "fifo_withdraw"
    answered = Answer([0, 0, b"", b"1000000", 0])
    with pytest.raises(expected):
        driven.flow.send(answered) if withdrawn else driven.flow.throw(StoreUnavailable("gone"))


def test_a_refusal_of_the_server_passes_through() -> None:
    driven = Driven(ready=False)
    error = StoreRefused("OOM", "out of memory")
    with pytest.raises(StoreRefused):
        driven.flow.throw(error)


def test_a_process_that_counted_as_dead_says_so() -> None:
    driven = Driven()
    driven.send(None)
    driven.send(Answer([*QUEUED.reply[:6], 1], sent_at=10.0))
    assert driven.place.told == ["revived"]


def test_a_release_tells_who_is_next() -> None:
    heard: list[Holder] = []
    grant = FifoGrant(TICKET.claimant, 42, 70.0)
    flow = protocol.release(TICKET, grant, lambda _answer, holder: heard.append(holder))
    next(flow)
    with pytest.raises(StopIteration) as stop:
        flow.send(Answer([1, 60_000, b"her:" + b"b" * 32 + b":43", b"2000000", 1]))
    assert stop.value.value is Verdict.RELEASED
    assert heard == [Holder("her", "b" * 32, 43, 60_000, 2_000_000, own=True)]


def test_a_cancelled_release_asks_again_for_whoever_is_next() -> None:
    heard: list[Holder] = []
    grant = FifoGrant(TICKET.claimant, 42, 70.0)
    flow = protocol.release(TICKET, grant, lambda _answer, holder: heard.append(holder))
    first = next(flow)
    assert flow.throw(asyncio.CancelledError()) == first
    with pytest.raises(asyncio.CancelledError):
        flow.send(Answer([2, 60_000, b"her:" + b"b" * 32 + b":43", b"2000000", 0]))
    assert [holder.token for holder in heard] == [43]


def test_a_lock_that_was_lost_and_is_said_to_be_free_was_lost_by_a_failover() -> None:
    grant = FifoGrant(TICKET.claimant, 42, 70.0)
    grant.lost = True
    for verdict in (Verdict.LOST, Verdict.RELEASED_BEFORE):  # asked once, and once more
        play = Play(protocol.release(TICKET, grant, lambda _answer, _holder: None))
        assert play.answer([2]).result is verdict


def test_a_release_that_never_left_cannot_have_done_it() -> None:
    """A failover refuses the first release, and the second was taken for a repeat."""
    grant = FifoGrant(TICKET.claimant, 42, 70.0)
    grant.lost = True
    with pytest.raises(StoreUnavailable):
        Play(protocol.release(TICKET, grant, lambda _answer, _holder: None)).throw(
            StoreUnavailable("the primary is gone")
        )
    play = Play(protocol.release(TICKET, grant, lambda _answer, _holder: None))
    assert play.answer([2]).result is Verdict.LOST


def test_a_release_with_nobody_queued_has_nothing_to_tell() -> None:
    grant = FifoGrant(TICKET.claimant, 42, 70.0)
    flow = protocol.release(TICKET, grant, lambda _answer, _holder: pytest.fail("told"))
    next(flow)
    with pytest.raises(StopIteration) as stop:
        flow.send(Answer([0]))
    assert stop.value.value is Verdict.LOST
