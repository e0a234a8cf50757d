"""The lease keepers: renewals, and their warnings, ends and callbacks.

What a keeper does when renewals fail, or its server is silent, is asked in the room of the cases.

How each bites: a keeper that looks at one lease in two places renews it ever more often; a lock
without `max_hold` is held for as long as it is renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from fencekit import AsyncDistributedLock, FencedOutError, LockNotOwned
from fencekit.drivers.aio_keeper import AsyncLeaseKeeper
from fencekit.drivers.keeper import Kept
from fencekit.protocol.operation import Answer
from fencekit.protocol.renewal import Renewal
from harness import clients
from harness.colours import Locks
from harness.faults import Delay, named
from harness.proxy import Proxy
from harness.servers import Server
from harness.statistics import CommandStats
from harness.waiting import eventually

SECOND = timedelta(seconds=1)
LONG = timedelta(seconds=30)


def renewals(commandstats: CommandStats, locks: Locks, seconds: float) -> int:
    handle = locks.acquire("job", ttl=SECOND * 0.15, renew=True)
    time.sleep(0.1)
    commandstats.restart()
    time.sleep(seconds)
    count = commandstats.total("evalsha")
    with contextlib.suppress(LockNotOwned):
        locks.release(handle)
    return count


def test_a_lease_is_renewed_three_times_a_lease_and_no_more_often(
    commandstats: CommandStats, server: Server, make_locks: Callable[..., Locks]
) -> None:
    # Twenty leases: renewals that multiply had grown a hundredfold by then.
    assert renewals(commandstats, make_locks(server.url), 3) <= 61


def test_a_lease_that_is_looked_at_twice_bites(
    commandstats: CommandStats, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncLeaseKeeper, "_counts", lambda _, __, kept: not kept.dropped)
    with Locks("async", server.url) as locks:
        assert renewals(commandstats, locks, 1.5) > 31


def test_many_leases_travel_together(proxy: Proxy, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(proxy.url)
    handles = [locks.acquire(f"job-{n}", ttl=SECOND, renew=True) for n in range(60)]
    time.sleep(1.5)
    assert not any(handle.lost.is_set() for handle in handles)
    assert len(proxy.open_connections) <= 2  # commands, and renewals
    for handle in handles:
        locks.release(handle)


def test_a_slow_answer_still_renews(proxy: Proxy, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(proxy.url)
    handle = locks.acquire("job", ttl=SECOND, renew=True)
    proxy.add(Delay(0.25, named("EVALSHA", "EVAL")))
    time.sleep(2)
    assert not handle.lost.is_set()
    locks.release(handle)


def test_max_hold_ends_the_renewal(server: Server, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(server.url)
    lost = threading.Event()
    began = time.monotonic()
    ends = locks.acquire(
        "job", ttl=SECOND * 0.3, renew=True, max_hold=SECOND, on_lost=lambda _: lost.set()
    )
    stays = locks.acquire("other", ttl=SECOND * 0.3, renew=True)
    time.sleep(0.7)
    assert locks.is_held_by(ends)
    assert lost.wait(2)
    assert 0.9 < time.monotonic() - began < 1.6
    eventually(lambda: not locks.is_held_by(ends))
    assert locks.is_held_by(stays)
    with pytest.raises(LockNotOwned):
        locks.release(ends)
    locks.release(stays)


def test_on_lost_may_raise(
    server: Server, make_locks: Callable[..., Locks], caplog: pytest.LogCaptureFixture
) -> None:
    locks = make_locks(server.url)
    told: list[Any] = []

    def complain(handle: Any) -> None:
        told.append(handle)
        raise ValueError("from on_lost")

    first = locks.acquire("job", ttl=SECOND * 0.3, renew=True, on_lost=complain)
    second = locks.acquire("other", ttl=SECOND * 0.3, renew=True)
    server.call("DEL", locks.lock.lock_key("job"))
    eventually(lambda: told == [first])
    time.sleep(0.6)
    assert locks.is_held_by(second)
    assert told == [first]
    assert "from on_lost" in caplog.text
    locks.release(second)


async def test_on_lost_may_be_a_coroutine_function(server: Server) -> None:
    async with clients.aopened(server.url) as client:
        lock = AsyncDistributedLock(client)
        told = asyncio.Event()

        async def tell(_: Any) -> None:
            await asyncio.sleep(0)
            told.set()

        handle = await lock.acquire("job", ttl=SECOND * 0.3, renew=True, on_lost=tell)
        server.call("DEL", lock.lock_key("job"))
        await asyncio.wait_for(handle.lost.wait(), 2)
        await asyncio.wait_for(told.wait(), 2)
        await lock._driver.aclose()


def test_a_late_renewal_is_warned_of_once(
    server: Server,
    make_locks: Callable[..., Locks],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks = make_locks(server.url)
    punctual = locks.acquire("punctual", ttl=SECOND * 0.3, renew=True)
    time.sleep(0.4)
    monkeypatch.setattr(Renewal, "late", lambda self, _: self.lease > 0.5)
    starved = locks.acquire("starved", ttl=SECOND * 0.6, renew=True)
    time.sleep(0.9)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert "'starved'" in said[0]
    assert not starved.lost.is_set()
    locks.release(starved)
    locks.release(punctual)


def test_a_renewal_is_late_half_a_lease_after_it_was_due() -> None:
    schedule = Renewal(lease=6.0, deadline=106.0)
    assert [schedule.late(at) for at in (102.0, 105.0, 105.01)] == [False, False, True]


def test_leases_that_were_let_go_do_not_pile_up(
    server: Server, make_locks: Callable[..., Locks]
) -> None:
    locks = make_locks(server.url)
    kept = locks.acquire("kept", ttl=SECOND * 0.5, renew=True)
    for _ in range(200):
        locks.release(locks.acquire("job", ttl=LONG * 100, renew=True))
    keeper = (
        locks.driver.keeper
        if locks.colour == "sync"
        else next(iter(locks.driver._states.values())).keeper
    )
    assert len(keeper._queue) <= 2 * 64 + 2
    time.sleep(0.8)
    assert locks.is_held_by(kept)
    locks.release(kept)


def test_the_thread_is_woken_only_for_a_lease_that_it_would_be_late_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bites where each lease wakes it: short work then pays for a thread that finds nothing."""
    with Locks("sync", server.url) as locks:
        keeper = locks.driver.keeper
        first = locks.acquire("first", ttl=LONG, renew=True)
        eventually(lambda: keeper._wakes_at > 0, why="the thread sleeps")
        woken = Mock(wraps=keeper._changed.notify)
        monkeypatch.setattr(keeper._changed, "notify", woken)
        for _ in range(20):
            locks.release(locks.acquire("job", ttl=LONG, renew=True))
        woken.assert_not_called()
        short = locks.acquire("short", ttl=SECOND * 0.3, renew=True)
        woken.assert_called()
        time.sleep(0.8)  # more than two of its leases
        assert locks.is_held_by(short)
        locks.release(short)
        locks.release(first)


