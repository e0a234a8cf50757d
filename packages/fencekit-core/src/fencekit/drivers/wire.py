"""A connection of the sync driver."""

from __future__ import annotations

import select
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from fencekit.drivers.client import Address, Client
from fencekit.drivers.delivery import WireLost
from fencekit.drivers.interrupts import close_half_made, interrupt_behind, is_interrupt
from fencekit.protocol.operation import Reply
from fencekit.protocol.resp import Decoder, ErrorReply, ProtocolError

try:
    from hiredis import Reader
except ImportError:  # an optional speed-up; the replies are the same
    Reader = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from fencekit.drivers.pool import Turn

__all__ = ["Readable", "Wire", "new_decoder", "readable"]

_READ_SIZE = 65536
# What Python sends under one time limit, where it watches: a server that takes it does not hang.
_PIECE = 262_144
# A connection that lay idle for longer is looked at before it is trusted: a server that restarted
# meanwhile would otherwise cost an unanswered copy.
_TRUSTED_IDLE = 0.001
# The longest wait for one answer, seconds: the system counts milliseconds in 31 bits.
_LONGEST_WAIT = 2_000_000.0
_TIMED_OUT = "timed out"


def new_decoder() -> Any:
    """A reader of replies: hiredis where it is installed, else our own."""
    if Reader is None:
        return Decoder()
    # No exception, unlike what hiredis's types say: it only makes the value and returns it.
    return Reader(protocolError=ProtocolError, replyError=ErrorReply)  # type: ignore[arg-type]


def readable(sources: Sequence[Readable], seconds: float) -> list[Readable]:
    """Wait until some have something to read, or the time is over; returns those."""
    if not hasattr(select, "poll"):  # eventlet takes it away
        return select.select(sources, [], [], seconds)[0]
    poll = select.poll()
    numbers = {source.fileno(): source for source in sources}
    for number in numbers:
        poll.register(number, select.POLLIN)
    return [numbers[number] for number, _ in poll.poll(seconds * 1000)]


class Readable(Protocol):
    """What can be waited for: a socket, or a connection."""

    def fileno(self) -> int:
        """Its number."""
        raise NotImplementedError


def _is_plain(sock: socket.socket) -> bool:
    """Whether a socket is the system's own: not encrypted, and not a greenlet's."""
    return type(sock).__module__ == "socket" and hasattr(select, "poll")


