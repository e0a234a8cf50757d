"""Where keys live: what nodes say of each other, with redirects, gaps and contradictions."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fencekit.drivers.client import Address, Client
from fencekit.drivers.cluster import SlotTable
from fencekit.drivers.delivery import Delivery, WireLost
from fencekit.keys import names
from fencekit.protocol import lock as protocol
from fencekit.protocol.operation import Operation
from fencekit.protocol.resp import ErrorReply

A, B, C = (Address("10.0.0.1", port) for port in (7001, 7002, 7003))
ROWS = [
    [0, 5460, [b"10.0.0.1", 7001, b"a"]],
    [5461, 10922, [b"10.0.0.1", 7002, b"b"]],
    [10923, 16383, [b"10.0.0.1", 7003, b"c"]],
]


def a_table(*, seeds: tuple[Address, ...] = (A, B), remap: Any = None) -> SlotTable:
    client = Client("sync", "cluster", None, {}, 1.0, 2, seeds, remap)
    return SlotTable(client)


def a_known_table(**options: Any) -> SlotTable:
    table = a_table(**options)
    assert table.question("{foo}") == A
    table.answer(A, ROWS)
    assert table.question("{foo}") is None
    return table


def a_delivery(name: str = "foo") -> Delivery:
    step = next(protocol.advance(names("fencekit", name), 1, 1000))
    assert isinstance(step, Operation)
    return Delivery(step, 0.0)


def test_every_slot_has_its_primary() -> None:
    table = a_known_table()
    assert table.node("{foo}") == C  # slot 12182
    assert table.node("{bar}") == A  # slot 5061
    assert len(table.routes("p")) == 3


def test_nodes_that_do_not_answer_are_passed_over() -> None:
    table = a_table()
    table.answer(A, None)
    assert table.question("k") == B
    table.answer(B, ErrorReply("NOPERM no"))
    with pytest.raises(WireLost):
        table.question("k")
    assert table.question("k") == A  # the next copy asks anew


def test_an_old_table_is_better_than_none() -> None:
    table = a_known_table()
    table._read_at -= 1
    table.stale(A)
    while (asked := table.question("{foo}")) is not None:
        table.answer(asked, None)
    assert table.node("{foo}") == C


def test_the_failed_node_is_asked_last_and_each_time_another_first() -> None:
    table = a_known_table()
    first = []
    for _ in range(3):
        table._read_at -= 1
        table.stale(A)
        assert table._to_ask is not None
        assert table._to_ask[-1] == A
        first.append(table._to_ask[0])
        table._to_ask = None
    assert len(set(first)) > 1


def test_many_errors_at_once_ask_once() -> None:
    table = a_known_table()
    table.stale(A)  # just read
    assert table.question("k") is None


@pytest.mark.parametrize(
    ("said", "node"),
    [("10.0.0.1:7002", B), (":7002", B), ("::1:7002", Address("::1", 7002))],
)
def test_moved(said: str, node: Address) -> None:
    table, delivery = a_known_table(), a_delivery()
    assert table.route(delivery) == C
    delivery.leaving(0.0)
    assert delivery.answered([ErrorReply(f"MOVED 12182 {said}")], 0.0) == 0.0
    assert table.route(delivery) == node
    assert table.route(a_delivery()) == node  # remembered for the slot


def test_ask_is_for_one_copy_and_survives_an_unknown_script() -> None:
    table, delivery = a_known_table(), a_delivery()
    table.route(delivery)
    delivery.leaving(0.0)
    delivery.answered([ErrorReply("ASK 12182 10.0.0.1:7001")], 0.0)
    assert (table.route(delivery), delivery.asking) == (A, True)
    assert table.route(a_delivery()) == C
    delivery.leaving(0.0)
    delivery.answered([b"OK", ErrorReply("NOSCRIPT no")], 0.0)
    assert (table.route(delivery), delivery.asking) == (A, True)
    assert b"ASKING" in delivery.packed()
    delivery.leaving(0.0)
    delivery.answered([b"OK", ErrorReply("TRYAGAIN later")], 0.0)
    assert (table.route(delivery), delivery.asking) == (C, False)


def test_redirects_in_a_circle_are_followed_slower() -> None:
    table, delivery = a_known_table(), a_delivery()
    pauses = []
    for turn in range(7):
        table.route(delivery)
        delivery.leaving(0.0)
        target = "7001" if turn % 2 else "7002"
        pauses.append(delivery.answered([ErrorReply(f"MOVED 12182 10.0.0.1:{target}")], 0.0))
    assert pauses[:4] == [0.0] * 4
    assert all(isinstance(pause, float) and pause > 0 for pause in pauses[4:])


def test_addresses_are_translated_wherever_they_are_said() -> None:
    table = a_known_table(remap=lambda address: ("outside", address[1] + 1000))
    assert table.node("{foo}") == Address("outside", 8003)
    delivery = a_delivery()
    table.route(delivery)
    delivery.leaving(0.0)
    delivery.answered([ErrorReply("MOVED 12182 10.0.0.1:7001")], 0.0)
    assert table.route(delivery) == Address("outside", 8001)


@pytest.mark.parametrize("host", [b"", b"?", None])
def test_a_node_without_a_name_is_the_host_that_was_asked(host: bytes | None) -> None:
    table = a_table()
    table.answer(A, [[0, 16383, [host, 7009, b"x"]]])
    assert table.node("k") == Address("10.0.0.1", 7009)


def test_threads_may_learn_and_mistrust_at_once() -> None:
    table, errors = a_known_table(), list[BaseException]()

    def hammer(node: Address) -> None:
        try:
            for turn in range(300):
                table._read_at = 0.0
                table.stale(node)
                while (asked := table.question(f"k{turn}")) is not None:
                    table.answer(asked, ROWS if turn % 3 else None)
                    if turn % 3 == 0:
                        break
                table.node(f"k{turn}")
                table.any_node()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=hammer, args=(node,)) for node in (A, B, C, A)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
