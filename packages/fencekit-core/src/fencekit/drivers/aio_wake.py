"""The wake hub of the async driver: one subscribed connection for all waiters of a loop."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

from fencekit.drivers.delivery import WireLost
from fencekit.drivers.lane import take_over
from fencekit.drivers.switchboard import BaseWaiter, Channel, Ear, Switchboard, tell
from fencekit.drivers.wake import (
    LINGER,
    LONGEST_SLEEP,
    PING_EVERY,
    POLL,
    RECONNECT_FIRST,
    RECONNECT_LONGEST,
    TIMEOUT,
)
from fencekit.drivers.wire import new_decoder
from fencekit.protocol.operation import Reply
from fencekit.protocol.resp import ErrorReply, ProtocolError, pack

if TYPE_CHECKING:
    from fencekit.drivers.loop_state import LoopState

__all__ = ["AsyncWaiter", "AsyncWakeHub"]

_log = logging.getLogger("fencekit.wake")


class AsyncWaiter(BaseWaiter):
    """A task that waits."""

    def __init__(self, channel: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(channel)
        self._loop = loop
        self._bell: asyncio.Future[None] | None = None

    def signal(self) -> None:
        """Wake the task."""
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Sleep until signalled or the time is over."""
        self._bell = self._loop.create_future()
        timer = self._loop.call_later(min(seconds, LONGEST_SLEEP), self.signal)
        try:
            await self._bell
        finally:
            timer.cancel()
            self._bell = None


