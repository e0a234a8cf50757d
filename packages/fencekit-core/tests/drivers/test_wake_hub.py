"""The wake hub: wakes that arrive, are lost, are passed on, or that nobody can hear.

How each bites: a hub whose reconnect wakes nobody, waiters that each look where there is no
channel, a waiter that keeps what it was woken for when it is cancelled, a join that leaves its
waiter behind, and a hub that believes a connection good before it has heard a word.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from fencekit import AsyncDistributedLock, LockNotAcquired, LockNotOwned
from fencekit.drivers import aio_wake, wake
from fencekit.drivers.delivery import WireLost
from fencekit.drivers.switchboard import Switchboard
from fencekit.drivers.wake import Nudge, Waiter, WakeHub
from fencekit.drivers.wire import Wire
from fencekit.keys import names
from harness import clients
from harness.colours import Locks, NotYet
from harness.faults import DropCommand, HoldBack, named
from harness.proxy import Proxy
from harness.servers import Server
from harness.waiting import eventually, eventually_async

LONG = timedelta(seconds=30)
SECOND = timedelta(seconds=1)
WAKE = names("fencekit", "job").wake


def listeners(server: Server) -> int:
    return int(server.call("PUBSUB", "NUMSUB", WAKE)[1])


def hold_and_wait(server: Server, locks: Locks, waiters: int = 1) -> tuple[Any, list[Future[Any]]]:
    """Have the lock held, and so many waiters asleep."""
    handle = locks.acquire("job", ttl=LONG)
    waiting = [locks.start("acquire", "job", ttl=LONG, wait=LONG) for _ in range(waiters)]
    eventually(lambda: listeners(server) == 1)
    time.sleep(0.1)
    return handle, waiting


def free_silently(server: Server) -> None:
    """End the holder's lease without anybody being woken."""
    server.call("DEL", names("fencekit", "job").lock)


def all_enter(locks: Locks, waiting: list[Future[Any]], timeout: float = 2) -> None:
    """See all of them enter, one after the other, and nobody left behind."""
    while waiting:
        entered, rest = concurrent.futures.wait(
            waiting, timeout, return_when=concurrent.futures.FIRST_COMPLETED
        )
        assert len(entered) == 1
        locks.release(entered.pop().result())
        waiting = list(rest)


def test_a_hub_that_reconnects_has_every_waiter_look(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks]
) -> None:
    locks = make_locks(proxy.url)
    _, waiting = hold_and_wait(server, locks, 3)
    free_silently(server)
    time.sleep(0.1)
    assert not any(one.done() for one in waiting)
    proxy.cut()
    all_enter(locks, waiting, 1)


def test_a_hub_that_reconnects_bites(
    server: Server,
    proxy: Proxy,
    make_locks: Callable[..., Locks],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks = make_locks(proxy.url)
    handle, waiting = hold_and_wait(server, locks)
    monkeypatch.setattr(Switchboard, "_have_all_look", staticmethod(lambda _: None))
    free_silently(server)
    proxy.cut()
    with pytest.raises(NotYet):
        waiting[0].result(1)
    server.call("PUBLISH", WAKE, "free")
    locks.release(waiting[0].result(5))
    with pytest.raises(LockNotOwned):
        locks.release(handle)


@pytest.mark.parametrize("refuse_for", [0.0, 0.5])
def test_a_release_while_the_hub_is_cut_off(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks], refuse_for: float
) -> None:
    locks, holder = make_locks(proxy.url), make_locks(server.url)
    handle = holder.acquire("job", ttl=LONG)
    waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
    eventually(lambda: listeners(server) == 1)
    proxy.cut(refuse_for)
    holder.release(handle)
    began = time.monotonic()
    locks.release(waiting.result(5))
    assert time.monotonic() - began < refuse_for + 1.2


def test_a_waiter_whose_subscription_is_not_answered_looks_by_itself(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks]
) -> None:
    locks, holder = make_locks(proxy.url), make_locks(server.url)
    handle = holder.acquire("job", ttl=LONG)
    proxy.add(HoldBack(named("SUBSCRIBE"), then="silence"))
    waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
    time.sleep(0.2)
    holder.release(handle)
    locks.release(waiting.result(4))