class Wire:
    """One connection, used by one thread at a time.

    Attributes:
        client: whose server it leads to.
        timeout: how long each answer may take, seconds.
        turn: the right to it, where it is a pool's.
        used_at: monotonic second at which it was last used.

    Where it can, it never blocks in a send or a receive, and waits with a poll of its own, only
    where there is something to wait for: with a time limit of Python's every send would poll first.
    The kernel's own limits (SO_RCVTIMEO) would save the poll of a receive too, but every signal
    that Python handles starts them anew: a process with a timer would wait for a silent server for
    ever.
    """

    def __init__(self, client: Client, timeout: float, address: Address | None) -> None:
        """Connect.

        Raises:
            WireLost: the connection could not be made; nothing was sent.
            whatever a signal's handler raises meanwhile.
        """
        self.client = client
        self.timeout = timeout
        self.turn: Turn | None = None
        self._connection = client.connection(timeout, address)
        self.used_at = time.monotonic()
        handled = sys.exc_info()[1]
        try:
            self._connection.connect()
            # The library has connected and authenticated; from here on the socket is ours.
            self._socket = self._connection._sock  # noqa: SLF001
            self._plain = _is_plain(self._socket)
            if self._plain:
                self._socket.settimeout(0)
                self._at_hand = select.poll()
                self._at_hand.register(self._socket, select.POLLIN)
            self._allow(timeout)
        except BaseException as error:
            interrupt = interrupt_behind(error, handled)
            self._connection.disconnect()
            if interrupt is None and isinstance(error, Exception):
                # Of the library, or of a credential provider: nothing was sent.
                raise WireLost(error, sent=False) from error
            close_half_made(error)
            if interrupt is None or interrupt is error:
                raise
            raise interrupt from None
        self._decoder = new_decoder()

    @property
    def fresh(self) -> bool:
        """Whether nothing has arrived, nor been closed, since it was last used."""
        if time.monotonic() - self.used_at < _TRUSTED_IDLE:
            return True
        if self._plain:
            return not self._at_hand.poll(0)
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return False
        return not readable((self._socket,), 0)

    def send(self, data: bytes) -> None:
        """Send bytes, however many, for as long as the other side goes on taking some.

        Raises:
            WireLost: the connection broke, or nothing was taken in time; all or part may have left.
        """
        try:
            if self._plain:
                self._push(data)
            elif len(data) <= _PIECE:
                self._socket.sendall(data)
            else:  # Python's limit is for all that it is given
                whole = memoryview(data)
                for start in range(0, len(data), _PIECE):
                    self._socket.sendall(whole[start : start + _PIECE])
        except OSError as error:
            self.close()
            if is_interrupt(error):
                raise
            raise WireLost(error, sent=True) from error

    def _push(self, data: bytes) -> None:
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            return
        # More than the kernel takes at once.
        rest = memoryview(data)[sent:]
        room = select.poll()
        room.register(self._socket, select.POLLOUT)
        deadline = time.monotonic() + self._allowed
        while rest:
            left = deadline - time.monotonic()
            if left <= 0 or not room.poll(left * 1000):
                raise TimeoutError(_TIMED_OUT)
            with suppress(BlockingIOError):
                rest = rest[self._socket.send(rest) :]
                # Who takes some does not hang, however much there is.
                deadline = time.monotonic() + self._allowed

    def receive(self, count: int) -> list[Reply]:
        """Read as many replies.

        Raises:
            WireLost: the connection broke, or no answer came in time.
        """
        replies: list[Reply] = []
        gets, feed, recv = self._decoder.gets, self._decoder.feed, self._socket.recv
        wait = self._at_hand.poll if self._plain else None
        try:
            while True:
                reply = gets()
                if reply is not False:
                    replies.append(reply)
                    if len(replies) == count:
                        self.used_at = time.monotonic()
                        return replies
                    continue
                if wait is not None and not wait(self._allowed * 1000):
                    raise TimeoutError(_TIMED_OUT)
                data = recv(_READ_SIZE)
                if not data:
                    self.close()
                    raise WireLost("the server closed the connection", sent=True)
                feed(data)
        except (OSError, ProtocolError) as error:
            self.close()
            if is_interrupt(error):
                raise
            raise WireLost(error, sent=True) from error

    def limit(self, timeout: float) -> None:
        """Set how long each answer may take, seconds."""
        if timeout != self.timeout or not self._plain:
            self.timeout = timeout
            self._allow(timeout)

    def _allow(self, seconds: float) -> None:
        self._allowed = min(seconds, _LONGEST_WAIT)
        if not self._plain:
            self._socket.settimeout(self._allowed)

    @contextmanager
    def patient(self, extra: float) -> Iterator[None]:
        """Allow some seconds more for a reply: the server was asked to wait."""
        self._allow(self.timeout + extra)
        try:
            yield
        finally:
            self._allow(self.timeout)

    def fileno(self) -> int:
        """The socket's number, to wait for what arrives."""
        return int(self._socket.fileno())

    def arrived(self) -> list[Reply]:
        """Take what has arrived of a subscription, without waiting.

        Raises:
            WireLost: the connection broke.
        """
        replies: list[Reply] = []
        try:
            if not self._plain:
                self._socket.settimeout(0)
            while True:
                try:
                    data = self._socket.recv(_READ_SIZE)
                except (BlockingIOError, ssl.SSLWantReadError):
                    break
                if not data:
                    raise WireLost("the server closed the connection", sent=True)
                self._decoder.feed(data)
                while (reply := self._decoder.gets()) is not False:
                    replies.append(reply)
                if len(data) < _READ_SIZE and not isinstance(self._socket, ssl.SSLSocket):
                    break
        except (OSError, ProtocolError) as error:
            if is_interrupt(error):
                raise
            raise WireLost(error, sent=True) from error
        return replies

    def shut(self) -> None:
        """End the wait of another thread for what arrives."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; also safe when it is closed already, or a forked child's copy."""
        self._connection.disconnect()
