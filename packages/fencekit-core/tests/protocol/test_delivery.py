"""`Delivery`: what becomes of one operation, whatever the server or the connection says to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencekit.drivers import delivery as deliveries
from fencekit.drivers.client import Address
from fencekit.drivers.delivery import Delivery, WireLost
from fencekit.errors import OutcomeUnknown, StoreRefused, StoreUnavailable
from fencekit.protocol.operation import Answer, Operation, Replication
from fencekit.protocol.resp import ErrorReply, pack, pack_script
from fencekit.protocol.script import Script

SAFE = Script.parse("safe", "--- X.\n-- Safe to re-send: yes\nreturn 1\n")
UNSAFE = Script.parse("unsafe", "--- X.\n-- Safe to re-send: no, it counts\nreturn 1\n")
REPLICATED = Replication(2, 700)


def delivery(
    script: Script = SAFE, *, started: float = 100.0, fails_over: bool = False, **terms: Any
) -> Delivery:
    operation = Operation(script, ("k",), ("a",), lambda reply: reply, **terms)
    return Delivery(operation, started, fails_over=fails_over)


def sent(under_way: Delivery, now: float = 100.0) -> Delivery:
    """Let a copy leave."""
    under_way.leaving(now)
    return under_way


def error(text: str) -> list[ErrorReply]:
    return [ErrorReply(text)]


def until_it_stops(
    under_way: Delivery, move: Callable[[float], Answer | float], now: float = 100.0
) -> tuple[Exception, list[float]]:
    """Go on, pausing as long as is asked; returns the error at the end, and the pauses."""
    pauses: list[float] = []
    try:
        while len(pauses) < 1_000:
            pause = move(now)
            assert isinstance(pause, float)
            pauses.append(pause)
            now += pause
    except (StoreRefused, StoreUnavailable, OutcomeUnknown) as error:
        return error, pauses
    raise AssertionError(f"{under_way} goes on for ever")


def answering(under_way: Delivery, text: str) -> Callable[[float], Answer | float]:
    return lambda now: sent(under_way, now).answered(error(text), now)


def answer(outcome: Answer | float) -> Answer:
    assert isinstance(outcome, Answer)
    return outcome


BROKEN = WireLost(ConnectionResetError("reset"), sent=True)
NOT_MADE = WireLost(ConnectionRefusedError("refused"), sent=False)

# -- packing ------------------------------------------------------------------------------------


def test_hiredis_is_given_no_ints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found here: a signal whose handler raises while it packs one crashes the interpreter."""
    seen: list[object] = []
    packs = deliveries._pack

    def spy(command: tuple[object, ...]) -> bytes:
        seen.extend(command)
        return bytes(packs(command))

    monkeypatch.setattr(deliveries, "_pack", spy)
    operation = Operation(SAFE, ("k",), ("a", b"b", 7, -(2**60)), lambda reply: reply)
    assert Delivery(operation, 100.0).packed() == pack_script(operation)
    assert {type(part) for part in seen} == {str, bytes}


# -- answers ------------------------------------------------------------------------------------


def test_an_answer_knows_its_copies_and_its_send() -> None:
    under_way = sent(delivery(), 101.0)
    found = answer(under_way.answered([7], 102.0))
    assert (found.reply, found.sends, found.sent_at, found.replicas) == (7, 1, 101.0, 0)


def test_evalsha_first_and_eval_when_the_script_is_not_known() -> None:
    under_way = sent(delivery())
    assert b"EVALSHA" in under_way.packed()
    assert under_way.answered(error("NOSCRIPT No matching script"), 100.1) == 0.0
    assert under_way.packed().startswith(b"*5\r\n$4\r\nEVAL\r\n")
    found = answer(sent(under_way, 100.2).answered([7], 100.3))
    assert (found.sends, found.sent_at) == (1, 100.2), "the first was not carried out"


def test_a_server_that_does_not_know_the_whole_script_either_has_refused() -> None:
    under_way = sent(delivery())
    under_way.answered(error("NOSCRIPT"), 100.1)
    with pytest.raises(StoreRefused):
        sent(under_way).answered(error("NOSCRIPT"), 100.2)


@pytest.mark.parametrize("code", ["OOM", "NOPERM", "MISCONF", "WRONGTYPE", "ERR"])
def test_other_errors_are_refusals_with_their_code(code: str) -> None:
    with pytest.raises(StoreRefused) as raised:
        sent(delivery()).answered(error(f"{code} because"), 100.1)
    assert (raised.value.code, raised.value.sends) == (code, 1)


def test_a_refusal_after_a_lost_copy_counts_both() -> None:
    under_way = sent(delivery())
    under_way.lost(BROKEN, 100.1)
    with pytest.raises(StoreRefused) as raised:
        sent(under_way).answered(error("OOM x"), 100.2)
    assert raised.value.sends == 2, "the first may have been carried out"