def knocks_at_a_closed_door(
    server: Server, proxy: Proxy, locks: Locks, holder: Locks
) -> tuple[int, int]:
    """How often five waiters try in 1.5 s, and the hub, which is always hung up on."""
    handle = holder.acquire("job", ttl=LONG)
    proxy.add(DropCommand(named("SUBSCRIBE"), nth=None))
    waiting = [locks.start("acquire", "job", ttl=LONG, wait=LONG) for _ in range(5)]
    time.sleep(1.7)
    before = proxy.counts
    time.sleep(1.5)
    counts = proxy.counts - before
    holder.release(handle)
    all_enter(locks, waiting, 8)
    assert server.call("EXISTS", locks.lock.lock_key("job")) == 0
    return counts["EVALSHA"], counts["SUBSCRIBE"]


def test_a_proxy_that_closes_at_subscribe_is_not_hammered(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks]
) -> None:
    locks, holder = make_locks(proxy.url), make_locks(server.url)
    tries, subscriptions = knocks_at_a_closed_door(server, proxy, locks, holder)
    assert tries <= 5  # one of the five looks, twice a second
    assert subscriptions <= 5


@pytest.mark.slow
def test_a_proxy_that_closes_at_subscribe_bites(
    server: Server,
    proxy: Proxy,
    make_locks: Callable[..., Locks],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (wake, aio_wake):
        monkeypatch.setattr(module, "RECONNECT_LONGEST", 0.02)

    def each(self: Any, waiter: Any, deadline: float, poll_at: float) -> float:
        return min(deadline, poll_at, self.channels[waiter.channel].alarm_at or deadline)

    monkeypatch.setattr(Switchboard, "look_at", each)
    locks, holder = make_locks(proxy.url), make_locks(server.url)
    tries, subscriptions = knocks_at_a_closed_door(server, proxy, locks, holder)
    assert tries > 10
    assert subscriptions > 10


@pytest.mark.parametrize("away", ["closes", "is silent"])
def test_a_short_wait_is_not_spent_on_a_hub_that_cannot_listen(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks], away: str
) -> None:
    locks, holder = make_locks(proxy.url), make_locks(server.url)
    handle = holder.acquire("job", ttl=LONG)
    if away == "closes":
        proxy.add(DropCommand(named("SUBSCRIBE"), nth=None))
    else:
        proxy.add(HoldBack(named("SUBSCRIBE"), then="silence"))
    for _ in range(2):
        began = time.monotonic()
        assert locks.call("try_acquire", "job", ttl=LONG, wait=SECOND * 0.2) is None
        assert time.monotonic() - began < 0.7
    holder.release(handle)


def test_a_woken_waiter_that_is_cancelled_hands_its_wake_on(server: Server, proxy: Proxy) -> None:
    async def run() -> None:
        async with clients.aopened(proxy.url) as client:
            lock = AsyncDistributedLock(client)
            for after in (0.0, 0.001, 0.003, 0.01):
                handle = await lock.acquire("job", ttl=LONG)
                first = asyncio.create_task(lock.acquire("job", ttl=LONG, wait=LONG))
                await asyncio.sleep(0.05)
                second = asyncio.create_task(lock.acquire("job", ttl=LONG, wait=LONG))
                await asyncio.sleep(0.05)
                await handle.release()
                await asyncio.sleep(after)
                first.cancel()
                (done,) = await asyncio.gather(first, return_exceptions=True)
                if not isinstance(done, BaseException):
                    await done.release()
                await (await asyncio.wait_for(second, 1)).release()
            await lock._driver.aclose()

    asyncio.run(run())
    assert server.call("EXISTS", names("fencekit", "job").lock) == 0


async def test_a_woken_waiter_that_is_cancelled_bites(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = Switchboard.leave

    def keep(self: Any, waiter: Any, _: Any, now: float, *, failed: bool) -> None:
        waiter.pending = waiter.used = False
        leave(self, waiter, now + 60, now, failed=failed)

    monkeypatch.setattr(Switchboard, "leave", keep)
    async with clients.aopened(server.url) as client:
        lock = AsyncDistributedLock(client)
        handle = await lock.acquire("job", ttl=LONG)
        first = asyncio.create_task(lock.acquire("job", ttl=LONG, wait=LONG))
        await eventually_async(lambda: listeners(server) == 1)
        second = asyncio.create_task(lock.try_acquire("job", ttl=LONG, wait=LONG))
        await asyncio.sleep(0.05)
        server.call("DEL", lock.lock_key("job"))
        lock._driver.state().hub._board.message(WAKE)  # and it is cancelled before it runs
        first.cancel()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(second), 0.5)
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert handle.owner_id
        await lock._driver.aclose()


