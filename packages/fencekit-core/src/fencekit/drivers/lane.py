"""A connection of the async driver: what is sent in one turn of the loop travels together.

Operations are written by the lane, not by their callers, so a cancelled caller can neither poison
the connection nor stop a command that is under way. Replies come back in order; each settles the
future of its parcel.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from fencekit.drivers.client import Address, Client
from fencekit.drivers.delivery import WireLost
from fencekit.drivers.sentinel import hang_up
from fencekit.drivers.wire import new_decoder
from fencekit.protocol.operation import Reply
from fencekit.protocol.resp import ProtocolError, pack

if TYPE_CHECKING:
    from fencekit.drivers.loop_state import Parcel

__all__ = ["Lane", "Load", "Question", "take_over"]

# A timer that fires this much late says that the loop was blocked: answers may lie unread.
_BLOCKED = 0.25


async def take_over(connection: Any, protocol: asyncio.Protocol) -> Any:
    """Connect and authenticate with the library's connection, then make its transport ours.

    Returns the library's stream writer, which must be kept: it closes its transport when it dies.

    Raises:
        WireLost: the connection could not be made.
    """
    try:
        await connection.connect()
    except Exception as error:
        # Of the library, or of a credential provider: nothing was sent.
        await hang_up(connection)
        raise WireLost(error, sent=False) from error
    except asyncio.CancelledError:
        await hang_up(connection)
        raise
    # The library has no public way to hand a connection over.
    reader, writer = connection._reader, connection._writer  # noqa: SLF001
    if writer.is_closing() or reader.at_eof() or reader.exception() is not None:
        # The end of a connection is told once, and its reader has been told.
        await hang_up(connection)
        raise WireLost("the server closed the connection", sent=False)
    connection._writer = connection._reader = None  # noqa: SLF001
    writer.transport.set_protocol(protocol)
    return writer


class Load(Protocol):
    """What a parcel carries: a `Delivery`, or a `Question`."""

    @property
    def replies(self) -> int:
        """How many replies a copy is answered with."""
        raise NotImplementedError

    @property
    def patience(self) -> float:
        """Seconds that the server was asked to wait before it answers."""
        raise NotImplementedError

    def packed(self) -> bytes:
        """The bytes of a copy."""
        raise NotImplementedError

    def leaving(self, now: float) -> None:
        """A copy is being sent."""


class Question:
    """A plain command, sent once, answered or not: INFO, CLUSTER SLOTS."""

    replies = 1
    patience = 0.0

    def __init__(self, *command: str) -> None:
        self._command = command

    def packed(self) -> bytes:
        """The bytes of the command."""
        return pack(*self._command)

    def leaving(self, now: float) -> None:
        """Nothing is counted."""


class Lane(asyncio.Protocol):
    """One connection, shared by all tasks of a loop, in order."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: Client,
        timeout: float,
        address: Address | None,
    ) -> None:
        self._loop = loop
        self._client = client
        self._timeout = timeout
        self._address = address
        self._queue: list[Parcel] = []
        self._outstanding: deque[Parcel] = deque()
        self._transport: asyncio.Transport | None = None
        self._writer: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._flushing = False
        self._retired = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._decoder = new_decoder()
        self._replies: list[Reply] = []
        self._error: BaseException | None = None

    @property
    def busy(self) -> int:
        """How many parcels are queued or unanswered."""
        return len(self._queue) + len(self._outstanding)

    def submit(self, parcel: Parcel) -> None:
        """Send a parcel with the others of this turn, or at once when nothing is under way."""
        self._queue.append(parcel)
        if self._transport is None:
            if self._connecting is None:
                self._connect_soon()
        elif not self._outstanding:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def retire(self) -> None:
        """Close as soon as what is under way has been answered."""
        self._retired = True
        if not self._outstanding:
            self.close()

    def close(self) -> asyncio.Task[None] | None:
        """Close the connection; a task that was making one is cancelled, and returned."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        if self._connecting is not None:
            self._connecting.cancel()
        return self._connecting

    def _connect_soon(self) -> None:
        self._connecting = self._loop.create_task(self._connect())
        self._connecting.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[None]) -> None:
        """Let nobody wait for a task that was cancelled before it ran its first line."""
        if task is self._connecting:
            self._connecting = None
            self._fail_queue(WireLost("cancelled", sent=False))

    async def _connect(self) -> None:
        try:
            connection = self._client.connection(self._timeout, self._address)
            writer = await take_over(connection, self)
        except WireLost as lost:
            self._connecting = None
            self._fail_queue(lost)
        except BaseException as error:
            # Shutting down, or a bug: whoever waits must not wait for ever.
            self._connecting = None
            self._fail_queue(WireLost(error, sent=False))
            raise
        else:
            self._connecting = None
            self._decoder = new_decoder()
            self._replies = []
            self._error = None
            self._writer, self._transport = writer, writer.transport
            if self._closed:
                writer.transport.abort()
            else:
                self._flush()

    def _fail_queue(self, lost: WireLost) -> None:
        queue, self._queue = self._queue, []
        for parcel in queue:
            parcel.lost(lost)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is None or not self._queue:
            return
        queue, self._queue = self._queue, []
        now = self._loop.time()
        copies = []
        for parcel in queue:
            try:
                copies.append(parcel.load.packed())
            except ValueError as error:
                # A text that is not UTF-8: nothing leaves, so no reply may be waited for, or
                # every later reply would go to the wrong parcel.
                parcel.fail(error)
                continue
            parcel.load.leaving(now)
            parcel.due = now + self._timeout + parcel.load.patience
            self._outstanding.append(parcel)
        if not copies:
            return
        self._transport.write(copies[0] if len(copies) == 1 else b"".join(copies))
        if self._timer is None:
            due = self._outstanding[0].due
            self._timer = self._loop.call_at(due, self._check, due)

    def _check(self, planned: float) -> None:
        """Give up a connection whose oldest parcel has not been answered in time.

        Replies come in order, so while others come it is being served: thousands of parcels that
        were sent in one turn wait for each other, not for a server that hangs.
        """
        self._timer = None
        if not self._outstanding or self._transport is None:
            return
        now = self._loop.time()
        oldest = self._outstanding[0]
        due = max(oldest.due, self._heard_at + self._timeout + oldest.load.patience)
        if due > now or now - planned > _BLOCKED:
            at = max(due, now + _BLOCKED)
            self._timer = self._loop.call_at(at, self._check, at)
            return
        self._error = TimeoutError("no answer in time")
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Settle what has been answered."""
        decoder, outstanding = self._decoder, self._outstanding
        self._heard_at = self._loop.time()
        try:
            decoder.feed(data)
            reply = decoder.gets()
            while reply is not False:
                if not outstanding:
                    raise ProtocolError("a reply to nothing")  # noqa: TRY301 - closes, below
                parcel = outstanding[0]
                if parcel.load.replies == 1:
                    outstanding.popleft()
                    parcel.answered([reply])
                else:
                    self._replies.append(reply)
                    if len(self._replies) == parcel.load.replies:
                        replies, self._replies = self._replies, []
                        outstanding.popleft()
                        parcel.answered(replies)
                reply = decoder.gets()
        except ProtocolError as error:
            self._error = error
            if self._transport is not None:
                self._transport.abort()
        if self._retired and not outstanding:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let what was not answered be sent again, and what was not sent be sent."""
        self._transport = self._writer = None
        lost = WireLost(self._error or exc or "the server closed the connection", sent=True)
        outstanding, self._outstanding = self._outstanding, deque()
        for parcel in outstanding:
            parcel.lost(lost)
        if self._closed:
            # A connection made now would be nobody's to close: another lane may send it.
            self._fail_queue(WireLost("the connection was closed", sent=False))
        elif self._queue and self._connecting is None and not self._loop.is_closed():
            self._connect_soon()
