"""The connections of the sync driver to one server, and the turns that threads take on them."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from weakref import WeakSet

from fencekit.drivers.client import Address, Client
from fencekit.drivers.wire import Wire

__all__ = ["Turn", "WirePool"]

# How long a connection is kept that was needed in a rush, seconds.
_KEPT_IDLE = 0.5
# How often a thread that waits for its turn looks by itself, seconds: a turn that is forgotten, by
# whoever was interrupted between taking and using it, wakes nobody.
_LOOK_EVERY = 0.5


class Turn:
    """The right to one connection, for as long as anybody has it."""


class WirePool:
    """The connections to one server: at most a share, and threads wait for their turn.

    Any call may be interrupted anywhere (Ctrl-C, a soft time limit). So the lock is only held by a
    ``with`` of its own; that of a `threading.Condition` is Python, and may be left with the lock.
    """

    def __init__(self, client: Client, address: Address | None = None) -> None:
        self._client = client
        self._address = address
        self._idle: deque[Wire] = deque()
        self._lock = threading.Lock()
        self._turns: WeakSet[Turn] = WeakSet()
        # Of those that wait, in order of arrival; each is released to wake its thread.
        self._bells: deque[threading.Lock] = deque()

    def take(self, timeout: float | None = None) -> Wire:
        """Take an idle connection, make one, or wait for one.

        Args:
            timeout: how long connecting and each answer may take, seconds; the client's own time
                unless given.

        Raises:
            WireLost: the connection could not be made.
        """
        while not isinstance(wire := self._take_idle(), Turn):
            try:
                if wire.fresh:
                    if timeout is not None:
                        wire.limit(timeout)
                    return wire
            except BaseException:  # interrupted: the turn is another's
                self.drop(wire)
                raise
            self.drop(wire)
        turn = wire
        try:
            made = Wire(self._client, timeout or self._client.timeout, self._address)
        except BaseException:
            self._free(turn)
            raise
        made.turn = turn
        return made

    def _take_idle(self) -> Wire | Turn:
        """An idle connection, or the right to make one."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        bell = threading.Lock()
        bell.acquire()
        # Hung up before looking: whoever gives one back puts it there before it looks for a bell,
        # so one of the two sees the other.
        self._bells.append(bell)
        try:
            while True:
                try:
                    return self._idle.pop()
                except IndexError:  # none, or another thread was quicker
                    pass
                with self._lock:
                    if len(self._turns) < self._client.share:
                        turn = Turn()
                        self._turns.add(turn)
                        return turn
                if self._await(bell):
                    self._bells.appendleft(bell)
        finally:
            try:
                self._bells.remove(bell)
            except ValueError:  # it rang, which may have been for more than we took
                if self._idle or len(self._turns) < self._client.share:
                    self._ring()

    @staticmethod
    def _await(bell: threading.Lock) -> bool:
        """Wait for a bell, not for ever; returns whether it rang."""
        return bell.acquire(timeout=_LOOK_EVERY)

    def _ring(self) -> None:
        """Wake the thread that has waited longest, if any does."""
        with suppress(IndexError):
            self._bells.popleft().release()

    def give(self, wire: Wire) -> None:
        """Put a connection back."""
        self._idle.append(wire)
        if self._bells:
            self._ring()

    def trim(self) -> None:
        """Close the connections that nobody has used for a while, but for one."""
        before = time.monotonic() - _KEPT_IDLE
        while len(self._idle) > 1:
            try:
                wire = self._idle.popleft()
            except IndexError:  # other threads took the last ones
                return
            if wire.used_at > before:
                self.give(wire)
                return
            self.drop(wire)

    def drop(self, wire: Wire) -> None:
        """Close a connection of no further use."""
        wire.close()
        self._free(wire.turn)

    def _free(self, turn: Turn | None) -> None:
        if turn is not None:
            with self._lock:
                self._turns.discard(turn)
        self._ring()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            try:
                self.drop(self._idle.pop())
            except IndexError:  # another thread took the last one
                return

    def abandon(self) -> None:
        """Close the idle connections of a driver that nobody uses any more."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()