# -- not now ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"])
def test_a_server_that_is_not_ready_is_asked_again_after_pauses(code: str) -> None:
    under_way = delivery()
    end, pauses = until_it_stops(under_way, answering(under_way, f"{code} wait"))
    assert isinstance(end, StoreRefused)
    assert end.code == code
    assert 8.0 < sum(pauses) < 9.0
    assert pauses[0] <= 0.04
    assert max(pauses) <= 0.5
    assert under_way.sends == 0, "none of them was carried out"


def test_a_tidying_step_waits_a_second_for_it() -> None:
    under_way = delivery(patient=False)
    end, pauses = until_it_stops(under_way, answering(under_way, "LOADING"))
    assert isinstance(end, StoreRefused)
    assert 1.0 < sum(pauses) < 2.0


def test_a_hasty_step_does_not_wait_at_all() -> None:
    with pytest.raises(StoreRefused):
        sent(delivery(hasty=True)).answered(error("LOADING"), 100.1)


# -- a fresh connection ---------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["READONLY", "NOAUTH"])
def test_a_fresh_connection_is_tried_once_at_once(code: str) -> None:
    under_way = sent(delivery())
    assert under_way.answered(error(f"{code} x"), 100.1) == 0.0
    assert under_way.reconnect
    with pytest.raises(StoreRefused) as raised:
        sent(under_way).answered(error(f"{code} x"), 100.2)
    assert raised.value.sends == 1


def test_behind_a_sentinel_a_read_only_server_is_waited_out() -> None:
    under_way = sent(delivery(fails_over=True))
    assert under_way.answered(error("READONLY x"), 100.1) == 0.0
    pause = sent(under_way).answered(error("READONLY x"), 100.2)
    assert isinstance(pause, float)
    assert 0.0 < pause <= 0.5
    assert answer(sent(under_way).answered([7], 101.0)).sends == 1


# -- redirects ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "address"),
    [
        ("10.0.0.1:7001", Address("10.0.0.1", 7001)),
        ("::1:7001", Address("::1", 7001)),
        (":7001", Address("", 7001)),
        ("node.example:7001", Address("node.example", 7001)),
    ],
)
def test_moved_says_where(where: str, address: Address) -> None:
    under_way = sent(delivery())
    assert under_way.answered(error(f"MOVED 866 {where}"), 100.1) == 0.0
    assert (under_way.node, under_way.asking, under_way.sends) == (address, False, 0)


def test_ask_is_answered_by_asking_first() -> None:
    under_way = sent(delivery())
    assert under_way.answered(error("ASK 866 10.0.0.1:7001"), 100.1) == 0.0
    assert (under_way.asking, under_way.replies) == (True, 2)
    assert under_way.packed().startswith(pack("ASKING"))
    assert answer(sent(under_way).answered([b"OK", 7], 100.2)).reply == 7


def test_a_guest_whose_script_is_not_known_asks_again() -> None:
    under_way = sent(delivery())
    under_way.answered(error("ASK 866 10.0.0.1:7001"), 100.1)
    assert sent(under_way).answered([b"OK", *error("NOSCRIPT")], 100.2) == 0.0
    assert under_way.packed().startswith(pack("ASKING") + b"*5\r\n$4\r\nEVAL\r\n")


def test_nodes_that_send_us_to_each_other_are_not_followed_for_ever() -> None:
    under_way = delivery()
    end, pauses = until_it_stops(under_way, answering(under_way, "MOVED 866 a:1"))
    assert isinstance(end, StoreRefused)
    assert end.code == "MOVED"
    assert len(pauses) < 100


# -- replicas -----------------------------------------------------------------------------------


def test_wait_travels_with_the_command_and_is_given_its_time() -> None:
    under_way = delivery(replication=REPLICATED)
    assert under_way.packed().endswith(pack("WAIT", 2, 700))
    assert (under_way.replies, under_way.patience) == (2, 0.7)
    assert answer(sent(under_way).answered([7, 2], 100.1)).replicas == 2


def test_a_wait_that_is_refused_says_so_and_that_the_command_was_done() -> None:
    """Found here: where the ACL has no WAIT, "0 of 2 replicas confirmed" sent people to them."""
    with pytest.raises(StoreRefused, match="no permissions to run the 'wait'") as refused:
        sent(delivery(replication=REPLICATED)).answered(
            [7, *error("NOPERM this user has no permissions to run the 'wait' command")], 100.1
        )
    assert refused.value.code == "NOPERM"
    assert refused.value.sends == 2  # one beside the one that the error answers: to be withdrawn


def test_an_error_of_the_command_beats_what_wait_says() -> None:
    with pytest.raises(StoreRefused):
        sent(delivery(replication=REPLICATED)).answered([*error("OOM"), 2], 100.1)


