"""Many operations together: a server that is silent, and each operation's own rule.

How each bites: the sync driver as it was sent what was not answered again one after the other, each
waiting for time limits of its own, and let none but the first pause.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fencekit.drivers import delivery as deliveries
from fencekit.drivers import pipelines
from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.client import Address
from fencekit.drivers.delivery import Delivery, WireLost
from fencekit.drivers.sync import SyncDriver
from fencekit.errors import FenceKitError, OutcomeUnknown, StoreRefused, StoreUnavailable
from fencekit.protocol.operation import Answer, Operation, Replication, Reply
from fencekit.protocol.resp import ErrorReply
from fencekit.protocol.script import Script
from harness import clients
from harness.clients import Colour
from harness.faults import Cut, DropReply, containing, named
from harness.proxy import Proxy
from harness.servers import Server
from harness.topologies import Cluster

SET = Script.parse("set", "--- X.\n-- Safe to re-send: yes\nreturn redis.call('SET', KEYS[1], 1)\n")
COUNT = Script.parse("count", "--- X.\n-- Safe to re-send: no, it counts\nreturn 1\n")
EVAL = named("EVALSHA", "EVAL")
MANY = 60
LIMIT = 0.1


def operation(key: str, script: Script = SET, **terms: Any) -> Operation[Reply]:
    return Operation(script, (key,), (), lambda reply: reply, **terms)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everybody give up within a second."""
    monkeypatch.setattr(deliveries, "_BUDGET", 0.3)


# Servers


Outcomes = list[Any]


@pytest.fixture
def execute_many(colour: Colour) -> Callable[[str, list[Operation[Any]]], Outcomes]:
    """Perform operations, with connections made before, and a moment to look between the two."""

    def execute(
        url: str, operations: list[Operation[Any]], between: Callable[[], None] = lambda: None
    ) -> Outcomes:
        if colour == "sync":
            with clients.opened(url, socket_timeout=LIMIT) as client:
                driver = SyncDriver.of(client)
                driver.execute_many([operation("warm-up")] * 2)
                between()
                try:
                    return driver.execute_many(operations)
                finally:
                    driver.close()

        async def execute_async() -> Outcomes:
            async with clients.aopened(url, socket_timeout=LIMIT) as client:
                driver = AsyncDriver.of(client)
                await driver.execute_many([operation("warm-up")] * 2)
                between()
                try:
                    return await driver.execute_many(operations)
                finally:
                    await driver.aclose()

        return asyncio.run(execute_async())

    return execute


@pytest.mark.usefixtures("impatient")
def test_many_wait_for_a_silent_server_no_longer_than_one(
    server: Server, execute_many: Callable[..., Outcomes]
) -> None:
    try:
        began = time.monotonic()
        outcomes = execute_many(server.url, [operation(f"k{n}") for n in range(MANY)], server.pause)
        took = time.monotonic() - began
    finally:
        server.resume()
    assert {type(outcome) for outcome in outcomes} == {OutcomeUnknown}
    assert took < MANY * LIMIT / 2


def test_what_was_not_answered_goes_again_together(
    proxy: Proxy, execute_many: Callable[..., Outcomes]
) -> None:
    fault = DropReply(containing("k5"))

    def forget_the_warm_up() -> None:
        proxy.clear()
        proxy.add(fault)

    outcomes = execute_many(proxy.url, [operation(f"k{n}") for n in range(20)], forget_the_warm_up)
    assert outcomes == [b"OK"] * 20
    assert fault.fired == 1
    # What was answered went once, all the others twice.
    assert proxy.counts["EVALSHA"] == 20 + 15
    assert len(proxy.connections) == 2


def test_a_server_that_comes_back_is_waited_for(
    proxy: Proxy, execute_many: Callable[..., Outcomes]
) -> None:
    outcomes = execute_many(
        proxy.url,
        [operation(f"k{n}") for n in range(20)],
        lambda: proxy.add(Cut(EVAL, refuse_for=0.5)),
    )
    assert outcomes == [b"OK"] * 20


def test_each_goes_again_by_its_own_rule(
    proxy: Proxy, execute_many: Callable[..., Outcomes]
) -> None:
    operations = [
        operation("a"),
        operation("b", COUNT),
        operation("c", hasty=True),
        operation("d", patient=False),
    ]
    outcomes = execute_many(
        proxy.url, operations, lambda: proxy.add(Cut(containing("a"), refuse_for=0.3))
    )
    assert outcomes[0] == b"OK"
    assert isinstance(outcomes[1], OutcomeUnknown)
    assert isinstance(outcomes[2], OutcomeUnknown)
    assert outcomes[3] == b"OK"


def test_a_refusal_is_the_error_of_one(
    server: Server, execute_many: Callable[..., Outcomes]
) -> None:
    refuse = Script.parse("no", "--- X.\n-- Safe to re-send: yes\nreturn redis.error_reply('NO')\n")
    operations = [operation("a"), operation("b", refuse), operation("c")]
    outcomes = execute_many(server.url, operations, lambda: server.call("SCRIPT", "FLUSH"))
    assert outcomes[::2] == [b"OK", b"OK"]
    assert isinstance(outcomes[1], StoreRefused)


