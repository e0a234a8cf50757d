"""`SlotTable`: which node holds a key, by what the nodes of a cluster say. No cluster here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencekit.drivers.client import Address, Client, slot_of
from fencekit.drivers.cluster import SlotTable
from fencekit.drivers.delivery import Delivery, WireLost
from fencekit.protocol.operation import Operation
from fencekit.protocol.resp import ErrorReply
from fencekit.protocol.script import Script

A, B, C = Address("10.0.0.1", 7001), Address("10.0.0.2", 7002), Address("10.0.0.3", 7003)
SEEDS = (A, B)
TABLE: list[Any] = [
    [10923, 16383, [b"10.0.0.3", 7003, b"id3"]],
    [0, 5460, [b"10.0.0.1", 7001, b"id1"], [b"10.0.0.9", 7009, b"replica"]],
    [5461, 10922, [b"10.0.0.2", 7002, b"id2"]],
]
SCRIPT = Script.parse("x", "--- X.\n-- Safe to re-send: yes\nreturn 1\n")
# Keys of each third.
LOW, MIDDLE, HIGH = "{b}", "{c}", "{a}"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("fencekit.drivers.cluster.time", clock)
    return clock


def table(remap: Any = None, *, known: bool = True) -> SlotTable:
    client = Client(
        colour="sync",
        kind="cluster",
        connection_class=object,
        settings={},
        timeout=5.0,
        share=16,
        seeds=SEEDS,
        remap=remap,
    )
    slots = SlotTable(client)
    if known:
        slots.answer(A, TABLE)
    return slots


def delivery(key: str = LOW) -> Delivery:
    return Delivery(Operation(SCRIPT, (key,), (), lambda reply: reply), 100.0)


def test_the_slots_are_those_of_the_cluster_specification() -> None:
    assert slot_of("123456789") == 12739
    assert slot_of("foo{hash_tag}") == slot_of("hash_tag") == slot_of("{hash_tag}bar")
    assert slot_of("foo{}{bar}") == slot_of("foo{}{bar}") != slot_of("bar")
    assert slot_of("foo{{bar}}") == slot_of("{bar")
    assert [slot_of(key) // 5461 for key in (LOW, MIDDLE, HIGH)] == [0, 1, 2]


def test_every_key_of_a_name_is_in_one_slot() -> None:
    from fencekit.keys import names  # noqa: PLC0415

    for name in ("invoices", "a{b", "a}b", "ö", "{", "a{b}c"):
        own = names("fencekit", name)
        assert len({slot_of(key) for key in (own.lock, own.fence, own.gone, own.idem)}) == 1


def test_before_anything_is_known_the_seeds_are_asked_in_turn() -> None:
    slots = table(known=False)
    assert slots.question(LOW) == A
    slots.answer(A, None)
    assert slots.question(LOW) == B
    slots.answer(B, TABLE)
    assert slots.question(LOW) is None


@pytest.mark.parametrize(
    "nothing", [None, [], ErrorReply("ERR This instance has cluster support disabled"), b"x"]
)
def test_what_is_no_table_is_passed_over(nothing: Any) -> None:
    slots = table(known=False)
    slots.answer(A, nothing)
    assert slots.question(LOW) == B


def test_an_answer_of_a_node_that_was_not_asked_last_passes_over_nobody() -> None:
    slots = table(known=False)
    slots.answer(A, None)
    slots.answer(A, None)
    assert slots.question(LOW) == B


def test_when_all_were_asked_in_vain_nothing_was_sent_and_the_next_asks_again() -> None:
    slots = table(known=False)
    slots.answer(A, None)
    slots.answer(B, None)
    with pytest.raises(WireLost, match="no node of the cluster answered") as raised:
        slots.question(LOW)
    assert not raised.value.sent
    assert slots.question(LOW) == A


def test_a_key_goes_to_the_primary_of_its_slot() -> None:
    slots = table()
    assert [slots.node(key) for key in (LOW, MIDDLE, HIGH)] == [A, B, C]


@pytest.mark.parametrize("host", [b"", None, b"?"])
def test_a_node_without_a_name_is_the_one_that_was_asked(host: bytes | None) -> None:
    slots = table(known=False)
    slots.answer(B, [[0, 16383, [host, 7005, b"id"]]])
    assert slots.node(LOW) == Address("10.0.0.2", 7005)


def test_the_clients_own_translation_of_addresses_is_used() -> None:
    slots = table(lambda address: ("localhost", address[1] + 10_000))
    assert slots.node(LOW) == Address("localhost", 17001)


# -- redirects ----------------------------------------------------------------------------------


def test_moved_is_followed_and_remembered_for_the_slot() -> None:
    slots, moved = table(), delivery(LOW)
    assert slots.route(moved) == A
    moved.node = C
    assert slots.route(moved) == C
    assert slots.route(delivery(LOW)) == C
    assert slots.node(MIDDLE) == B


def test_moved_is_translated_like_every_address() -> None:
    slots = table(lambda address: ("localhost", address[1] + 10_000))
    moved = delivery()
    moved.node = C
    assert slots.route(moved) == Address("localhost", 17003)


def test_moved_without_a_host_is_to_the_host_that_said_it() -> None:
    slots, moved = table(), delivery(MIDDLE)
    assert slots.route(moved) == B
    moved.node = Address("", 7007)
    assert slots.route(moved) == Address("10.0.0.2", 7007)


def test_moved_needs_no_table() -> None:
    slots, moved = table(known=False), delivery()
    moved.node = C
    slots.route(moved)
    assert slots.question(LOW) is None
    assert slots.question(MIDDLE) == A


def test_ask_is_followed_and_not_remembered() -> None:
    slots, asked = table(), delivery()
    asked.node, asked.asking = C, True
    assert slots.route(asked) == C
    assert slots.route(asked) == C, "also when its script is not known there"
    assert slots.route(delivery()) == A


# -- a table that was wrong -----------------------------------------------------------------------


def test_a_node_that_cannot_be_reached_has_the_others_asked(clock: SimpleNamespace) -> None:
    slots = table()
    clock.now += 1.0
    slots.stale(A)
    asked = []
    while (question := slots.question(LOW)) is not None:
        asked.append(question)
        slots.answer(question, None)
    assert set(asked) == {A, B, C}
    assert asked[-1] == A
    assert slots.node(LOW) == A, "nobody knew better"


def test_a_new_table_replaces_the_old_one(clock: SimpleNamespace) -> None:
    slots = table()
    moved = delivery(MIDDLE)
    moved.node = A
    slots.route(moved)
    clock.now += 1.0
    slots.stale(A)
    slots.answer(B, [[0, 16383, [b"10.0.0.3", 7003, b"id3"]]])
    assert {slots.node(key) for key in (LOW, MIDDLE, HIGH)} == {C}


def test_a_table_is_not_asked_for_at_every_error(clock: SimpleNamespace) -> None:
    slots = table()
    clock.now += 0.2
    slots.stale(A)
    assert slots.question(LOW) is None
    clock.now += 0.1
    slots.stale(A)
    assert slots.question(LOW) is not None


def test_after_all_were_asked_in_vain_the_old_table_serves(clock: SimpleNamespace) -> None:
    slots = table()
    clock.now += 1.0
    slots.stale()
    for _ in range(3):
        question = slots.question(LOW)
        assert question is not None
        slots.answer(question, None)
    assert slots.question(LOW) is None
    assert slots.node(HIGH) == C


def test_any_node_is_each_time_another() -> None:
    slots = table()
    assert {slots.any_node() for _ in range(3)} == {A, B, C}


def test_there_is_a_key_for_each_node() -> None:
    slots = table()
    assert {slots.node(key) for key in slots.routes("cache:")} == {A, B, C}
