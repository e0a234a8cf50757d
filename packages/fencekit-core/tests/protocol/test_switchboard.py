"""`Switchboard`: of the local waiters one is woken, and a wake that it cannot use is not lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencekit.drivers.switchboard import BaseWaiter, Switchboard

NEVER = 1e9


class Waiter(BaseWaiter):
    """A waiter that counts its signals."""

    def __init__(self, name: str = "a", channel: str = "c") -> None:
        super().__init__(channel)
        self.name = name
        self.signals = 0

    def signal(self) -> None:
        self.signals += 1

    def __repr__(self) -> str:
        return self.name


Board = Switchboard[Waiter]


def joined(count: int = 3) -> tuple[Board, list[Waiter]]:
    board: Board = Switchboard()
    waiters = [Waiter(f"w{number}") for number in range(count)]
    for waiter in waiters:
        board.join(waiter)
    return board, waiters


def pending(waiters: list[Waiter]) -> list[int]:
    return [number for number, waiter in enumerate(waiters) if waiter.pending]


def test_a_message_wakes_the_first_only() -> None:
    board, waiters = joined()
    board.message("c")
    assert pending(waiters) == [0]
    assert [waiter.signals for waiter in waiters] == [1, 0, 0]


def test_a_message_on_another_channel_wakes_nobody() -> None:
    board, waiters = joined()
    board.message("d")
    assert pending(waiters) == []


def test_a_wake_is_used_once() -> None:
    board, (waiter, *_) = joined()
    assert not board.take_wake(waiter)
    board.message("c")
    assert board.take_wake(waiter)
    assert not board.take_wake(waiter)


def test_a_wake_that_came_between_two_waits_is_kept() -> None:
    board, (waiter, *_) = joined()
    board.message("c")
    board.begin_wait(waiter, 10.0)
    assert board.take_wake(waiter)


def test_two_messages_before_the_first_looks_are_one_wake() -> None:
    board, (first, *_) = joined()
    board.message("c")
    board.message("c")
    assert board.take_wake(first)
    assert not board.take_wake(first)


@pytest.mark.parametrize("failed", [True, False])
def test_a_wake_not_used_goes_to_the_next(failed: bool) -> None:  # noqa: FBT001
    board, waiters = joined()
    board.message("c")
    board.leave(waiters[0], 99.0, 1.0, failed=failed)
    assert pending(waiters[1:]) == [0]
    assert waiters[1].signals == 1


def test_a_wake_used_in_vain_by_one_that_failed_goes_to_the_next() -> None:
    board, waiters = joined()
    board.message("c")
    board.take_wake(waiters[0])
    board.leave(waiters[0], None, 1.0, failed=True)
    assert pending(waiters[1:]) == [0]


def test_a_wake_used_well_wakes_nobody_else() -> None:
    board, waiters = joined()
    board.message("c")
    board.take_wake(waiters[0])
    board.leave(waiters[0], 31.0, 1.0, failed=False)
    assert pending(waiters[1:]) == []
    assert board.look_at(waiters[1], 100.0, NEVER) == 31.0, "the next looks when that lease is over"


def test_only_the_first_heeds_the_alarm() -> None:
    board, waiters = joined()
    for waiter, alarm in zip(waiters, (5.0, 6.0, 7.0), strict=True):
        board.begin_wait(waiter, alarm)
    assert [board.look_at(waiter, 100.0, NEVER) for waiter in waiters] == [5.0, 100.0, 100.0]


def test_nobody_looks_after_the_end_of_its_wait() -> None:
    board, (first, *_) = joined()
    board.begin_wait(first, 50.0)
    assert board.look_at(first, 20.0, NEVER) == 20.0


def test_one_that_leaves_without_a_word_has_the_next_look_at_once() -> None:
    board, waiters = joined()
    board.leave(waiters[0], None, 1.0, failed=True)
    assert pending(waiters[1:]) == [0]


def test_one_that_leaves_from_the_middle_is_not_missed() -> None:
    board, waiters = joined()
    board.begin_wait(waiters[0], 5.0)
    board.leave(waiters[1], None, 1.0, failed=True)
    assert pending(waiters) == []
    assert board.look_at(waiters[0], 100.0, NEVER) == 5.0


def test_leaving_twice_is_leaving_once() -> None:
    board, waiters = joined()
    board.leave(waiters[0], 9.0, 1.0, failed=False)
    board.leave(waiters[0], None, 1.0, failed=True)
    assert pending(waiters[1:]) == []


def test_after_a_reconnect_all_look_once_they_can_be_told() -> None:
    board, waiters = joined()
    board.confirm("c")
    assert pending(waiters) == []
    board.disconnected()
    assert all(board.take_wake(waiter) for waiter in waiters)
    board.disconnected()
    assert pending(waiters) == [], "nobody has relied on it since"
    board.confirm("c")
    assert pending(waiters) == [0, 1, 2]


def test_without_a_channel_only_the_first_looks_now_and_then() -> None:
    board, waiters = joined()
    board.begin_wait(waiters[0], 60.0)
    assert [board.look_at(waiter, 90.0, 0.5) for waiter in waiters] == [0.5, 90.0, 90.0]
    board.confirm("c")
    assert [board.look_at(waiter, 90.0, 0.5) for waiter in waiters] == [60.0, 90.0, 90.0]


def test_a_lost_connection_confirms_nothing_and_all_look() -> None:
    board, waiters = joined()
    board.confirm("c")
    board.disconnected()
    assert not board.channels["c"].confirmed
    assert pending(waiters) == [0, 1, 2]


def test_a_channel_is_given_up_when_nobody_has_waited_for_a_while() -> None:
    board, waiters = joined(1)
    assert board.idle(before=100.0) == []
    board.leave(waiters[0], None, 5.0, failed=False)
    assert board.idle(before=4.0) == []
    assert board.idle(before=5.0) == ["c"]
    assert board.channels == {}


def test_a_channel_that_is_waited_for_again_is_kept() -> None:
    board, waiters = joined(1)
    board.leave(waiters[0], None, 5.0, failed=False)
    board.join(Waiter())
    assert board.idle(before=100.0) == []


def test_the_alarm_of_a_channel_goes_with_its_last_waiter() -> None:
    board, waiters = joined(1)
    board.leave(waiters[0], 9.0, 5.0, failed=False)
    late = Waiter()
    board.join(late)
    assert board.look_at(late, 100.0, NEVER) == 100.0


def test_a_new_waiter_waits_behind_the_others() -> None:
    board, waiters = joined()
    board.join(Waiter("last"))
    board.message("c")
    assert pending(waiters) == [0]


# -- ears ---------------------------------------------------------------------------------------


def test_ears_are_told_every_message_and_waiters_as_well() -> None:
    board, waiters = joined()

    def ear(name: str, message: bytes | None) -> None:
        del name, message

    board.subscribe("c", ear)
    assert board.message("c") == [("c", ear)]
    assert pending(waiters) == [0]
    assert board.confirm("c") == []
    assert board.disconnected() == [("c", ear)]
    assert board.confirm("c") == [("c", ear)], "it may have missed some"
    assert board.confirm("c") == []
    board.unsubscribe("c", ear, 5.0)
    assert board.idle(before=5.0) == [], "the waiters still wait"
    for waiter in waiters:
        board.leave(waiter, None, 6.0, failed=False)
    assert board.idle(before=6.0) == ["c"]


# -- whatever the order -------------------------------------------------------------------------

_events = st.lists(
    st.sampled_from(["join", "message", "try", "leave", "fail", "leave last", "reconnect"]),
    max_size=40,
)


@given(_events)
def test_no_wake_is_lost_as_long_as_anybody_waits(events: list[str]) -> None:
    """After a message somebody who waits is about to look, until somebody has looked."""
    board: Board = Switchboard()
    waiters: list[Waiter] = []
    owed = False
    for number, event in enumerate(events):
        if event == "join":
            waiters.append(Waiter(f"w{number}"))
            board.join(waiters[-1])
        elif event == "message":
            board.message("c")
            owed = True
        elif event == "reconnect":
            board.confirm("c")
            board.disconnected()
        elif event == "try" and waiters and board.take_wake(waiters[0]):
            owed = False  # it looked, was refused, and sleeps again
            board.begin_wait(waiters[0], 60.0)
        elif event != "try" and waiters:
            waiter = waiters.pop(-1 if event == "leave last" else 0)
            if event == "fail":
                board.take_wake(waiter)  # woken, and broken before it could look
                board.leave(waiter, None, 1.0, failed=True)
            else:
                board.leave(waiter, 60.0, 1.0, failed=False)
        owed = owed and bool(waiters)  # who comes later looks by itself
        assert not owed or any(waiter.pending for waiter in waiters)