@contextmanager
def cluster_driver(cluster: Cluster) -> Iterator[SyncDriver]:
    with clients.opened(cluster.url, topology="cluster", socket_timeout=LIMIT) as client:
        driver = SyncDriver.of(client)
        try:
            yield driver
        finally:
            driver.close()


@pytest.mark.usefixtures("impatient")
def test_a_silent_node_of_a_cluster_holds_up_none_of_the_others(cluster_server: Cluster) -> None:
    silent = cluster_server.nodes[0]
    keys = [f"k{n}" for n in range(MANY)]
    there = {key for key in keys if cluster_server.node_of(key) is silent}
    with cluster_driver(cluster_server) as driver:
        driver.execute_many([operation(key) for key in keys])
        silent.pause()
        try:
            began = time.monotonic()
            outcomes = driver.execute_many([operation(key) for key in keys])
            took = time.monotonic() - began
        finally:
            silent.resume()
    assert 0 < len(there) < MANY
    assert {key for key, one in zip(keys, outcomes, strict=True) if one != b"OK"} == there
    assert took < len(there) * LIMIT


@pytest.mark.usefixtures("impatient")
def test_a_silent_cluster_is_asked_for_its_slots_once_for_all(cluster_server: Cluster) -> None:
    with cluster_driver(cluster_server) as driver:
        for node in cluster_server.nodes:
            node.pause()
        try:
            began = time.monotonic()
            outcomes = driver.execute_many([operation(f"k{n}") for n in range(MANY)])
            took = time.monotonic() - began
        finally:
            for node in cluster_server.nodes:
                node.resume()
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    assert took < MANY * LIMIT / 2


# Every rule, without a server


