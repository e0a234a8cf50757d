"""What the server knows of a FIFO lock and its queue."""

from __future__ import annotations

from dataclasses import dataclass

from fencekit.fifo.commands import Holder, stats_operation
from fencekit.keys import Names
from fencekit.protocol.operation import Flow, Reply, trace
from fencekit.protocol.token import FenceToken

__all__ = ["FifoStats", "stats"]


@dataclass(frozen=True)
class FifoStats:
    """What the server knows of a lock and its queue.

    Attributes:
        holder: the holder's owner id, or None when the lock is free.
        fence: the holder's fencing token, or None when it is free.
        lease_left_ms: milliseconds left of the lease or offer; 0 when it is free.
        waiting: how many wait.
        oldest_wait_ms: how long the first of them has waited, milliseconds; 0 when nobody does.
        last: the highest token known, 0 without a record.
    """

    holder: str | None
    fence: FenceToken | None
    lease_left_ms: int
    waiting: int
    oldest_wait_ms: int
    last: int


def stats(names: Names) -> Flow[FifoStats]:
    """Read who holds the lock and who waits for it."""
    answer = yield from trace(stats_operation(names))
    return _stats(names, answer.reply)


def _stats(names: Names, reply: Reply) -> FifoStats:
    value, pttl, last, waiting, oldest, now_us = reply
    holder = Holder.read(pttl, value, now_us)
    since_ms = int(oldest.partition(b"-")[0]) if oldest else 0
    return FifoStats(
        holder=holder.owner_id or None,
        fence=FenceToken._minted(holder.token, names.name, "lock") if holder.token else None,  # noqa: SLF001 - ours
        lease_left_ms=holder.ttl_ms,
        waiting=waiting,
        oldest_wait_ms=max(holder.now_us // 1000 - since_ms, 0) if oldest else 0,
        last=int(last),
    )
