"""A signal whose handler raises, a soft time limit or an alarm, in the middle of a connection.

How each bites: the wire as it was took whatever was raised while it connected for a server that
cannot be reached, and tried again for some seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fencekit import DistributedLock
from fencekit.drivers.client import describe
from fencekit.drivers.delivery import WireLost
from fencekit.drivers.sync import SyncDriver
from fencekit.drivers.wire import Wire
from fencekit.protocol.resp import pack
from harness import clients
from harness.clients import Family
from harness.ports import HOST
from harness.servers import Server

# Far above each moment at which the signals come, far below for ever.
BOUND = 5.0
SOON = 0.05
TTL = timedelta(seconds=30)


class SoftLimit(Exception):
    """As Celery's SoftTimeLimitExceeded: an Exception like any other."""


class HardLimit(BaseException):
    """As a limit that nobody should catch."""


def raising(error: type[BaseException]) -> Callable[..., None]:
    def handler(*_: object) -> None:
        raise error("the limit's")

    return handler


class Watchman:
    """Whose methods handle signals."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def shout(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        raise self.error("the limit's")

    def told(self, error: type[BaseException], number: int, frame: FrameType | None) -> None:
        self.error = error
        self.shout(number, frame)

    __call__ = shout


KINDS: dict[str, Callable[[type[BaseException]], Callable[..., None]]] = {
    "function": raising,
    "method": lambda error: Watchman(error).shout,
    "partial": lambda error: partial(Watchman(SoftLimit).told, error),
    "object": Watchman,
}


@contextmanager
def soon(handler: Callable[..., None]) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, SOON)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts and never answers."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def full() -> Iterator[int]:
    """The port of a server that does not even accept: connecting takes for ever."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
        for _ in range(8):
            one = stack.enter_context(socket.socket())
            one.settimeout(0)
            one.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def sockets() -> list[str]:
    links = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115
    return sorted(link for link in links if link.startswith("socket:"))


def connect(url: str, **options: Any) -> Wire:
    with clients.opened(url, **options) as client:
        return Wire(describe(client, "sync"), BOUND * 4, None)


# It goes on to whoever set the limit


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [SoftLimit, HardLimit, TimeoutError, ConnectionResetError])
@pytest.mark.parametrize("family", ["redis", "valkey"])
def test_a_limit_that_ends_while_connecting_is_raised(
    silent: int, kind: str, error: type[BaseException], family: Family
) -> None:
    began = time.monotonic()
    with soon(KINDS[kind](error)), pytest.raises(error, match="the limit's") as raised:
        connect(f"redis://{HOST}:{silent}", family=family)
    assert type(raised.value) is error, "and not what the library makes of it"
    assert time.monotonic() - began < BOUND


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what Linux shows")
@pytest.mark.parametrize("error", [SoftLimit, HardLimit, TimeoutError])
@pytest.mark.parametrize("where", ["connecting", "TLS", "greeting"])
def test_the_connection_that_was_not_finished_is_closed(
    request: pytest.FixtureRequest, where: str, error: type[BaseException]
) -> None:
    """Also while the exception is kept, as Celery keeps it to log it."""
    port = request.getfixturevalue("full" if where == "connecting" else "silent")
    before = sockets()
    scheme = "rediss" if where == "TLS" else "redis"
    with soon(raising(error)), pytest.raises(error, match="the limit's") as raised:
        connect(f"{scheme}://{HOST}:{port}")
    assert sockets() == before
    assert raised.value.__traceback__ is not None


def test_a_handlers_own_sockets_stay_open(silent: int) -> None:
    with socket.socket() as its_own:

        def handler(*_: object) -> None:
            kept = its_own
            msg = f"the limit's, {kept.fileno()}"
            raise SoftLimit(msg)

        with soon(handler), pytest.raises(SoftLimit):
            connect(f"redis://{HOST}:{silent}")
        assert its_own.fileno() != -1


def test_a_limit_that_ends_while_a_lock_connects_leaves_the_turn_to_others(
    server: Server, silent: int
) -> None:
    with clients.opened(f"redis://{HOST}:{silent}", max_connections=2, socket_timeout=20) as client:
        driver = SyncDriver.of(client)
        with soon(raising(SoftLimit)), pytest.raises(SoftLimit):
            DistributedLock(client).try_acquire("job", ttl=TTL)
        driver.client.settings["port"] = server.port
        assert driver.call("PING") == b"PONG"
        driver.close()


@pytest.mark.parametrize("error", [SoftLimit, TimeoutError])
def test_a_limit_that_ends_while_waiting_for_an_answer_is_raised(
    server: Server, error: type[BaseException]
) -> None:
    wire = connect(server.url)
    wire.send(pack("BLPOP", "nobody-pushes", "0"))
    with soon(raising(error)), pytest.raises(error, match="the limit's"):
        wire.receive(1)
    wire.close()


@pytest.mark.parametrize("error", [SoftLimit, TimeoutError])
def test_a_limit_that_ends_while_sending_is_raised(
    fresh_server: Server, error: type[BaseException]
) -> None:
    wire = connect(fresh_server.url)
    fresh_server.pause()
    much = pack("SET", "much", b"x" * 64_000_000)
    with soon(raising(error)), pytest.raises(error, match="the limit's"):
        wire.send(much)
    wire.close()


@pytest.mark.parametrize("error", [SoftLimit, TimeoutError])
def test_a_limit_that_ends_while_waiting_for_a_lock_is_raised(
    server: Server, error: type[BaseException]
) -> None:
    """Found here: what made a wait fail was taken for a connection that was just closed."""
    with clients.opened(server.url) as client:
        lock = DistributedLock(client)
        held = lock.acquire("job", ttl=TTL)
        began = time.monotonic()
        with soon(raising(error)), pytest.raises(error, match="the limit's"):
            lock.acquire("job", ttl=TTL, wait=TTL / 3)
        assert time.monotonic() - began < BOUND
        lock.release(held)
        lock._driver.close()


# And nothing else is taken for one


class Broken:
    """A credential provider that has none, or that is asked for too long."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def get_credentials(self) -> tuple[str, str]:
        time.sleep(self.seconds)
        msg = "no credentials"
        raise SoftLimit(msg)


def test_what_a_credential_provider_raises_is_a_connection_that_was_not_made(silent: int) -> None:
    with (
        soon(raising(HardLimit)),
        pytest.raises(WireLost, match="no credentials") as lost,
    ):
        connect(f"redis://{HOST}:{silent}", credential_provider=Broken())
    assert not lost.value.sent


def test_a_limit_that_ends_in_a_credential_provider_is_raised(silent: int) -> None:
    with soon(raising(SoftLimit)), pytest.raises(SoftLimit, match="the limit's"):
        connect(f"redis://{HOST}:{silent}", credential_provider=Broken(BOUND))


def test_a_server_that_is_away_while_an_earlier_limit_is_handled() -> None:
    """The interrupt is in the history of the error, and over."""
    with soon(raising(SoftLimit)):
        try:
            time.sleep(BOUND)
        except SoftLimit:
            with pytest.raises(WireLost):
                connect("redis://127.0.0.1:1")
        else:
            pytest.fail("no signal came")


def test_a_server_that_is_away_while_a_handler_runs() -> None:
    """A handler may tidy up, with locks to be released."""
    seen: list[BaseException] = []

    def handler(*_: object) -> None:
        try:
            connect("redis://127.0.0.1:1")
        except WireLost as error:
            seen.append(error)

    with soon(handler):
        until = time.monotonic() + BOUND
        while not seen:
            assert time.monotonic() < until
            time.sleep(0.01)
