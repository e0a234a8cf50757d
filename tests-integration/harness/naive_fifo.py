"""A FIFO lock as it is often written, for the tests that must catch it.

It reads the queue in one trip and grants in the next; its waiters are forgotten by nobody, so that
the dead stay in the queue; it polls; what is sent twice takes two places.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["NaiveFifoLock", "NaiveLease"]


@dataclass
class NaiveLease:
    """A lock that is held, as far as its holder knows."""

    owner_id: str
    fence: int


class NaiveFifoLock:
    """The queue is a list, the lock a key."""

    def __init__(
        self, client: Any, name: str, *, lease_ms: int = 60_000, poll: float = 0.02, **_: Any
    ) -> None:
        """Make a lock on a server."""
        self._client = client
        self._queue, self._lock = f"naive:{name}:queue", f"naive:{name}:lock"
        self._fence = f"naive:{name}:fence"
        self._lease_ms, self._poll = lease_ms, poll
        self._seen: bytes | None = None
        self._since = 0.0

    async def acquire(self, timeout: float | None = None) -> NaiveLease:
        """Wait until the head of the queue is ours and the lock is free, then take it."""
        me = uuid.uuid4().hex
        await self._client.rpush(self._queue, me)
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                head = await self._client.lindex(self._queue, 0)
                held = await self._client.exists(self._lock)
                if head == me.encode() and not held:
                    await self._client.set(self._lock, me, px=self._lease_ms)
                    await self._client.lpop(self._queue)
                    return NaiveLease(me, await self._client.incr(self._fence))
                if until is not None and time.monotonic() > until:
                    raise TimeoutError  # noqa: TRY301 - as it is often written
                await self._bury(head)
                await asyncio.sleep(self._poll)
        except BaseException:
            with contextlib.suppress(Exception):
                await self._client.lrem(self._queue, 0, me)
            raise

    async def _bury(self, head: bytes | None) -> None:
        """Drop a head that has not moved for a lease: it is dead, or so it is often written."""
        if head != self._seen:
            self._seen, self._since = head, time.monotonic()
        elif head is not None and time.monotonic() - self._since > self._lease_ms / 1000:
            await self._client.lrem(self._queue, 0, head)

    async def release(self, lease: NaiveLease) -> None:
        """Delete the lock."""
        del lease
        await self._client.delete(self._lock)

    @asynccontextmanager
    async def hold(self, timeout: float | None = None) -> AsyncIterator[NaiveLease]:
        """Hold the lock."""
        lease = await self.acquire(timeout)
        try:
            yield lease
        finally:
            await self.release(lease)
