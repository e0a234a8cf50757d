"""Plain locks as they are often written, each with one mistake that the tests must catch."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from typing import Any

__all__ = ["ByteComparingLock", "NaiveToken", "WallClockLock"]


@dataclass(frozen=True)
class NaiveToken:
    """A lock that is held, as far as its holder knows.

    Attributes:
        fence: the time at which it was taken, microseconds, by the clock of whoever took it.
        owner_id: who holds it.
    """

    fence: int
    owner_id: str


class WallClockLock:
    """The lock's value is when it ends, by the clock of whoever took it; others compare theirs."""

    def __init__(self, client: Any, name: str, *, lease_ms: int = 60_000) -> None:
        """Make a lock on a server."""
        self._client, self._key, self._lease = client, f"naive:{name}:until", lease_ms / 1000

    def acquire(self, timeout: float) -> NaiveToken | None:
        """Take the lock when it is free or over; None when it is neither in time."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            now = time.time()
            ends = self._client.get(self._key)
            if ends is None or float(ends) < now:
                self._client.set(self._key, repr(now + self._lease))
                return NaiveToken(int(now * 1e6), uuid.uuid4().hex)
            time.sleep(0.01)
        return None


class ByteComparingLock:
    """Whoever releases compares the reply with its own token in bytes."""

    def __init__(self, client: Any, name: str, *, lease_ms: int = 60_000) -> None:
        """Make a lock on a server."""
        self._client, self._key, self._lease_ms = client, f"naive:{name}:bytes", lease_ms

    async def acquire(self, timeout: float) -> NaiveToken:
        """Take the lock when it is free.

        Raises:
            TimeoutError: it is not in time.
        """
        me, until = uuid.uuid4().hex, time.monotonic() + timeout
        while not await self._client.set(self._key, me, nx=True, px=self._lease_ms):
            if time.monotonic() > until:
                raise TimeoutError(self._key)
            await asyncio.sleep(0.01)
        return NaiveToken(time.time_ns() // 1000, me)

    async def release(self, token: NaiveToken) -> None:
        """Delete the lock if it is still ours."""
        if await self._client.get(self._key) == token.owner_id.encode():
            await self._client.delete(self._key)