def test_one_wake_for_a_release_not_a_herd(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks]
) -> None:
    locks = make_locks(proxy.url)
    handle, waiting = hold_and_wait(server, locks, 20)
    proxy.clear()
    locks.release(handle)
    eventually(lambda: any(one.done() for one in waiting))
    time.sleep(0.1)
    assert proxy.counts["EVALSHA"] == 2  # the release, and one that tries
    all_enter(locks, waiting)
    assert proxy.counts["EVALSHA"] <= 2 * 20 + 2


def test_a_lease_that_ends_starts_one_try_not_a_herd(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks]
) -> None:
    locks, holder = make_locks(proxy.url), make_locks(server.url)
    holder.acquire("job", ttl=SECOND * 0.6)
    waiting = [locks.start("acquire", "job", ttl=LONG, wait=LONG) for _ in range(20)]
    eventually(lambda: proxy.counts["EVALSHA"] + proxy.counts["EVAL"] >= 40)
    time.sleep(0.05)
    proxy.clear()
    eventually(lambda: any(one.done() for one in waiting))
    time.sleep(0.1)
    assert proxy.counts["EVALSHA"] <= 2
    all_enter(locks, waiting)


def test_an_interrupted_join_leaves_nobody_to_wait_behind(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Locks("sync", server.url) as locks:
        handle = locks.acquire("job", ttl=LONG)
        attend = WakeHub._attend

        def interrupted(*_: Any) -> None:
            monkeypatch.setattr(WakeHub, "_attend", attend)
            raise KeyboardInterrupt

        monkeypatch.setattr(WakeHub, "_attend", interrupted)
        with pytest.raises(KeyboardInterrupt):
            locks.lock.acquire("job", ttl=LONG, wait=LONG)
        waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
        eventually(lambda: listeners(server) == 1)
        locks.release(handle)
        locks.release(waiting.result(2))


def test_an_interrupted_join_bites(server: Server) -> None:
    with Locks("sync", server.url) as locks:
        handle = locks.acquire("job", ttl=LONG)
        locks.driver.hub._board.join(Waiter(WAKE))  # and nobody to take it out again
        waiting = locks.start("acquire", "job", ttl=LONG, wait=SECOND)
        time.sleep(0.2)
        locks.release(handle)
        with pytest.raises(NotYet):
            waiting.result(0.5)
        with pytest.raises(LockNotAcquired):
            waiting.result(5)


class Interrupts:
    """A lock that one thread is interrupted at, once."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.whom: int | None = None

    def acquire(self) -> bool:
        if self.whom == threading.get_ident():
            self.whom = None
            raise KeyboardInterrupt
        return bool(self.lock.acquire())

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@pytest.mark.parametrize("post", ["reads", "sleeps"])
def test_a_waiter_that_is_interrupted_on_its_way_back(
    server: Server, monkeypatch: pytest.MonkeyPatch, post: str
) -> None:
    """Found here: it ended its `with` without the lock, which another thread may have had."""
    with Locks("sync", server.url) as locks:
        hub = locks.driver.hub
        interrupts = Interrupts(hub._lock)
        kind, name = (Nudge, "wait") if post == "reads" else (Waiter, "sleep")
        go = getattr(kind, name)

        def back(self: Any, *terms: Any) -> None:
            go(self, *terms)
            interrupts.whom = threading.get_ident()

        with monkeypatch.context() as meddled:
            meddled.setattr(hub, "_lock", interrupts)
            meddled.setattr(kind, name, back)
            handle, waiting = hold_and_wait(server, locks, waiters=2)
            with interrupts:  # one reads, and the other sleeps
                whom = hub._reader if post == "reads" else next(iter(hub._sleepers))
                assert whom is not None
                whom.signal()
            done, rest = concurrent.futures.wait(
                waiting, 3, return_when=concurrent.futures.FIRST_COMPLETED
            )
        assert len(done) == 1
        with pytest.raises(KeyboardInterrupt):
            done.pop().result()
        locks.release(handle)
        all_enter(locks, list(rest))


def test_a_hub_without_a_thread_says_so_and_tries_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Locks("sync", server.url) as locks:
        handle = locks.acquire("job", ttl=LONG)
        with monkeypatch.context() as broken:
            broken.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(RuntimeError, match="no thread"):
                locks.lock.acquire("job", ttl=LONG, wait=LONG)
            with pytest.raises(RuntimeError, match="no thread"):
                locks.lock.acquire("other", ttl=LONG, renew=True)
        assert server.call("EXISTS", locks.lock.lock_key("other")) == 0
        waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
        eventually(lambda: listeners(server) == 1)
        locks.release(handle)
        locks.release(waiting.result(2))
        kept = locks.acquire("other", ttl=SECOND / 2, renew=True)
        time.sleep(0.8)
        assert locks.is_held_by(kept)
        locks.release(kept)


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("no thread")


def test_a_waiter_that_joins_just_after_a_close_is_served(server: Server) -> None:
    """The thread that was told to end has not looked yet."""
    with Locks("sync", server.url) as locks:
        handle, waiting = hold_and_wait(server, locks)
        hub = locks.driver.hub
        with hub._lock:
            hub._closing = True
        other = locks.acquire("other", ttl=LONG)
        waiting.append(locks.start("acquire", "other", ttl=LONG, wait=LONG))
        eventually(lambda: hub._wire is not None)
        time.sleep(1)
        locks.release(other)
        locks.release(waiting[1].result(0.3))
        locks.release(handle)
        locks.release(waiting[0].result(2))


def test_who_joins_while_a_closed_hub_ends_is_served(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found here: its thread had looked, and ended just after somebody had counted on it."""
    paused, go_on = threading.Event(), threading.Event()

    def pause(_: float) -> None:
        paused.set()
        go_on.wait(5)

    with Locks("sync", server.url) as locks:
        hub = locks.driver.hub
        hub.leave(hub.join("other"), None, failed=False)
        with monkeypatch.context() as stopped:
            stopped.setattr(wake, "time", Clock(pause))
            with hub._lock:
                hub._lost = WireLost("cut", sent=True)
                hub._relieved.notify()
            assert paused.wait(5)
        with hub._lock:
            hub._closing = True
            go_on.set()
            time.sleep(0.1)  # for the thread to come to where it waits for the lock
            state = hub._board.join(Waiter(WAKE))
            hub._attend(WAKE, state)
        eventually(lambda: listeners(server) == 1)


class Clock:
    """The time, but for its pauses."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, pause: Callable[[float], None]) -> None:
        self.sleep = pause


@pytest.mark.parametrize("rule", ["kept", "removed"])
def test_a_connection_that_is_closed_just_as_its_reader_goes_to_wait(
    server: Server, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    with Locks("sync", server.url) as locks:
        handle = locks.acquire("job", ttl=LONG)
        hub, read = locks.driver.hub, Nudge.wait
        tries: list[BaseException | None] = []

        def late(self: Nudge, wire: Wire, seconds: float) -> None:
            if not tries:
                with hub._lock:
                    hub._lost = WireLost("cut", sent=True)
                    hub._relieved.notify()
                eventually(lambda: hub._wire is not wire)
            try:
                read(self, wire, seconds)
            except ValueError as error:
                tries.append(error)
                if rule == "kept":
                    raise
                raise AssertionError("what the waiter would have met") from error

        monkeypatch.setattr(Nudge, "wait", late)
        waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
        eventually(lambda: tries)
        locks.release(handle)
        if rule == "kept":
            locks.release(waiting.result(5))
        else:
            with pytest.raises(AssertionError, match="would have met"):
                waiting.result(5)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the hubs ask, give up and forget within tenths of seconds."""
    for module in (wake, aio_wake):
        for name, seconds in (("PING_EVERY", 0.4), ("TIMEOUT", 0.4), ("LINGER", 0.1)):
            monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(wake, "TRIM_EVERY", 0.1)


@pytest.mark.usefixtures("hasty")
def test_an_idle_hub_goes_and_comes_again(
    server: Server, make_locks: Callable[..., Locks], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    locks = make_locks(server.url)
    for _ in range(2):
        handle, waiting = hold_and_wait(server, locks)
        locks.release(handle)
        locks.release(waiting[0].result(2))
        eventually(lambda: listeners(server) == 0, timeout=5)
    assert caplog.records == []


@pytest.mark.usefixtures("hasty")
def test_a_hub_notices_a_server_that_is_silent(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks]
) -> None:
    """It asks after a while and gives up; the waiter then looks."""
    locks, holder = make_locks(proxy.url), make_locks(server.url)
    holder.acquire("job", ttl=LONG)
    waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
    eventually(lambda: listeners(server) == 1)
    time.sleep(0.1)
    proxy.freeze()
    free_silently(server)
    time.sleep(0.2)
    time.sleep(0.8)  # asked, not answered, and given up
    proxy.thaw()
    locks.release(waiting.result(2))
