"""What the FIFO lock raises besides core's errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fencekit.errors import FenceKitError, LockNotOwned

__all__ = ["FifoTimeout", "LeaseLost"]


class LeaseLost(LockNotOwned):
    """The lease was lost before it was released: somebody else may have run beside us.

    Attributes:
        resource: the lock's name.
        token: the fencing token of the lost lease.
    """


if TYPE_CHECKING or asyncio.TimeoutError is TimeoutError:

    class _Timeout(TimeoutError):
        pass

else:  # Python 3.10, where they are two classes and callers catch either

    class _Timeout(TimeoutError, asyncio.TimeoutError):
        pass


class FifoTimeout(FenceKitError, _Timeout):
    """The lock was not granted in time, and the place in the queue was given up.

    It is a `TimeoutError` and an `asyncio.TimeoutError`.

    Attributes:
        resource: the lock's name.
        timeout: seconds that were waited.
        holder: the owner id of the holder last seen, or None where it is not known.
    """

    def __init__(self, resource: str, *, timeout: float, holder: str | None) -> None:
        self.resource = resource
        self.timeout = timeout
        self.holder = holder
        super().__init__(
            f"{resource!r} was not granted within {timeout:g} s; its place in the queue is given up"
        )