async def test_lost_is_known_to_whoever_asks_first_after_the_loop_was_blocked(
    server: Server,
) -> None:
    async with clients.aopened(server.url) as client:
        lock = AsyncDistributedLock(client)
        handle = await lock.acquire("job", ttl=SECOND * 0.2, renew=True)
        time.sleep(0.3)  # noqa: ASYNC251
        assert handle.lost.is_set()
        assert handle.remaining() == timedelta(0)
        await lock._driver.aclose()


def test_extend_moves_the_renewals_with_it(
    server: Server, make_locks: Callable[..., Locks]
) -> None:
    locks = make_locks(server.url)
    handle = locks.acquire("job", ttl=SECOND * 0.3, renew=True)
    locks.extend(handle, ttl=SECOND * 1.2)
    time.sleep(1.5)
    assert locks.is_held_by(handle)
    locks.extend(handle, ttl=SECOND * 0.2)
    assert server.call("PTTL", locks.lock.lock_key("job")) > 300, "it was shortened"
    time.sleep(1.5)
    assert not handle.lost.is_set()
    assert locks.is_held_by(handle)
    locks.release(handle)


def test_a_lease_that_is_taken_just_after_a_close_is_kept(server: Server) -> None:
    """The thread that was told to end has not looked yet."""
    with Locks("sync", server.url) as locks:
        locks.release(locks.acquire("other", ttl=LONG, renew=True))
        keeper = locks.driver.keeper
        with keeper._changed:
            keeper._closing = True
        handle = locks.acquire("job", ttl=SECOND * 0.5, renew=True)
        time.sleep(0.8)
        assert locks.is_held_by(handle)
        locks.release(handle)


def test_a_renewal_confirms_the_lease_that_it_asked_for() -> None:
    """Its holder extended it to a minute while the renewal by a second was under way."""
    told: list[float] = []
    renewable = SimpleNamespace(
        renew_operation=lambda: SimpleNamespace(parse=lambda reply: reply), confirmed=told.append
    )
    kept = Kept(cast("Any", renewable), Renewal(lease=1.0, deadline=101.0))
    operation = kept.renewal()
    kept.schedule.lease = 60.0
    kept.schedule.confirm(100.1)
    kept.settle(operation, Answer(1_000, sent_at=100.9))
    assert (told, kept.schedule.deadline) == ([160.1], 160.1)


def test_a_forced_release_is_heard_of_and_shuts_out(
    server: Server, make_locks: Callable[..., Locks]
) -> None:
    locks, lost = make_locks(server.url), threading.Event()
    handle = locks.acquire("job", ttl=SECOND, renew=True, on_lost=lambda _: lost.set())
    assert locks.call("force_release", "job")
    with pytest.raises(FencedOutError):
        locks.set_if_fresh(handle.token, "status", "late")
    assert lost.wait(0.6)


def test_a_lock_that_is_given_back_is_never_said_to_be_lost(
    proxy: Proxy, make_locks: Callable[..., Locks]
) -> None:
    locks = make_locks(proxy.url)
    told: list[Any] = []
    handles = []
    proxy.add(Delay(0.05, named("EVALSHA", "EVAL")))  # so that renewals are under way
    for n in range(6):
        handle = locks.acquire("job", ttl=SECOND * 0.2, renew=True, on_lost=told.append)
        time.sleep(0.02 + 0.01 * n)
        locks.release(handle)
        handles.append(handle)
    time.sleep(0.4)
    assert told == []
    assert not any(handle.lost.is_set() for handle in handles)
