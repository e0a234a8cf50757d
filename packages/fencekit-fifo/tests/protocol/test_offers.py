"""When an offer proves itself young enough to enter on.

Two are run once more, and fail, with `earliest` answering whatever `now` is (a clock that stepped
forward then makes a stale message look fresh), and with `fresh_until` at the end of the offer.
"""

from __future__ import annotations

from fencekit.fifo.offers import Offer, ServerClock, TakeUp
from fencekit.protocol.operation import Answer
from harness.fifo import make_ticket
from harness.mutations import changed, red_by

TICKET = make_ticket()

SECOND = 1_000_000

_earliest = ServerClock.earliest


def _whatever_now_is(clock: ServerClock, server_us: int, now: float) -> float:
    del now
    return _earliest(clock, server_us, 1e9)


def test_without_a_reply_nothing_is_proven() -> None:
    assert ServerClock().earliest(5 * SECOND, now=100.0) == float("-inf")


def test_a_message_is_dated_by_the_send_of_the_last_reply() -> None:
    clock = ServerClock()
    clock.note(100.0, 50 * SECOND)
    assert clock.earliest(51 * SECOND, now=103.0) == 101.0
    # The send, not the answer: the server cannot have read its clock before it.
    clock.note(102.0, 53 * SECOND)
    assert clock.earliest(53 * SECOND, now=103.0) == 102.0


@red_by(changed(ServerClock, "earliest", _whatever_now_is))
def test_a_grant_in_the_future_proves_nothing() -> None:
    clock = ServerClock()
    clock.note(100.0, 50 * SECOND)
    assert clock.earliest(50 * SECOND + 3600 * SECOND, now=101.0) == float("-inf")


@red_by(changed(Offer, "make", lambda token, deadline, **_: Offer(token, deadline, deadline)))
def test_an_offer_is_fresh_for_half_of_it() -> None:
    offer = Offer.make(7, deadline=105.0, offer=5.0)
    assert offer.fresh_until == 102.5


def test_a_take_up_tells_whoever_has_entered() -> None:
    told = []
    take_up = TakeUp(60.0)
    take_up.settled = lambda: told.append(take_up.deadline)
    take_up.answered(Answer([1, 60_000], sent_at=10.0))
    assert told == [70.0]
    assert not take_up.refused
    refused = TakeUp(60.0)
    refused.answered(Answer([0]))
    assert refused.refused
    assert refused.deadline is None
