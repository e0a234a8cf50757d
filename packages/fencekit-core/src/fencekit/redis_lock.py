"""A bare async lock on one key, in the shape of redis-py's own lock, so that both contend.

::

    async with RedisLock(redis, "nightly-report", timeout=30.0):
        ...

For code that shares its key with redis-py's lock, or needs no more than one key. It has no fencing
token: a holder that outlives its timeout is not kept from writing. For that, and for locks in
threads, there is `DistributedLock`; redis-py itself has the sync lock of this shape.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from fencekit.drivers.aio import AsyncDriver
from fencekit.durations import LONGEST_LEASE
from fencekit.errors import AlreadyAcquiredError, LockNotOwned
from fencekit.keys import bare_channel, utf8
from fencekit.protocol import bare as protocol
from fencekit.protocol.bare import BareClaim
from fencekit.protocol.lock import new_attempt

__all__ = ["RedisLock"]

_LONGEST = LONGEST_LEASE.total_seconds()


class RedisLock:
    """One key, held for a timeout. An object is one holder: use one for each task."""

    def __init__(
        self,
        redis: Any,
        key: str,
        timeout: float = 10.0,
        blocking: bool = False,  # noqa: FBT001, FBT002 - the signature of its kind
        *,
        blocking_timeout: float | None = None,
    ) -> None:
        """Make a lock on a key; nothing is sent yet.

        Args:
            redis: an async client of redis-py or valkey-py.
            key: the key, used as given.
            timeout: seconds after which the key expires.
            blocking: wait for it, up to ``blocking_timeout`` seconds.
            blocking_timeout: how long to wait, seconds; ``timeout`` unless given.

        Raises:
            TypeError: a sync client, a key that is no str, a time that is no number.
            ValueError: an empty key, one that is no text, a time that is not positive.
        """
        self._driver = AsyncDriver.of(redis)
        self._redis = redis
        if not isinstance(key, str):
            msg = f"the key must be a str, not {type(key).__name__}"
            raise TypeError(msg)
        if not key:
            msg = "the key is empty"
            raise ValueError(msg)
        utf8(key, "the key")
        self.key = key
        self.timeout = _seconds(timeout, "timeout")
        self._wait: float | None = None
        if blocking:
            self._wait = (
                self.timeout
                if blocking_timeout is None
                else _seconds(blocking_timeout, "blocking_timeout")
            )
        elif blocking_timeout is not None:
            msg = "blocking_timeout is given, but blocking is False"
            raise ValueError(msg)
        self._claim: BareClaim | None = None

    async def acquire(self) -> None:
        """Take the key.

        Raises:
            AlreadyAcquiredError: somebody holds it (this object too), and still did when the wait
                was over.
            StoreUnavailable, StoreRefused: nothing is held.
            OutcomeUnknown: no answer; the key may be held until ``timeout``.
        """
        claim = BareClaim(
            self.key, bare_channel(self.key), new_attempt(), max(1, round(self.timeout * 1000))
        )
        if await self._driver.run(protocol.acquire(claim, self._wait)) is None:
            raise AlreadyAcquiredError(self.key)
        self._claim = claim

    async def release(self) -> None:
        """Give the key back; silent when it has expired, or was never taken.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: call this again.
        """
        claim = self._claim
        if claim is not None:
            await self._driver.run(protocol.release(claim))
            if self._claim is claim:
                self._claim = None

    async def extend(self) -> None:
        """Replace what is left of the timeout by the full timeout.

        Raises:
            LockNotOwned: the key has expired, belongs to somebody else, or was never taken.
            StoreUnavailable, StoreRefused, OutcomeUnknown: the timeout is as it was, or new.
        """
        claim = self._claim
        if claim is None or not await self._driver.run(protocol.extend(claim)):
            raise LockNotOwned(self.key)

    async def __aenter__(self) -> RedisLock:  # noqa: PYI034 - Self needs Python 3.11
        await self.acquire()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.release()


def _seconds(value: float, what: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        msg = f"{what} must be a number of seconds, not {type(value).__name__}"
        raise TypeError(msg)
    if not 0 < value <= _LONGEST:
        msg = f"{what} must be a positive number of seconds, at most ten years, not {value}"
        raise ValueError(msg)
    return float(value)
