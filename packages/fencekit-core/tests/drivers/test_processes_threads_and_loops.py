"""One lock object in many hands: forks, pools of processes, threads, greenlets, loops.

How each bites: the unguarded counter of `count` loses updates when every hand adds to it without
the lock, and an owner that was worked out once, at import, is the same in every child.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencekit import AsyncDistributedLock, DistributedLock, HandleForked, owners
from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.loop_state import LoopState
from harness import clients
from harness.colours import Locks
from harness.servers import Server
from harness.waiting import eventually

LONG = timedelta(seconds=30)
SECOND = timedelta(seconds=1)


def count(client: Any, lock: DistributedLock | None, times: int) -> None:
    """Add to a counter by reading and writing it, so that only a lock makes it right."""
    for _ in range(times):
        if lock is None:
            add(client)
        else:
            with lock.hold("counter", ttl=LONG, wait=LONG):
                add(client)


def add(client: Any) -> None:
    value = int(client.get("counter") or 0)
    time.sleep(0.0005)
    client.set("counter", value + 1)


def counted(server: Server) -> int:
    return int(server.call("GET", "counter"))


def wait_for(*children: int) -> None:
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


# Forks


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "bites"])
def test_prefork_children_share_the_parents_lock_object(server: Server, *, guarded: bool) -> None:
    with clients.opened(server.url) as client:
        lock = DistributedLock(client)
        # The parent has used everything before it forks: commands, hub, keeper.
        holder = lock.acquire("counter", ttl=LONG, renew=True)
        assert lock.try_acquire("counter", ttl=LONG, wait=SECOND / 10) is None

        def work() -> None:
            with clients.opened(server.url) as own:
                count(own, lock if guarded else None, 25)

        children = [fork(work) for _ in range(4)]
        time.sleep(0.1)
        lock.release(holder)
        wait_for(*children)
        # And the parent goes on as before.
        with lock.hold("counter", ttl=SECOND, wait=SECOND):
            time.sleep(0.5)
        lock._driver.close()
    assert (counted(server) == 100) == guarded


def test_fork_after_first_use_of_hub_and_keeper(
    server: Server, make_locks: Callable[..., Locks]
) -> None:
    """The child waits, is woken, renews and loses with a hub and a keeper of its own."""
    locks = make_locks(server.url)
    handle = locks.acquire("job", ttl=LONG, renew=True)
    waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
    eventually(lambda: server.call("PUBSUB", "NUMSUB", "fencekit:{job}:wake")[1] == 1)

    def work_sync() -> None:
        mine = locks.lock.acquire("mine", ttl=SECOND / 2, renew=True)
        taken = locks.lock.acquire("job", ttl=LONG, wait=LONG)
        time.sleep(0.8)
        assert not mine.lost.is_set()
        taken.release()
        mine.release()
        with pytest.raises(HandleForked):
            locks.lock.release(handle)

    async def work_async() -> None:
        mine = await locks.lock.acquire("mine", ttl=SECOND / 2, renew=True)
        taken = await locks.lock.acquire("job", ttl=LONG, wait=LONG)
        await asyncio.sleep(0.8)
        assert not mine.lost.is_set()
        await taken.release()
        await mine.release()
        with pytest.raises(HandleForked):
            await locks.lock.release(handle)

    child = fork(work_sync if locks.colour == "sync" else lambda: asyncio.run(work_async()))
    eventually(lambda: server.call("PUBSUB", "NUMSUB", "fencekit:{job}:wake")[1] == 2)
    locks.release(handle)
    # Parent and child take turns, in whichever order.
    locks.release(waiting.result(5))
    wait_for(child)
    locks.release(locks.acquire("job", ttl=LONG))


def test_a_child_ends_and_the_parents_connections_live(
    server: Server, make_locks: Callable[..., Locks]
) -> None:
    locks = make_locks(server.url)
    handle = locks.acquire("job", ttl=SECOND, renew=True)
    before = server.info("stats")["total_connections_received"]
    wait_for(*(fork(locks.driver.forked) for _ in range(3)))
    time.sleep(1.2)
    assert locks.is_held_by(handle)
    locks.release(handle)
    after = server.info("stats")["total_connections_received"]
    assert int(after) - int(before) <= 3  # the test's own questions


def own_lock(url: str) -> str:
    """In a child of multiprocessing: take turns with a lock of its own."""
    with clients.opened(url) as client:
        lock = DistributedLock(client)
        with lock.hold("job", ttl=LONG, wait=LONG) as handle:
            return handle.owner_id


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_children_of_multiprocessing(server: Server, method: str) -> None:
    # In a program of its own: a forkserver outlives its test, and a spawned child runs our main.
    program = f"""
import json, multiprocessing, sys
sys.path[:0] = {sys.path!r}
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("hands", {__file__!r})
hands = sys.modules["hands"] = module_from_spec(spec)
spec.loader.exec_module(hands)
if __name__ == "__main__":
    with multiprocessing.get_context({method!r}).Pool(3) as pool:
        print(json.dumps(pool.map(hands.own_lock, [{server.url!r}] * 6, chunksize=2)))