class AsyncWakeHub(asyncio.Protocol):
    """Wakes waiting tasks when a name they wait for is released.

    A wake is only an optimisation: whoever is woken tries again, and whoever is not looks when the
    holder's lease is over. After every reconnect all waiters look for themselves.
    """

    def __init__(self, state: LoopState) -> None:
        self._state = state
        self._loop = state.loop
        self._board: Switchboard[AsyncWaiter] = Switchboard()
        self._transport: asyncio.Transport | None = None
        self._writer: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked = False
        self._refused = False
        self._closed = False
        self._pause = RECONNECT_FIRST
        # What satellites keep beside the hub: it goes when the hub does, as after a fork.
        self.guests: dict[str, Any] = {}
        self._confirming: dict[str, asyncio.Future[None]] = {}
        self._decoder = new_decoder()

    async def join(self, channel: str, until: float = math.inf) -> AsyncWaiter:
        """Listen on a channel; returns when wakes can arrive, or cannot for now, or at a time.

        Cancelled, it leaves nothing behind.
        """
        waiter = AsyncWaiter(channel, self._loop)
        try:
            await self._attend(channel, self._board.join(waiter), until)
        except BaseException:
            self.leave(waiter, None, failed=True)
            raise
        # Who joins looks once more by itself; only what comes after that is a wake.
        waiter.pending = False
        return waiter

    async def subscribe(self, channel: str, ear: Ear, until: float = math.inf) -> None:
        """Have an ear told of every message; returns as `join` does.

        The ear is called in the loop, also with None whenever messages may have been missed.
        Cancelled, it stays subscribed: others may rely on the same ear, and whoever keeps it knows.
        """
        await self._attend(channel, self._board.subscribe(channel, ear), until)

    def unsubscribe(self, channel: str, ear: Ear) -> None:
        """End a subscription; messages may arrive for some seconds more."""
        self._board.unsubscribe(channel, ear, self._loop.time())

    def hears(self, channel: str) -> bool:
        """Whether messages on a channel arrive here now."""
        state = self._board.channels.get(channel)
        return state is not None and state.confirmed

    def leave(self, waiter: AsyncWaiter, alarm: float | None, *, failed: bool) -> None:
        """End a wait."""
        now = self._loop.time()
        self._board.leave(waiter, None if alarm is None else now + alarm, now, failed=failed)

    async def wait(self, waiter: AsyncWaiter, seconds: float, alarm: float) -> bool:
        """Sleep until woken, the alarm of the first waiter, or the end of the time."""
        now = self._loop.time()
        deadline = now + seconds
        self._board.begin_wait(waiter, now + alarm)
        while not self._board.take_wake(waiter):
            left = self._board.look_at(waiter, deadline, now + POLL) - self._loop.time()
            if left <= 0:
                return False
            await waiter.sleep(left)
        return True

    def close(self) -> asyncio.Task[None] | None:
        """Close the connection; waiters fall back to looking for themselves.

        A task that was making the connection is cancelled, and returned.
        """
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        if self._connecting is not None:
            self._connecting.cancel()
        return self._connecting

    async def _attend(
        self, channel: str, state: Channel[AsyncWaiter], until: float = math.inf
    ) -> None:
        """Have the server asked for a channel, and wait for it to confirm, while it may."""
        if state.confirmed:
            return
        if self._transport is None:
            self._connect_soon()
        elif not state.asked:
            state.asked = True
            self._transport.write(pack("SUBSCRIBE", channel))
        if not self._refused:
            await self._confirmation(channel, until - self._loop.time())
        if not state.confirmed:
            state.missed = True

    async def _confirmation(self, channel: str, seconds: float) -> None:
        """Wait until a channel is confirmed, cannot be for now, or the time is up."""
        confirming = self._confirming.get(channel)
        if confirming is None:
            confirming = self._confirming[channel] = self._loop.create_future()
            # One timer for all: thousands that each gave up by themselves would each search the
            # list of the others.
            self._loop.call_later(TIMEOUT, self._give_up, channel, confirming)
        await asyncio.wait([confirming], timeout=seconds if seconds < TIMEOUT else None)

    def _give_up(self, channel: str, confirming: asyncio.Future[None]) -> None:
        """Nobody waits any longer for a channel to be confirmed."""
        if self._confirming.get(channel) is confirming:
            del self._confirming[channel]
        if not confirming.done():
            confirming.set_result(None)

    def _stop_confirming(self) -> None:
        """Have nobody wait for a confirmation that will not come for now."""
        for confirming in self._confirming.values():
            if not confirming.done():
                confirming.set_result(None)
        self._confirming.clear()

    def _connect_soon(self) -> None:
        # Whoever joined while a pause ran may have made the connection already.
        connected = self._transport is not None or self._connecting is not None
        if not connected and not self._closed and not self._loop.is_closed():
            self._connecting = self._loop.create_task(self._connect())
            self._connecting.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[None]) -> None:
        """Try again where the task was cancelled before it ran its first line."""
        if task is self._connecting:
            self._connecting = None
            self._reconnect_later()

    async def _connect(self) -> None:
        client = self._state.client
        try:
            connection = client.connection(min(client.timeout, TIMEOUT), self._state.any_node())
            writer = await take_over(connection, self)
        except WireLost as lost:
            _log.debug("wake hub: %s", lost)
            self._connecting = None
            self._reconnect_later()
            return
        except BaseException:
            self._connecting = None
            raise
        self._connecting = None
        if self._closed:
            writer.transport.abort()
            return
        self._decoder = new_decoder()
        self._writer, self._transport = writer, writer.transport
        self._asked = self._refused = False
        for channel in self._board.channels.values():
            channel.asked = True
        if self._board.channels:
            writer.transport.write(pack("SUBSCRIBE", *self._board.channels))
        self._watch()

    def _reconnect_later(self) -> None:
        self._stop_confirming()
        if self._board.channels and not self._closed and not self._loop.is_closed():
            self._loop.call_later(self._pause, self._connect_soon)
            self._pause = min(self._pause * 2, RECONNECT_LONGEST)

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(PING_EVERY, self._tidy)

    def _tidy(self) -> None:
        """Give up idle channels, close when nobody waits, and ask whether the server is there."""
        self._timer = None
        if self._transport is None:
            return
        idle = self._board.idle(self._loop.time() - LINGER)
        if self._asked or not self._board.channels:
            self._transport.abort()
            return
        if idle:
            self._transport.write(pack("UNSUBSCRIBE", *idle))
        self._asked = True
        self._transport.write(pack("PING"))
        self._timer = self._loop.call_later(TIMEOUT, self._tidy)

    def data_received(self, data: bytes) -> None:
        """Hear what was published, and that the server is there."""
        if self._asked:
            self._asked = False
            self._watch()
        try:
            self._decoder.feed(data)
            while (message := self._decoder.gets()) is not False:
                self._hear(message)
        except ProtocolError:
            if self._transport is not None:
                self._transport.abort()

    def _hear(self, message: Reply) -> None:
        if isinstance(message, ErrorReply):
            if not self._refused:
                _log.warning(
                    "the server refuses the wake channel (%s): one waiter of each name looks "
                    "every %s s; allow the channel to the ACL user",
                    message.text,
                    POLL,
                    extra={"event": "fencekit.wake.refused", "fencekit": {}},
                )
            self._refused = True
            self._stop_confirming()
            return
        if not isinstance(message, list):
            return  # +PONG, where the server let us subscribe to nothing
        kind, name = message[0], message[1].decode()
        if kind == b"message":
            tell(self._board.message(name), message[2])
        elif kind == b"subscribe":
            # Not before: some proxies accept connections and close them at SUBSCRIBE.
            self._pause = RECONNECT_FIRST
            ears = self._board.confirm(name)
            confirmed = self._confirming.pop(name, None)
            if confirmed is not None and not confirmed.done():
                confirmed.set_result(None)
            tell(ears, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Reconnect while somebody waits."""
        _log.debug("wake hub: connection lost (%s)", exc)
        self._transport = self._writer = None
        tell(self._board.disconnected(), None)
        self._reconnect_later()
