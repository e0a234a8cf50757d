"""FifoLock, on every server, through every client, in both colours.

`test_the_bodies_bite` runs bodies of this module on a lock that lets everybody in: they fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance.forks import in_a_fork
from conformance.stage import LONG, Rig, entered, got
from fencekit import HandleForked, LockNotAcquired
from fencekit.fifo import FifoTimeout, LeaseLost

_ACL = Path(__file__).parents[2] / "docs" / "reference" / "acl.md"


@pytest.fixture(autouse=True)
def _allowed(rig: Rig) -> None:
    """Under an ACL: what the page says that FIFO locks need in addition."""
    found = re.search(r"^\| `([^`]+)` \| FIFO locks \|$", _ACL.read_text(), re.MULTILINE)
    assert found is not None
    rig.backend.allow(*found[1].split())


async def waiting(lock: Any, count: int) -> bool:
    return bool((await got(lock.stats())).waiting == count)


async def test_one_holder_and_a_fence_that_rises(rig: Rig) -> None:
    lock, other = rig.fifo(), rig.fifo(rig.another_client())
    async with entered(lock.hold()) as lease:
        assert lease.position_at_entry == 0
        assert (await got(other.stats())).holder == lease.owner_id
        with pytest.raises(FifoTimeout) as refused:
            await got(other.acquire(timeout=0))
        assert refused.value.holder == lease.owner_id
    second = await got(other.acquire())
    assert second.fence > lease.fence
    await got(other.release(second))
    await got(other.release(second))  # silent
    assert (await got(lock.stats())).holder is None


async def test_waiters_enter_in_order_of_arrival(rig: Rig) -> None:
    locks = [rig.fifo(), rig.fifo(rig.another_client())]
    first = await got(locks[0].acquire())
    order: list[int] = []

    async def wait(number: int) -> None:
        async with entered(locks[number % 2].hold()):
            order.append(number)

    bodies = []
    for number in range(6):
        bodies.append(rig.start(wait(number)))
        await rig.until(partial(waiting, locks[0], number + 1))
    assert order == []
    await got(locks[0].release(first))
    for body in bodies:
        await body.result()
    assert order == list(range(6))


async def test_running_out_of_time_gives_up_the_place(rig: Rig) -> None:
    lock = rig.fifo()
    async with entered(lock.hold()):
        with pytest.raises(FifoTimeout):
            await got(lock.acquire(0.1))
        assert await waiting(lock, 0)
    async with entered(lock.hold(0)):
        pass


async def test_it_excludes_the_lock_of_that_name(rig: Rig) -> None:
    lock, plain = rig.fifo(), rig.lock()
    async with entered(lock.hold()) as lease:
        with pytest.raises(LockNotAcquired):
            await got(plain.acquire("job", ttl=LONG))
    async with entered(plain.hold("job", ttl=LONG)) as handle:
        assert handle.token > lease.fence
        with pytest.raises(FifoTimeout):
            await got(lock.acquire(0))


async def test_a_lost_lease_is_told(rig: Rig) -> None:
    lock = rig.fifo()
    lease = await got(lock.acquire())
    rig.backend.lose_data()
    with pytest.raises(LeaseLost):
        await got(lock.release(lease))
    async with entered(lock.hold()) as successor:
        assert successor.fence > lease.fence


async def test_scripts_may_be_flushed_between_any_two_operations(rig: Rig) -> None:
    lock = rig.fifo()
    for _ in range(2):
        rig.backend.forget_scripts()
        lease = await got(lock.acquire())
        rig.backend.forget_scripts()
        assert (await got(lock.stats())).holder == lease.owner_id
        rig.backend.forget_scripts()
        await got(lock.release(lease))


async def test_a_fork_starts_afresh(rig: Rig) -> None:
    lock = rig.fifo()
    lease = await got(lock.acquire())

    async def child() -> None:
        with pytest.raises(HandleForked):
            await got(lock.release(lease))
        mine = rig.fifo(name="mine")
        async with entered(mine.hold()):
            pass
        await rig.close_driver()

    in_a_fork(lambda: rig.run(child()))
    await got(lock.release(lease))


class _Generous:
    """Lets everybody in: each call is for a name of its own."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._count = 0

    def _next(self) -> Any:
        self._count += 1
        return self._make(f"job-{self._count}")

    def acquire(self, timeout: float | None = None) -> Any:
        return self._next().acquire(timeout)

    def hold(self, timeout: float | None = None) -> Any:
        return self._next().hold(timeout)

    def stats(self) -> Any:
        return self._make(f"job-{self._count}").stats()


async def test_the_bodies_bite(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = rig.fifo
    monkeypatch.setattr(
        rig, "fifo", lambda client=None: _Generous(lambda name: honest(client, name))
    )
    bodies = (test_one_holder_and_a_fence_that_rises, test_running_out_of_time_gives_up_the_place)
    for body in bodies:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            await body(rig)
