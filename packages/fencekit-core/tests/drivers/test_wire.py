"""One connection of the sync driver: its time limits, whoever watches them.

How each bites: a wire that sets no limit waits for ever, and these tests with it.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

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


@pytest.fixture(params=["own", "python"])
def connect(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Server, float], Wire]]:
    """Connect with a time limit, watched by a poll of ours or, as with TLS, by Python."""
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


def test_a_server_that_takes_much_for_long_is_not_left_while_it_takes(
    server: Server, connect: Callable[[Server, float], Wire]
) -> None:
    """Found here: what many keys ask had to leave within the limit for one answer, all of it."""
    wire = connect(server, 0.25)
    # Each keeps the server for a while, and is so long that the kernel holds but some of them.
    work = "local n = 0; for i = 1, 800000 do n = n + i end; return 1"
    much = pack("EVAL", work, "0", b"x" * 400_000) * 120
    began = time.monotonic()
    wire.send(much)
    assert time.monotonic() - began > 0.25, "as long as the limit, or this shows nothing"
    assert wire.receive(120) == [1] * 120


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


@contextmanager
def a_timer_that_goes_off_all_the_time() -> Iterator[None]:
    """As a profiler's that samples the wall clock; each signal ends a system call that waits."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_signals_do_not_make_a_silent_server_worth_waiting_for(
    server: Server, connect: Callable[[Server, float], Wire]
) -> None:
    """Found here: each signal started the kernel's limit (SO_RCVTIMEO) anew, for ever."""
    wire = connect(server, 0.2)
    with a_timer_that_goes_off_all_the_time():
        wire.send(pack("BLPOP", "nobody-pushes", str(BOUND)))
        with pytest.raises(WireLost, match="timed out"):
            wire.receive(1)


def test_signals_do_not_make_a_server_that_takes_nothing_worth_waiting_for(
    fresh_server: Server, connect: Callable[[Server, float], Wire]
) -> None:
    wire = connect(fresh_server, 0.2)
    fresh_server.pause()
    resume = threading.Timer(BOUND, fresh_server.resume)
    resume.start()
    try:
        began = time.monotonic()
        with a_timer_that_goes_off_all_the_time(), pytest.raises(WireLost, match="timed out"):
            wire.send(pack("SET", "much", b"x" * 64_000_000))
        assert time.monotonic() - began < BOUND
    finally:
        resume.cancel()
        fresh_server.resume()


def test_what_the_kernel_takes_in_pieces_arrives_whole(
    server: Server, connect: Callable[[Server, float], Wire]
) -> None:
    wire = connect(server, BOUND * 2)
    much = bytes(range(256)) * 60_000
    wire.send(pack("SET", "much", much))
    assert wire.receive(1) == [b"OK"]
    wire.send(pack("GET", "much") * 3)
    assert wire.receive(3) == [much] * 3
    server.call("DEL", "much")


def test_patience_may_be_longer_than_the_system_can_count(
    server: Server, connect: Callable[[Server, float], Wire]
) -> None:
    """Python's own limits refuse what the system cannot count, with an OverflowError."""
    wire = connect(server, BOUND)
    wire.send(pack("PING"))
    with wire.patient(10 * 365 * 86_400.0):
        assert wire.receive(1) == [b"PONG"]


def test_only_plain_sockets_are_waited_for_here(servers: ServerPool) -> None:
    for tls in (False, True):
        server = servers.clean(tls=tls)
        with clients.opened(server.url) as client:
            wire = Wire(describe(client, "sync"), BOUND, None)
            try:
                # Without a limit of Python's, and without blocking.
                assert (wire._socket.gettimeout() == 0) is not tls
            finally:
                wire.close()


def test_where_poll_was_taken_away_python_watches(
    server: Server, connect: Callable[[Server, float], Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As eventlet does, which may leave the sockets as they are."""
    monkeypatch.delattr(select, "poll")
    wire = connect(server, 0.1)
    wire.send(SILENCE)
    with pytest.raises(WireLost, match="timed out"):
        wire.receive(1)