def test_a_guest_with_replicas() -> None:
    under_way = sent(delivery(replication=REPLICATED))
    under_way.answered([*error("ASK 866 a:1"), 0], 100.1)
    assert under_way.replies == 3
    found = answer(sent(under_way).answered([b"OK", 7, 2], 100.2))
    assert (found.reply, found.replicas) == (7, 2)


# -- the connection breaks ------------------------------------------------------------------------


def test_a_lost_answer_is_asked_for_by_further_copies_and_they_are_counted() -> None:
    under_way = sent(delivery(), 100.0)
    assert 0.0 < under_way.lost(BROKEN, 100.1) <= 0.04
    found = answer(sent(under_way, 100.2).answered([7], 100.3))
    assert (found.sends, found.sent_at) == (2, 100.2)


def test_four_copies_without_an_answer_are_an_unknown_outcome() -> None:
    under_way = delivery()
    end, _ = until_it_stops(under_way, lambda _: sent(under_way).lost(BROKEN, 100.1))
    assert isinstance(end, OutcomeUnknown)
    assert str(end) == "safe: 4 copies sent, no answer (reset)"
    assert end.sends == 4
    assert end.__cause__ is BROKEN.cause


def test_a_server_that_hangs_is_asked_twice() -> None:
    under_way = delivery()
    sent(under_way, 100.0).lost(BROKEN, 105.0)
    with pytest.raises(OutcomeUnknown) as raised:
        sent(under_way, 105.0).lost(BROKEN, 110.0)
    assert raised.value.sends == 2


def test_a_server_that_hangs_longer_than_the_budget_is_asked_twice() -> None:
    under_way = delivery()
    assert sent(under_way, 100.0).lost(BROKEN, 130.0) > 0
    with pytest.raises(OutcomeUnknown):
        sent(under_way, 130.0).lost(BROKEN, 160.0)


def test_a_script_that_must_not_be_sent_twice_is_not() -> None:
    with pytest.raises(OutcomeUnknown) as raised:
        sent(delivery(UNSAFE)).lost(BROKEN, 100.1)
    assert raised.value.sends == 1


def test_a_script_that_must_not_be_sent_twice_is_sent_when_it_has_not_left() -> None:
    assert delivery(UNSAFE).lost(NOT_MADE, 100.1) > 0


def test_a_server_that_is_away_is_waited_for_and_then_nothing_was_done() -> None:
    under_way = delivery()
    end, pauses = until_it_stops(under_way, lambda now: under_way.lost(NOT_MADE, now))
    assert isinstance(end, StoreUnavailable)
    assert str(end) == "safe: not sent (refused)"
    assert 8.0 < sum(pauses) < 9.0
    assert end.sends == 0


def test_a_server_that_goes_away_after_a_copy_left_is_an_unknown_outcome() -> None:
    under_way = sent(delivery())
    under_way.lost(BROKEN, 100.0)
    end, _ = until_it_stops(under_way, lambda now: under_way.lost(NOT_MADE, now))
    assert isinstance(end, OutcomeUnknown)
    assert end.sends == 1


def test_a_copy_that_was_answered_by_an_error_does_not_count_as_unanswered() -> None:
    under_way = sent(delivery())
    under_way.answered(error("LOADING"), 100.1)
    end, _ = until_it_stops(under_way, lambda now: under_way.lost(NOT_MADE, now))
    assert isinstance(end, StoreUnavailable)
    assert end.sends == 0


def test_a_broken_connection_sends_us_back_to_the_slot_table() -> None:
    under_way = sent(delivery())
    under_way.answered(error("ASK 866 a:1"), 100.1)
    sent(under_way).lost(BROKEN, 100.2)
    assert (under_way.node, under_way.asking) == (None, False)


def test_a_tidying_step_outlives_the_cut_that_made_it_necessary() -> None:
    under_way = sent(delivery(patient=False))
    assert under_way.lost(BROKEN, 100.01) > 0
    assert answer(sent(under_way).answered([1], 100.1)).sends == 2


def test_a_tidying_step_is_not_sent_again_to_a_server_that_is_silent() -> None:
    with pytest.raises(OutcomeUnknown):
        sent(delivery(patient=False), 100.0).lost(BROKEN, 105.0)


def test_a_hasty_step_is_sent_twice_at_most_and_never_waits_for_a_server() -> None:
    with pytest.raises(StoreUnavailable):
        delivery(hasty=True).lost(NOT_MADE, 100.0)
    under_way = sent(delivery(hasty=True))
    assert under_way.lost(BROKEN, 100.0) > 0
    with pytest.raises(OutcomeUnknown):
        sent(under_way).lost(BROKEN, 100.1)


def test_what_broke_is_named_though_it_says_nothing() -> None:
    assert str(WireLost(TimeoutError(), sent=True)) == "TimeoutError"
    assert str(WireLost("closed", sent=True)) == "closed"
    assert WireLost("closed", sent=True).cause is None
