"""Locks as people write them, for the tests to fail on: a test of a fault bites one of these."""

from __future__ import annotations

import time
import uuid
from typing import Any

__all__ = ["CheckedLock", "CountedLock", "PlainLock", "TimestampLock"]


class PlainLock:
    """SET NX PX and DEL, of the first blog post."""

    def __init__(self, client: Any, name: str, ttl_ms: int) -> None:
        self._client, self._name, self._ttl_ms = client, name, ttl_ms

    def acquire(self) -> bool:
        """Take it if it is free."""
        return bool(self._client.set(self._name, "1", nx=True, px=self._ttl_ms))

    def release(self) -> None:
        """Free it, whosever it is."""
        self._client.delete(self._name)


class CheckedLock(PlainLock):
    """SET NX PX with a random value, and DEL only if the value is ours: the second blog post."""

    _RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"

    def __init__(self, client: Any, name: str, ttl_ms: int) -> None:
        super().__init__(client, name, ttl_ms)
        self._value = uuid.uuid4().hex

    def acquire(self) -> bool:
        """Take it if it is free."""
        return bool(self._client.set(self._name, self._value, nx=True, px=self._ttl_ms))

    def give_back(self) -> bool:
        """Free it if it is ours, and tell whether it was."""
        return bool(self._client.eval(self._RELEASE, 1, self._name, self._value))


class TimestampLock:
    """SETNX of the time at which the lease ends, compared with the clock of whoever looks."""

    def __init__(self, client: Any, name: str, lease: float) -> None:
        self._client, self._name, self._lease = client, name, lease

    def acquire(self) -> bool:
        """Take it if it is free, or if its time is over."""
        mine = time.time() + self._lease
        if self._client.setnx(self._name, mine):
            return True
        if float(self._client.get(self._name)) > time.time():
            return False
        self._client.set(self._name, mine)
        return True


class CountedLock:
    """A lock whose tokens are counted by INCR."""

    def __init__(self, client: Any, name: str) -> None:
        self._client, self._name = client, name

    def grant(self) -> int:
        """Return the next token."""
        return int(self._client.incr(f"{self._name}:token"))
