"""Public reports of leases that were lost, or kept, against what their holders believed.

How each bites: a renewal that ends at its first error lets the lease run out; a keeper that waits
for each answer as long as its client would hears of nothing until the server has long let go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencekit import LockNotOwned
from fencekit.drivers.keeper import LeaseKeeper
from fencekit.protocol import lock as protocol
from harness import clients
from harness.colours import Locks
from harness.faults import Command, Cut, DropCommand, DropReply
from harness.proxy import Proxy
from harness.servers import Server, start
from harness.waiting import eventually

LEASE = timedelta(milliseconds=900)


def renewal(command: Command) -> bool:
    """Match renewals, sent by their digest or whole."""
    return command.args[1:2] in ((protocol.RENEW.sha.encode(),), (protocol.RENEW.source,))


class Told:
    """What `on_lost` was told, and when."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.remaining: list[timedelta] = []

    def __call__(self, handle: Any) -> None:
        self.times.append(time.monotonic())
        self.remaining.append(handle.remaining())


# ionelmc/python-redis-lock#85: renewals fail


@pytest.mark.parametrize("fault", [DropCommand, DropReply, Cut])
def test_lock_python_redis_lock_85(
    proxy: Proxy, make_locks: Callable[..., Locks], fault: Any
) -> None:
    locks, told = make_locks(proxy.url), Told()
    handle = locks.acquire("job", ttl=LEASE, renew=True, on_lost=told)
    struck = proxy.add(fault(renewal))
    struck.wait()
    time.sleep(1.5 * LEASE.total_seconds())
    assert locks.is_held_by(handle)
    assert not handle.lost.is_set()
    locks.release(handle)
    assert told.times == []


def test_lock_python_redis_lock_85_all_fail(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks]
) -> None:
    locks, told = make_locks(proxy.url), Told()
    handle = locks.acquire("job", ttl=LEASE, renew=True, on_lost=told)
    proxy.add(DropCommand(renewal, nth=None))
    eventually(lambda: told.times)
    assert server.call("PTTL", locks.lock.lock_key("job")) > 0, "told after the lease was over"
    assert handle.lost.is_set()
    eventually(lambda: server.call("EXISTS", locks.lock.lock_key("job")) == 0)
    with pytest.raises(LockNotOwned):
        locks.release(handle)
    assert len(told.times) == 1


def test_lock_python_redis_lock_85_bites(server: Server, proxy: Proxy) -> None:
    with clients.opened(proxy.url) as client:
        client.set("job", "me", px=900)

        def renew() -> None:
            try:
                while not done.wait(0.3):
                    client.pexpire("job", 900)
            except Exception:  # noqa: BLE001 - and this is the fault
                return

        done = threading.Event()
        proxy.add(DropCommand(lambda command: command.name == "PEXPIRE"))
        renewals = threading.Thread(target=renew)
        renewals.start()
        eventually(lambda: server.call("EXISTS", "job") == 0)
        done.set()
        renewals.join()


# redisson/redisson#4698, cilium/cilium#42920: the server is blocked while a lock is held


def expires_at(handle: Any) -> float:
    """The earliest monotonic second at which the server may let the lease end."""
    return float(handle._grant.deadline)


@pytest.mark.parametrize("how", ["paused", "stopped", "frozen network"])
def test_lock_redisson_4698_cilium_42920(make_locks: Callable[..., Locks], how: str) -> None:
    with start() as server, Proxy.before(server) as proxy:
        locks, told = make_locks(proxy.url), Told()
        handle = locks.acquire("job", ttl=LEASE, renew=True, on_lost=told)
        other = Told()
        # Its renewal is due, and hangs, when the first lease has to be given up.
        locks.acquire("other", ttl=timedelta(milliseconds=1700), renew=True, on_lost=other)
        time.sleep(0.5)
        if how == "paused":
            server.call("CLIENT", "PAUSE", 1800)
            eventually(lambda: told.times and other.times, timeout=4)
        elif how == "stopped":
            server.pause()
            eventually(lambda: told.times and other.times, timeout=4)
            server.resume()
        else:
            proxy.freeze()
            eventually(lambda: told.times and other.times, timeout=4)
            proxy.thaw()
        assert handle.lost.is_set()
        assert told.times[0] < expires_at(handle)


def test_lock_redisson_4698_cilium_42920_bites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseKeeper, "_time_to_wait", lambda *_: 2.0)
    with start() as server, Locks("sync", server.url) as locks:
        told = Told()
        handle = locks.acquire("job", ttl=LEASE, renew=True, on_lost=told)
        server.call("CLIENT", "PAUSE", 2500)
        eventually(lambda: told.times, timeout=4)
        assert told.times[0] > expires_at(handle)
