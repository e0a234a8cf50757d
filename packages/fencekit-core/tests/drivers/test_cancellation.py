"""Cancel acquire, release, extend and hold at every await, and see that nothing is left or hangs.

Two sweeps: over the awaits of the call itself, where the cancellation comes before or just after
what is awaited is done, and over turns of the loop, which also meets the connection in the making.

How it bites: the same sweep over an acquire whose flow does not hear of the cancellation, and so
does not withdraw, leaves locks behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Callable, Coroutine, Generator
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from fencekit import AsyncDistributedLock
from fencekit.drivers.loop_state import LoopState
from harness import clients
from harness.servers import Server
from harness.waiting import eventually_async

T = TypeVar("T")
LONG = timedelta(seconds=30)
KEY = "fencekit:{job}:lock"
# A call that awaits more often than this never ends.
_MOST = 60


class Cancelled:
    """Await a coroutine, cancelled at its nth await: before what is awaited is done, or after.

    Attributes:
        reached: whether there were as many awaits.
    """

    def __init__(self, work: Coroutine[Any, Any, T], nth: int, *, late: bool) -> None:
        self._work, self._nth, self._late = work, nth, late
        self.reached = False

    @types.coroutine
    def _drive(self) -> Generator[Any, Any, Any]:
        step: Callable[..., Any] = self._work.send
        argument: Any = None
        for count in range(1, _MOST):
            try:
                awaited = step(argument)
            except StopIteration as stop:
                return stop.value
            at = count == self._nth
            if at and not self._late:
                self.reached = True
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield awaited
                step, argument = self._work.send, None
            except BaseException as error:  # noqa: BLE001 - as the loop would
                step, argument = self._work.throw, error
            if at and self._late:
                self.reached = True
                step, argument = self._work.throw, asyncio.CancelledError()
        raise AssertionError("it awaits for ever")

    async def run(self) -> None:
        task: asyncio.Task[Any] = asyncio.ensure_future(self._as_coroutine())
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), 5)

    async def _as_coroutine(self) -> Any:
        return await self._drive()


async def free(server: Server) -> None:
    await eventually_async(lambda: server.call("EXISTS", KEY) == 0, 1)


class Acquire:
    """Of a free lock."""

    def __init__(self, lock: AsyncDistributedLock) -> None:
        self.lock = lock

    async def prepare(self) -> None:
        """What comes before, and is not cancelled."""

    async def work(self) -> None:
        """What is cancelled."""
        handle = await self.lock.acquire("job", ttl=LONG, renew=True)
        # Whoever was not cancelled gives it back: only the cancelled can leave it behind.
        await asyncio.shield(handle.release())

    async def finish(self) -> None:
        """What comes after."""


class AcquireWaiting(Acquire):
    """Of a lock that is given back a little later."""

    async def prepare(self) -> None:
        held = await AsyncDistributedLock(self.lock._redis).acquire("job", ttl=LONG)

        async def give_back() -> None:
            await asyncio.sleep(0.01)
            await held.release()

        self.giving = asyncio.create_task(give_back())

    async def work(self) -> None:
        handle = await self.lock.acquire("job", ttl=LONG, wait=LONG, renew=True)
        await asyncio.shield(handle.release())

    async def finish(self) -> None:
        await self.giving


class Release(Acquire):
    """After which it can be repeated."""

    async def prepare(self) -> None:
        self.handle = await self.lock.acquire("job", ttl=LONG, renew=True)

    async def work(self) -> None:
        await self.handle.release()

    async def finish(self) -> None:
        await self.handle.release()


class Extend(Release):
    """After which it can be given back as ever."""

    async def work(self) -> None:
        await self.handle.extend(LONG * 2)

    async def finish(self) -> None:
        await self.handle.release()


class Hold(Acquire):
    """Cancelled as it is taken, as it is held, or as it is given back."""

    async def work(self) -> None:
        async with self.lock.hold("job", ttl=LONG, wait=LONG):
            await asyncio.sleep(0.001)


CALLS = [Acquire, AcquireWaiting, Release, Extend, Hold]


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", CALLS)
async def test_cancelled_at_every_await(
    server: Server, call: type[Acquire], *, late: bool, connected: bool
) -> None:
    for nth in range(1, _MOST):
        async with clients.aopened(server.url) as client:
            lock = AsyncDistributedLock(client)
            if connected:
                await (await lock.acquire("other", ttl=LONG)).release()
            called = call(lock)
            await called.prepare()
            cancelled = Cancelled(called.work(), nth, late=late)
            await cancelled.run()
            await called.finish()
            await free(server)
            # Nothing that is still under way takes it from the next.
            after = await lock.acquire("job", ttl=LONG, wait=timedelta(seconds=1))
            await asyncio.sleep(0.005)
            await after.release()
            await lock._driver.aclose()
        if not cancelled.reached:
            break
    assert 1 < nth < _MOST


@pytest.mark.parametrize("call", CALLS)
async def test_cancelled_at_every_turn_of_the_loop(server: Server, call: type[Acquire]) -> None:
    turns = 0
    while True:
        async with clients.aopened(server.url) as client:
            lock = AsyncDistributedLock(client)
            called = call(lock)
            await called.prepare()
            task = asyncio.ensure_future(called.work())
            for _ in range(turns):
                await asyncio.sleep(0)
            was_done = task.done()
            task.cancel()
            await asyncio.wait([task], timeout=5)
            assert task.done()
            await called.finish()
            await free(server)
            await lock._driver.aclose()
        if was_done or turns > 150:
            break
        turns += 1 if turns < 30 else 10
    assert turns > 2


async def test_cancellation_bites(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopState, "finish", lambda *_: None)
    async with clients.aopened(server.url) as client:
        lock = AsyncDistributedLock(client)
        await (await lock.acquire("other", ttl=LONG)).release()
        await Cancelled(Acquire(lock).work(), 1, late=False).run()
        with pytest.raises(AssertionError):
            await free(server)
        await lock._driver.aclose()


async def test_a_cancelled_caller_does_not_poison_the_connection(server: Server) -> None:
    async with clients.aopened(server.url) as client:
        lock = AsyncDistributedLock(client)
        tasks = [
            asyncio.create_task(lock.acquire(f"job-{n}", ttl=LONG, owner_id=f"owner-{n}"))
            for n in range(50)
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        for n, handle in enumerate(done):
            if n % 2:
                assert not isinstance(handle, BaseException)
                assert (handle.resource, handle.owner_id) == (f"job-{n}", f"owner-{n}")
                await handle.release()
        await eventually_async(lambda: server.call("KEYS", "fencekit:*:lock") == [])
        await lock._driver.aclose()


async def test_a_cancelled_loop_still_withdraws(server: Server) -> None:
    """`asyncio.run` cancels all tasks at its end, also those that tidy up."""

    async def leave() -> None:
        client = clients.make(server.url, colour="async")
        lock = AsyncDistributedLock(client)
        await (await lock.acquire("other", ttl=LONG)).release()
        tasks.append(asyncio.create_task(lock.acquire("job", ttl=LONG)))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[Any]] = []

    await asyncio.to_thread(lambda: asyncio.run(leave()))
    await free(server)