class Board:
    """A driver whose one server does as it is told.

    Attributes:
        rounds: the keys that each pipeline carried.
        given: how many connections were put back.
        dropped: how many were closed.
        mistrusted: how often it was said that the server could not be reached.
        limit: the time limit that the last connection was asked for with.
        patience: seconds that replies were waited for beyond the limit, by key.
    """

    def __init__(self, reply: Callable[[str, int], Any]) -> None:
        self.reply = reply
        self.rounds: list[list[str]] = []
        self.given = self.dropped = self.closed = self.mistrusted = 0
        self.limit: float | None = None
        self.reachable = True
        self.patience: dict[str, float] = {}
        self._reading: Iterator[str] = iter(())
        self._extra = 0.0

    def route(self, delivery: Delivery) -> Address | None:
        del delivery
        return None

    def pool(self, address: Address | None) -> Board:
        del address
        return self

    def mistrust_slots(self, failed: Address | None) -> None:
        del failed
        self.mistrusted += 1

    def take(self, timeout: float | None = None) -> Board:
        self.limit = timeout
        if not self.reachable:
            raise WireLost("refused", sent=False)
        return self

    def give(self, wire: Board) -> None:
        del wire
        self.given += 1

    def drop(self, wire: Board) -> None:
        del wire
        self.dropped += 1

    def close(self) -> None:
        self.closed += 1

    def send(self, data: bytes) -> None:
        keys = re.findall(rb"\r\n(k\d+)\r\n", data)
        self.rounds.append([key.decode() for key in keys])
        self._reading = iter(self.rounds[-1])

    @contextmanager
    def patient(self, extra: float) -> Iterator[None]:
        self._extra = extra
        yield
        self._extra = 0.0

    def receive(self, count: int) -> list[Reply]:
        key = next(self._reading)
        self.patience[key] = self._extra
        reply = self.reply(key, len(self.rounds))
        if isinstance(reply, BaseException) and not isinstance(reply, ErrorReply):
            raise reply
        return [reply] * count


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was paused; nobody waits."""
    slept: list[float] = []
    monkeypatch.setattr("fencekit.drivers.pipelines.time.sleep", slept.append)
    return slept


def perform(board: Board, *operations: Operation[Any]) -> list[Answer | FenceKitError]:
    under_way = [Delivery(one, time.monotonic()) for one in operations]
    return pipelines.deliver_all(board, under_way)  # type: ignore[arg-type]


def sends(outcomes: list[Answer | FenceKitError]) -> list[Any]:
    return [(type(one).__name__, getattr(one, "sends", None)) for one in outcomes]


SILENCE = WireLost("timed out", sent=True)


def test_one_pause_is_for_all_and_no_copy_goes_before_its_time(pauses: list[float]) -> None:
    board = Board(lambda _, at: SILENCE if at <= 2 else b"OK")
    outcomes = perform(board, *(operation(f"k{n}") for n in range(50)))
    assert sends(outcomes) == [("Answer", 3)] * 50
    assert [len(keys) for keys in board.rounds] == [50, 50, 50]
    assert len(pauses) == 2
    assert (board.given, board.dropped, board.mistrusted) == (1, 2, 2)


def test_one_that_breaks_every_connection_takes_none_with_it(pauses: list[float]) -> None:
    """Each has its own count of copies: those behind it were sent, too."""
    board = Board(lambda key, _: SILENCE if key == "k2" else b"OK")
    outcomes = perform(board, *(operation(f"k{n}") for n in range(5)))
    assert sends(outcomes) == [
        ("Answer", 1),
        ("Answer", 1),
        ("OutcomeUnknown", deliveries._MAX_SENDS),
        ("Answer", 2),
        ("Answer", 2),
    ]
    assert board.rounds[1:] == [["k3", "k4", "k2"], ["k2"], ["k2"]]
    assert len(pauses) == deliveries._MAX_SENDS - 1


def test_what_may_go_at_once_does_not_wait_for_what_pauses(pauses: list[float]) -> None:
    slept_when: list[int] = []

    def reply(key: str, at: int) -> Any:
        slept_when.append(len(pauses))
        if key == "k1" and at == 1:
            return ErrorReply("NOSCRIPT")
        return ErrorReply("LOADING") if key == "k2" and at <= 2 else b"OK"

    board = Board(reply)
    outcomes = perform(board, *(operation(f"k{n}") for n in range(3)))
    assert sends(outcomes) == [("Answer", 1)] * 3, "what was refused was not carried out"
    assert board.rounds == [["k0", "k1", "k2"], ["k1"], ["k2"]]
    assert slept_when == [0, 0, 0, 0, 1]


def test_what_must_not_go_again_is_over(pauses: list[float]) -> None:
    board = Board(lambda _, at: SILENCE if at == 1 else b"OK")
    outcomes = perform(board, operation("k0", COUNT), operation("k1"), operation("k2", hasty=True))
    assert sends(outcomes) == [("OutcomeUnknown", 1), ("Answer", 2), ("Answer", 2)]
    assert len(pauses) == 1


def test_a_demoted_server_is_left_once_for_all(pauses: list[float]) -> None:
    board = Board(lambda _, at: ErrorReply("READONLY") if at == 1 else b"OK")
    outcomes = perform(board, *(operation(f"k{n}") for n in range(3)))
    assert sends(outcomes) == [("Answer", 1)] * 3
    assert (board.closed, board.given, pauses) == (1, 1, [])


def test_a_demoted_server_that_goes_away_is_left_once_for_all(pauses: list[float]) -> None:
    """Found here: the note that it must be left cost the next connection, too."""

    def reply(key: str, at: int) -> Any:
        if at > 1:
            return b"OK"
        return ErrorReply("READONLY") if key == "k0" else SILENCE

    board = Board(reply)
    outcomes = perform(board, *(operation(f"k{n}") for n in range(3)))
    assert sends(outcomes) == [("Answer", 1), ("Answer", 2), ("Answer", 2)]
    assert board.closed == 1
    assert len(pauses) == 1


def test_replicas_are_waited_for_as_long_as_the_server_was_asked_to(pauses: list[float]) -> None:
    """Found here: a pipeline waited for WAIT no longer than for anything else."""
    board = Board(lambda _, __: 1)
    replication = Replication(1, 700)
    perform(board, operation("k0"), operation("k1", replication=replication), operation("k2"))
    assert board.patience == {"k0": 0.0, "k1": 0.7, "k2": 0.0}
    assert pauses == []


def test_an_interrupt_leaves_no_connection_to_others(pauses: list[float]) -> None:
    board = Board(lambda key, _: KeyboardInterrupt() if key == "k1" else b"OK")
    with pytest.raises(KeyboardInterrupt):
        perform(board, *(operation(f"k{n}") for n in range(3)))
    assert (board.given, board.dropped) == (0, 1)
    assert pauses == []


def test_a_server_that_cannot_be_reached_costs_no_copy(pauses: list[float]) -> None:
    board = Board(lambda _, __: b"OK")
    board.reachable = False
    outcomes = perform(board, operation("k0", hasty=True))
    assert sends(outcomes) == [("StoreUnavailable", 0)]
    assert board.mistrusted == 1
    assert pauses == []


def test_what_is_sent_once_goes_again_only_where_the_server_asks_at_once() -> None:
    def reply(key: str, at: int) -> Any:
        refusals = {"k0": "LOADING", "k1": "NOSCRIPT"}
        return ErrorReply(refusals[key]) if at == 1 and key in refusals else b"OK"

    board = Board(reply)
    under_way = [Delivery(operation(f"k{n}"), time.monotonic()) for n in range(3)]
    outcomes = pipelines.send_all(board, under_way, timeout=0.7)  # type: ignore[arg-type]
    assert [one and type(one) for one in outcomes] == [None, Answer, Answer]
    assert board.rounds == [["k0", "k1", "k2"], ["k1"]]
    assert board.limit == 0.7


def test_nothing_is_sent_for_nothing() -> None:
    board = Board(lambda _, __: b"OK")
    assert perform(board) == []
    assert board.rounds == []