"""
    path = server.folder / f"{method}.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 6


def test_owners_differ_in_forks() -> None:
    said = []
    for name in (owners.current_owner_id, lambda: worked_out_once):
        reader, writer = os.pipe()
        wait_for(*(fork(lambda: os.write(writer, f"{name()}\n".encode())) for _ in range(2)))  # noqa: B023
        os.close(writer)
        with os.fdopen(reader) as told:
            said.append({*told.read().split(), name()})
    assert [len(names) for names in said] == [3, 1]


worked_out_once = owners.current_owner_id()


# Threads


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "bites"])
def test_many_threads_share_one_lock_object(server: Server, *, guarded: bool) -> None:
    with clients.opened(server.url) as client:
        lock = DistributedLock(client)
        threads = [
            threading.Thread(target=count, args=(client, lock if guarded else None, 10))
            for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lock._driver.close()
    assert (counted(server) == 160) == guarded


def test_owners_differ_between_threads_and_tasks(
    server: Server, make_locks: Callable[..., Locks]
) -> None:
    locks = make_locks(server.url)
    gate: Any = threading.Barrier(8)

    def in_thread(name: str) -> str:
        handle = locks.lock.acquire(name, ttl=LONG)
        gate.wait()  # alive at the same time
        return str(handle.owner_id)

    async def in_task(name: str) -> str:
        handle = await locks.lock.acquire(name, ttl=LONG)
        again = await locks.lock.acquire(f"{name}-again", ttl=LONG)
        assert again.owner_id == handle.owner_id
        return str(handle.owner_id)

    work: Any = in_thread if locks.colour == "sync" else in_task
    said = [locks.run(work, f"job-{n}") for n in range(8)]
    assert len({one.result(10) for one in said}) == 8


def test_a_handle_works_from_any_thread(server: Server, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(server.url)
    handle = locks.start("acquire", "job", ttl=SECOND, renew=True).result(5)
    locks.start("extend", handle, ttl=LONG).result(5)
    assert not handle.lost.is_set()
    locks.start("release", handle).result(5)
    assert server.call("EXISTS", "fencekit:{job}:lock") == 0


# Greenlets

GREENLETS = """
from gevent import monkey
monkey.patch_all()
import sys, time
import gevent
from datetime import timedelta
import redis
from fencekit import DistributedLock
client = redis.Redis.from_url(sys.argv[1])
lock = DistributedLock(client)
second = timedelta(seconds=1)

# Owners differ.
handles = [gevent.spawn(lock.acquire, f"own-{n}", ttl=second) for n in range(5)]
assert len({one.get().owner_id for one in handles}) == 5

# Waiting works, side by side with other greenlets, and is woken.
ticks = []
def tick():
    while True:
        ticks.append(time.monotonic())
        gevent.sleep(0.01)
ticker = gevent.spawn(tick)
handle = lock.acquire("job", ttl=second * 30)
waiting = [gevent.spawn(lock.acquire, "job", ttl=second * 30, wait=second * 10) for _ in range(20)]
gevent.sleep(0.3)
began = time.monotonic()
handle.release()
for _ in waiting:
    done = gevent.wait(waiting, count=1)[0]
    waiting.remove(done)
    done.get().release()
assert time.monotonic() - began < 5
assert max(b - a for a, b in zip(ticks, ticks[1:])) < 0.25

# Renewal works; a lock that is lost says so.
told = []
with lock.hold("job", ttl=second / 2, on_lost=told.append) as handle:
    gevent.sleep(1.2)
    assert not handle.lost.is_set()
    client.delete(lock.lock_key("job"))
    assert handle.lost.wait(2)
    gevent.sleep(0.05)
    print(len(told))
    raise SystemExit(0)
"""


def test_greenlets(server: Server) -> None:
    pytest.importorskip("gevent")
    done = subprocess.run(
        [sys.executable, "-c", GREENLETS, server.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


# Event loops


def test_two_loops_in_two_threads_at_once(server: Server) -> None:
    client = clients.make(server.url, colour="async")
    lock = AsyncDistributedLock(client)
    inside: list[int] = []
    together: list[int] = []

    async def work() -> None:
        for _ in range(25):
            async with lock.hold("job", ttl=LONG, wait=LONG):
                inside.append(1)
                together.append(len(inside))
                await asyncio.sleep(0.0005)
                inside.pop()

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert together == [1] * 100
    assert lock._driver._states == {}


def test_loops_come_and_go_in_other_threads(server: Server) -> None:
    """While a driver looks for closed loops, another thread may bring a new one."""
    client = clients.make(server.url, colour="async")
    driver = AsyncDriver.of(client)

    class Meddling:
        """A loop that is asked whether it is closed just as another thread's first use comes."""

        def is_closed(self) -> bool:
            driver._states[Meddling()] = LoopState.__new__(LoopState)  # type: ignore[index]
            return True

    async def use() -> None:
        driver._states[Meddling()] = LoopState.__new__(LoopState)  # type: ignore[index]
        driver.state()

    asyncio.run(use())
    driver._states.clear()
