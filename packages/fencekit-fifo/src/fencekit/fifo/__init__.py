"""Locks on Redis whose waiters are served in strict order of arrival."""

from fencekit.fifo.errors import FifoTimeout, LeaseLost
from fencekit.fifo.leases import Lease, SyncLease
from fencekit.fifo.locks import FifoLock, SyncFifoLock
from fencekit.fifo.statistics import FifoStats

__all__ = [
    "FifoLock",
    "FifoStats",
    "FifoTimeout",
    "Lease",
    "LeaseLost",
    "SyncFifoLock",
    "SyncLease",
]

__version__ = "0.1.0"
