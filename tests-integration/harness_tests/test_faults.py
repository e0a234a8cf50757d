"""Each fault does what it says, to the command it is meant for and to no other."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

import pytest

from harness.clients import opened
from harness.faults import (
    Cut,
    Delay,
    DropCommand,
    DropReply,
    Duplicate,
    HoldBack,
    containing,
    named,
)
from harness.proxy import Proxy
from harness.waiting import eventually
from harness.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.servers import Server


@pytest.fixture
def wire(proxy: Proxy) -> Iterator[Wire]:
    with Wire((proxy.host, proxy.port)) as wire:
        yield wire


def test_without_a_fault_everything_passes(server: Server, proxy: Proxy, wire: Wire) -> None:
    big = b"x" * 1_000_000
    wire.call("SET", "big", big)
    assert wire.call("GET", "big") == big
    assert server.call("GET", "big") == big
    assert dict(proxy.counts) == {"SET": 1, "GET": 1}


def test_a_client_that_is_gone_before_its_turn_leaves_nothing_behind(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red before: the connection to the server was left open, and collected some tests later."""
    connect, connected = asyncio.open_connection, threading.Event()

    async def late(*address: Any) -> Any:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # by a reset, which is told at once
        await asyncio.sleep(0.1)
        try:
            return await connect(*address)
        finally:
            connected.set()

    with Proxy.before(server) as proxy:
        monkeypatch.setattr("harness.proxy.asyncio.open_connection", late)
        client = socket.create_connection((proxy.host, proxy.port))
        assert connected.wait(5)
        eventually(lambda: len(server.call("CLIENT", "LIST").splitlines()) == 1)
        assert proxy.open_connections == []


def test_pipelines_keep_their_order(wire: Wire) -> None:
    wire.send(b"".join(b"INCR n\r\n" for _ in range(500)))
    assert [wire.receive() for _ in range(500)] == list(range(1, 501))


def test_a_lost_reply_is_of_a_command_that_was_done(
    server: Server, proxy: Proxy, wire: Wire
) -> None:
    fault = proxy.add(DropReply(named("INCR"), nth=2))
    assert wire.call("INCR", "n") == 1
    with pytest.raises(ConnectionError):
        wire.call("INCR", "n")
    assert server.call("GET", "n") == b"2"
    assert (fault.seen, fault.fired) == (2, 1)
    with Wire((proxy.host, proxy.port)) as again:
        assert again.call("INCR", "n") == 3


def test_a_lost_command_is_never_done(server: Server, proxy: Proxy, wire: Wire) -> None:
    proxy.add(DropCommand(containing("this")))
    wire.call("SET", "that", "1")
    with pytest.raises(ConnectionError):
        wire.call("SET", "this", "1")
    assert server.call("KEYS", "*") == [b"that"]


def test_delayed_replies_come_late_but_the_work_is_done_in_time(
    server: Server, proxy: Proxy, wire: Wire
) -> None:
    proxy.add(Delay(0.2, named("INCR")))
    begun = time.monotonic()
    wire.send(b"INCR n\r\n" * 10)
    time.sleep(0.1)
    assert server.call("GET", "n") == b"10"
    assert [wire.receive() for _ in range(10)] == list(range(1, 11))
    assert 0.2 <= time.monotonic() - begun < 0.35


def test_a_cut_closes_everything_and_refuses_for_a_while(
    proxy: Proxy, wire: Wire, eventually: Callable[..., Any]
) -> None:
    wire.call("PING")
    proxy.cut(refuse_for=0.2)
    with pytest.raises(OSError, match=r"closed|reset"):
        wire.call("PING")
    with pytest.raises(ConnectionRefusedError):
        Wire((proxy.host, proxy.port))

    def answers() -> bool:
        try:
            with Wire((proxy.host, proxy.port)) as again:
                return bool(again.call("PING") == b"PONG")
        except ConnectionRefusedError:
            return False

    eventually(answers)
    assert not proxy.connections[0].open


def test_a_cut_can_wait_for_a_command(server: Server, proxy: Proxy, wire: Wire) -> None:
    with Wire((proxy.host, proxy.port)) as bystander:
        bystander.call("PING")
        proxy.add(Cut(named("SET")))
        with pytest.raises(OSError, match=r"closed|reset"):
            wire.call("SET", "key", "1")
        with pytest.raises(OSError, match=r"closed|reset"):
            bystander.call("PING")
    assert server.call("EXISTS", "key") == 0


@pytest.mark.parametrize("then", ["close", "silence"])
def test_a_command_held_back_arrives_when_its_client_has_gone(
    server: Server, proxy: Proxy, then: str
) -> None:
    fault = proxy.add(HoldBack(named("INCR"), then=then))
    with Wire((proxy.host, proxy.port), timeout=0.1) as wire:
        wire.call("SELECT", 3)
        with pytest.raises(ConnectionError if then == "close" else TimeoutError):
            wire.call("INCR", "n")
    assert b"keys" not in server.call("INFO", "keyspace")
    assert fault.deliver() == 1
    assert b"db3:keys=1" in server.call("INFO", "keyspace")
    with pytest.raises(LookupError):
        fault.deliver()


def test_a_command_can_pass_and_a_copy_come_later(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.add(HoldBack(named("INCR"), then="forward"))
    assert wire.call("INCR", "n") == 1
    assert wire.call("INCR", "n") == 2
    assert fault.deliver() == 3


@pytest.mark.parametrize("answer", [1, 2])
def test_a_duplicate_is_done_twice_and_answered_once(proxy: Proxy, wire: Wire, answer: int) -> None:
    proxy.add(Duplicate(named("INCR"), answer=answer))
    assert wire.call("INCR", "n") == answer
    assert wire.call("GET", "n") == b"2"


def test_a_frozen_network_closes_nothing(proxy: Proxy, wire: Wire) -> None:
    proxy.freeze()
    wire.send(b"PING\r\n")
    with Wire((proxy.host, proxy.port), timeout=0.05) as other, pytest.raises(TimeoutError):
        other.call("PING")
    proxy.thaw()
    assert wire.receive() == b"PONG"


def test_faults_can_be_taken_away(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.add(DropCommand(nth=None))
    proxy.remove(fault)
    assert wire.call("PING") == b"PONG"
    proxy.add(DropCommand(nth=None))
    proxy.clear()
    assert wire.call("PING") == b"PONG"
    assert dict(proxy.counts) == {"PING": 1}


@pytest.mark.parametrize("resp", [2, 3])
def test_messages_pass_and_other_faults_do_not_touch_them(
    proxy: Proxy, resp: Literal[2, 3]
) -> None:
    with opened(proxy.url, resp=resp) as client, client.pubsub() as subscription:
        subscription.subscribe("channel")
        assert subscription.get_message(timeout=2)["type"] == "subscribe"
        fault = proxy.add(Delay(0.05, named("PUBLISH")))
        for number in range(3):
            client.publish("channel", number)
            assert subscription.get_message(timeout=2)["data"] == str(number).encode()
        assert fault.fired == 3
        subscription.unsubscribe("channel")
        assert subscription.get_message(timeout=2)["type"] == "unsubscribe"
    subscribers = [connection for connection in proxy.connections if connection.subscriber]
    assert [connection.counts["SUBSCRIBE"] for connection in subscribers] == [1]


def test_works_with_a_client_and_its_retries(server: Server, proxy: Proxy) -> None:
    """A client that retries re-sends: so every operation must know its own retry."""
    with opened(proxy.url, retries=1) as client:
        client.ping()
        proxy.add(DropReply(named("LPUSH")))
        client.lpush("list", "once")
    assert server.call("LLEN", "list") == 2
