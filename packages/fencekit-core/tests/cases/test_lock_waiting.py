"""Public reports of waiters that waited too long, too loud, or for what was free.

How each bites: waiters that no wake reaches, or that do not look when the holder's lease is over,
are the same waiters with that one rule taken out; waiting by BLPOP ends with the client's socket
timeout; waiting by a subscription each needs a pooled connection each; polling is loud.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fencekit import DistributedLock, LockNotAcquired
from fencekit.drivers.switchboard import Switchboard
from fencekit.protocol import lock as protocol
from harness import clients
from harness.children import Child, hear, tell
from harness.clients import Colour
from harness.colours import COLOURS, Locks, NotYet
from harness.plain import PlainLock
from harness.proxy import Proxy
from harness.servers import Server
from harness.waiting import eventually

SECOND = timedelta(seconds=1)
FOREVER = timedelta.max


@contextlib.contextmanager
def held(url: str, ttl: timedelta = SECOND * 30) -> Iterator[Any]:
    """Hold the lock with another client."""
    with clients.opened(url) as client:
        lock = DistributedLock(client)
        handle = lock.acquire("job", ttl=ttl)
        yield handle
        lock.release(handle)
        lock._driver.close()


def all_enter(locks: Locks, waiting: list[Future[Any]]) -> None:
    """See all of them enter, one after the other."""
    while waiting:
        entered, rest = concurrent.futures.wait(
            waiting, timeout=5, return_when=concurrent.futures.FIRST_COMPLETED
        )
        assert len(entered) == 1
        locks.release(entered.pop().result())
        waiting = list(rest)


# redisson/redisson#5761: many rounds of many waiters, none of which waits for long


def longest_wait(locks: Locks, waiters: int, rounds: int, ttl: timedelta) -> float:
    """Have waiters take turns, each so many rounds, and return the longest wait in seconds."""
    waits: list[float] = []

    def turn_sync(dice: random.Random) -> None:
        for _ in range(rounds):
            time.sleep(dice.random() * 0.004)
            began = time.monotonic()
            handle = locks.lock.acquire("job", ttl=ttl, wait=FOREVER)
            waits.append(time.monotonic() - began)
            time.sleep(dice.random() * 0.002)
            handle.release()

    async def turn_async(dice: random.Random) -> None:
        import asyncio  # noqa: PLC0415

        for _ in range(rounds):
            await asyncio.sleep(dice.random() * 0.004)
            began = time.monotonic()
            handle = await locks.lock.acquire("job", ttl=ttl, wait=FOREVER)
            waits.append(time.monotonic() - began)
            await asyncio.sleep(dice.random() * 0.002)
            await handle.release()

    turn: Any = turn_sync if locks.colour == "sync" else turn_async
    turns = [locks.run(turn, random.Random(n)) for n in range(waiters)]
    for one in turns:
        one.result(60)
    assert len(waits) == waiters * rounds
    return max(waits)


def test_lock_redisson_5761(server: Server, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(server.url)
    assert longest_wait(locks, waiters=20, rounds=25, ttl=SECOND * 30) < 1


def test_lock_redisson_5761_bites(
    server: Server, make_locks: Callable[..., Locks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Switchboard, "message", lambda *_: [])  # no wake arrives
    locks = make_locks(server.url)
    with held(server.url, ttl=SECOND * 1.5):
        waiting = locks.start("acquire", "job", ttl=SECOND, wait=FOREVER)
        time.sleep(0.2)
    with pytest.raises(NotYet):
        waiting.result(1)
    locks.release(waiting.result(5))


# ionelmc/python-redis-lock#26: the holder dies without a release


def hold_and_die(url: str) -> None:
    with clients.opened(url) as client:
        DistributedLock(client).acquire("job", ttl=SECOND, renew=True)
        tell("held")
        hear()


def test_lock_python_redis_lock_26(server: Server, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(server.url)
    with Child(hold_and_die, server.url) as child:
        child.expect("held")
        # The first waiter gives up before the holder's lease is over; the next has to know when.
        impatient = locks.start("try_acquire", "job", ttl=SECOND, wait=SECOND * 0.6)
        time.sleep(0.1)
        waiting = locks.start("acquire", "job", ttl=SECOND, wait=SECOND * 10)
        time.sleep(0.1)
        child.kill()
        died = time.monotonic()
        assert impatient.result(5) is None
        handle = waiting.result(10)
        assert time.monotonic() - died < 1.3
        locks.release(handle)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["alarm of the first", "alarm of the heir"])
def test_lock_python_redis_lock_26_bites(
    server: Server,
    make_locks: Callable[..., Locks],
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
) -> None:
    if rule == "alarm of the first":
        monkeypatch.setattr(protocol, "_alarm", lambda _: 60.0)
    else:
        leave = Switchboard.leave

        def late(self: Any, waiter: Any, _: Any, now: float, *, failed: bool) -> None:
            leave(self, waiter, now + 60, now, failed=failed)

        monkeypatch.setattr(Switchboard, "leave", late)
    locks = make_locks(server.url)
    with Child(hold_and_die, server.url) as child:
        child.expect("held")
        impatient = locks.start("try_acquire", "job", ttl=SECOND, wait=SECOND * 0.5)
        time.sleep(0.1)
        waiting = locks.start("try_acquire", "job", ttl=SECOND, wait=SECOND * 10)
        time.sleep(0.1)
        child.kill()
        assert impatient.result(5) is None
        with pytest.raises(NotYet):
            waiting.result(1.3)
    locks.call("force_release", "job")
    server.call("PUBLISH", "fencekit:{job}:wake", "free")
    assert waiting.result(10) is not None


# redisson/redisson#3349, discourse/discourse#17886: two hundred waiters, three seconds


def test_lock_redisson_3349_discourse_17886(
    server: Server, proxy: Proxy, make_locks: Callable[..., Locks]
) -> None:
    locks = make_locks(proxy.url)
    with held(server.url):
        waiting = [
            locks.start("acquire", "job", ttl=SECOND * 30, wait=SECOND * 30) for _ in range(200)
        ]
        # Each has tried twice: before it listened, and after.
        eventually(lambda: proxy.counts["EVALSHA"] + proxy.counts["EVAL"] >= 400, timeout=10)
        time.sleep(1.2)
        proxy.clear()
        time.sleep(3)
        assert sum(proxy.counts.values()) < 3 * 50
        assert len(proxy.open_connections) <= 3
    all_enter(locks, waiting)


def test_lock_redisson_3349_discourse_17886_bites(server: Server, proxy: Proxy) -> None:
    with held(server.url), clients.opened(proxy.url) as client:
        done = threading.Event()

        def poll() -> None:
            lock = PlainLock(client, "fencekit:{job}:lock", 1000)
            while not done.wait(0.1) and not lock.acquire():
                pass

        pollers = [threading.Thread(target=poll) for _ in range(20)]
        for poller in pollers:
            poller.start()
        time.sleep(0.5)
        proxy.clear()
        time.sleep(0.5)
        commands, connections = sum(proxy.counts.values()), len(proxy.open_connections)
        done.set()
        for poller in pollers:
            poller.join()
        assert commands > 0.5 * 50
        assert connections > 0


# redisson/redisson#4064: a pool of three connections, eight waiters


def test_lock_redisson_4064(server: Server, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(server.url, client={"max_connections": 3})
    with held(server.url):
        began = time.monotonic()
        waiting = [locks.start("acquire", "job", ttl=SECOND, wait=SECOND * 0.6) for _ in range(8)]
        for one in waiting:
            with pytest.raises(LockNotAcquired):
                one.result(5)
        assert time.monotonic() - began < 1.2
        waiting = [locks.start("acquire", "job", ttl=SECOND, wait=SECOND * 5) for _ in range(8)]
        time.sleep(0.2)
    all_enter(locks, waiting)


def test_lock_redisson_4064_bites(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(clients.opened(server.url, max_connections=3))
        *three, fourth = [stack.enter_context(client.pubsub()) for _ in range(4)]
        for one in three:
            one.subscribe("job")
        with pytest.raises(RedisConnectionError):
            fourth.subscribe("job")


# redis/redis-py#4125: a wait longer than the client's socket timeout


def wait_for_nothing(locks: Locks, wait: timedelta) -> float:
    began = time.monotonic()
    with pytest.raises(LockNotAcquired):
        locks.acquire("job", ttl=SECOND, wait=wait)
    return time.monotonic() - began


@pytest.mark.slow
def test_lock_redis_py_4125(server: Server) -> None:
    expected = {colour: pytest.approx(8, abs=0.2) for colour in COLOURS}
    # A machine that is busy with other tests may be late once.
    assert wait_in_both_colours(server) == expected or wait_in_both_colours(server) == expected


def wait_in_both_colours(server: Server) -> dict[Colour, float]:
    took: dict[Colour, float] = {}

    def wait(colour: Colour) -> None:
        with Locks(colour, server.url, client={"socket_timeout": 5}) as locks:
            took[colour] = wait_for_nothing(locks, SECOND * 8)

    with held(server.url):
        threads = [threading.Thread(target=wait, args=(colour,)) for colour in COLOURS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return took


def test_lock_redis_py_4125_in_short(server: Server, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(server.url, client={"socket_timeout": 0.3})
    with held(server.url):
        assert wait_for_nothing(locks, SECOND) == pytest.approx(1, abs=0.2)


def test_lock_redis_py_4125_bites(server: Server) -> None:
    with clients.opened(server.url, socket_timeout=0.3) as client, pytest.raises(RedisTimeoutError):
        client.blpop("job", timeout=1)
