"""Mailboxes of both colours: how a waiter's process is subscribed, and how the waiter sleeps."""

from __future__ import annotations

import asyncio
import threading
import time

from fencekit.drivers.wake import LONGEST_SLEEP
from fencekit.fifo.desk import Box, Desk
from fencekit.fifo.offers import Offer
from fencekit.fifo.protocol import Ticket

__all__ = ["AsyncBox", "SyncBox"]


class AsyncBox(Box):
    """The mailbox of a task."""

    def __init__(self, desk: Desk, ticket: Ticket, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(desk, ticket)
        self._loop = loop
        self._bell: asyncio.Future[None] | None = None

    def signal(self) -> None:
        """Wake the task."""
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    async def open(self) -> None:
        """Return when messages can arrive, or cannot for now."""
        desk = self.desk
        if desk.register(self):
            # Of the two the process's own is waited for last: the other is confirmed by then.
            await desk.hub.subscribe(self.ticket.terms.names.wake, desk.woken, self.until)
            await desk.hub.subscribe(desk.channel, desk.pushed, self.until)
            desk.opened(self)
        else:
            # Whoever was woken just now is to speak first: it may give the lock back, and we are
            # going to wait anyway.
            await asyncio.sleep(0)

    async def receive(self, seconds: float | None) -> Offer | str | None:
        """Take the oldest message; None when none has come in time."""
        if not self.mail and (seconds is None or seconds > 0):
            self._bell = self._loop.create_future()
            timer = None if seconds is None else self._loop.call_later(seconds, self.signal)
            try:
                await self._bell
            finally:
                self._bell = None
                if timer is not None:
                    timer.cancel()
        return self.mail.pop(0) if self.mail else None


class SyncBox(Box):
    """The mailbox of a thread."""

    def __init__(self, desk: Desk, ticket: Ticket) -> None:
        super().__init__(desk, ticket)
        self._bell = threading.Lock()
        self._bell.acquire()

    def signal(self) -> None:
        """Wake the thread, or its next sleep."""
        try:
            self._bell.release()
        except RuntimeError:  # it rings already
            return

    def open(self) -> None:
        """Return when messages can arrive, or cannot for now."""
        desk = self.desk
        if desk.register(self):
            desk.hub.subscribe(self.ticket.terms.names.wake, desk.woken, self.until)
            desk.hub.subscribe(desk.channel, desk.pushed, self.until)
            desk.opened(self)

    def receive(self, seconds: float | None) -> Offer | str | None:
        """Take the oldest message; None when none has come in time."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self.mail:
            left = LONGEST_SLEEP if until is None else until - time.monotonic()
            if left <= 0:
                return None
            self._bell.acquire(timeout=min(left, LONGEST_SLEEP))
        return self.mail.pop(0)
