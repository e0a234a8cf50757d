"""One connection of the sync driver: its time limits, whoever watches them.

How each bites: a wire that sets no limit waits for ever, and these tests with it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fencekit.drivers import wire as wires
from fencekit.drivers.client import describe
from fencekit.drivers.delivery import WireLost
from fencekit.drivers.wire import Wire
from fencekit.protocol.resp import pack
from harness import clients
from harness.fixtures import ServerPool
from harness.servers import Server

# Far above each limit below, far below for ever.
BOUND = 5.0
SILENCE = pack("BLPOP", "nobody-pushes", "0")


def not_plain(sock: socket.socket) -> bool:
    del sock
    return False


@pytest.fixture(params=["kernel", "python"])
def connect(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Server, float], Wire]]:
    """Connect with a time limit, watched by the kernel or, as with TLS and greenlets, by Python."""
    if request.param == "python":
        monkeypatch.setattr(wires, "_is_plain", not_plain)
    with ExitStack() as stack:

        def make(server: Server, limit: float) -> Wire:
            client = stack.enter_context(clients.opened(server.url))
            wire = Wire(describe(client, "sync"), limit, None)
            stack.callback(wire.close)
            return wire

        yield make


def test_a_silent_server_is_left(server: Server, connect: Callable[[Server, float], Wire]) -> None:
    wire = connect(server, 0.1)
    began = time.monotonic()
    wire.send(SILENCE)
    with pytest.raises(WireLost, match="timed out") as lost:
        wire.receive(1)
    assert time.monotonic() - began < BOUND
    assert lost.value.sent
    assert isinstance(lost.value.cause, TimeoutError)


def test_a_server_that_takes_nothing_is_left(
    fresh_server: Server, connect: Callable[[Server, float], Wire]
) -> None:
    wire = connect(fresh_server, 0.1)
    fresh_server.pause()
    try:
        began = time.monotonic()
        with pytest.raises(WireLost, match="timed out"):
            wire.send(pack("SET", "much", b"x" * 64_000_000))
        assert time.monotonic() - began < BOUND
    finally:
        fresh_server.resume()


def test_patience_is_for_one_answer(
    server: Server, connect: Callable[[Server, float], Wire]
) -> None:
    wire = connect(server, 0.1)
    wire.send(pack("BLPOP", "nobody-pushes", "0.4"))
    with wire.patient(BOUND):
        assert wire.receive(1) == [None]
    wire.send(SILENCE)
    with pytest.raises(WireLost, match="timed out"):
        wire.receive(1)


def test_a_limit_holds_from_the_next_answer_on(
    server: Server, connect: Callable[[Server, float], Wire]
) -> None:
    wire = connect(server, BOUND * 10)
    wire.limit(0.1)
    began = time.monotonic()
    wire.send(SILENCE)
    with pytest.raises(WireLost, match="timed out"):
        wire.receive(1)
    assert time.monotonic() - began < BOUND


def test_what_has_arrived_is_taken_without_waiting(
    server: Server, connect: Callable[[Server, float], Wire]
) -> None:
    wire = connect(server, BOUND * 10)
    began = time.monotonic()
    assert wire.arrived() == []
    assert time.monotonic() - began < BOUND
    # And what follows may take its time again.
    wire.limit(BOUND * 10)
    wire.send(pack("BLPOP", "nobody-pushes", "0.1"))
    assert wire.receive(1) == [None]


def test_a_connection_that_was_closed_meanwhile_is_not_fresh(
    server: Server, connect: Callable[[Server, float], Wire]
) -> None:
    wire = connect(server, BOUND)
    wire.send(pack("CLIENT", "ID"))
    (number,) = wire.receive(1)
    time.sleep(0.01)  # beyond the moment in which it is trusted unseen
    assert wire.fresh
    server.call("CLIENT", "KILL", "ID", number)
    until = time.monotonic() + BOUND
    while wire.fresh:
        assert time.monotonic() < until


def test_the_kernel_watches_only_what_is_its_own(servers: ServerPool) -> None:
    for tls in (False, True):
        server = servers.clean(tls=tls)
        with clients.opened(server.url) as client:
            wire = Wire(describe(client, "sync"), BOUND, None)
            try:
                # Python's own limit, where it does not watch, is none: the socket blocks.
                assert (wire._socket.gettimeout() is None) is not tls
            finally:
                wire.close()
