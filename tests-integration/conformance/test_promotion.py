"""A replica that had fallen behind is promoted: what becomes of lock, queue, record and cache.

Clients reach the servers by an address that follows the primary, as behind a load balancer. What
the replica did not have is lost; each test also shows what was not. `test_failover.py` has the
tokens and Sentinel.

Shown red: without `min_replicas` the grant of
`test_a_lock_that_a_replica_confirmed_is_held_after_the_failover` does not wait; with the verdict
taken as the script gives it, the release of a lost grant is silent in
`test_a_lock_the_failover_lost_is_granted_again_and_its_holder_is_told`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.stage import LONG, Rig, entered, got, ms
from fencekit import FencedOutError, LockNotAcquired, LockNotOwned, ReplicationError
from fencekit.fifo import FifoLock, LeaseLost, SyncFifoLock
from fencekit.protocol.claim import BeginOutcome
from harness.caches import Profile, opened_kit
from harness.proxy import Proxy
from harness.topologies import Replication, in_step
from harness.waiting import eventually

RigAt = Callable[..., Rig]
OLD, NEW = Profile(id=1, name="old"), Profile(id=1, name="new")


class Address:
    """An address that leads to the primary, and after `fail_over` to what was its replica."""

    def __init__(self, servers: Replication, proxy: Proxy) -> None:
        self._servers = servers
        self._proxy = proxy
        self.url = proxy.url

    def catch_up(self) -> None:
        """Return once the replica has everything."""
        eventually(lambda: in_step(self._servers.primary, 1))

    def fall_behind(self) -> None:
        """Nothing that is written from now on arrives at the replica."""
        self.catch_up()
        self._servers.replicas[0].stall()

    def go_on(self) -> None:
        """What was held up arrives at the replica, and what is written from now on."""
        self._servers.replicas[0].resume()

    def fail_over(self) -> None:
        """The primary is gone, and the replica is promoted with what it has."""
        new = self._servers.replicas[0].promote()
        self._proxy.server = (new.host, new.port)
        self._servers.primary.kill()
        self._proxy.cut()


@pytest.fixture
def address(replicated_server: Replication) -> Iterator[Address]:
    with Proxy.before(replicated_server.primary) as proxy:
        yield Address(replicated_server, proxy)


async def test_a_lock_the_failover_lost_is_granted_again_and_its_holder_is_told(
    address: Address, rig_at: RigAt
) -> None:
    rig = rig_at(address.url)
    lock, gate = rig.lock(), rig.gate()
    async with entered(lock.hold("job", ttl=LONG)) as handle:
        before = handle.token
    address.fall_behind()
    lost = await got(lock.acquire("job", ttl=ms(1200), renew=True))
    address.fail_over()
    async with entered(lock.hold("job", ttl=LONG)) as successor:
        # Two holders at once: that is the price of a grant that nobody confirmed. The gate and
        # the lease end it.
        assert successor.token > lost.token > before
        await got(gate.set_if_fresh(successor.token, "status", "fresh"))
        with pytest.raises(FencedOutError):
            await got(gate.set_if_fresh(lost.token, "status", "late"))
        await rig.until(lost.lost.is_set)
    with pytest.raises(LockNotOwned):
        await got(lost.release())


async def test_a_lock_that_a_replica_confirmed_is_held_after_the_failover(
    address: Address, rig_at: RigAt
) -> None:
    rig = rig_at(address.url)
    lock, other = rig.lock(min_replicas=1, replica_timeout=ms(500)), rig.lock()

    async def acquire(name: str) -> Any:
        return await got(lock.acquire(name, ttl=ms(2500), renew=True))

    address.fall_behind()
    acquiring = rig.start(acquire("job"))
    await rig.sleep(0.2)  # several round trips: it waits for the replica
    assert not acquiring.done
    address.go_on()
    handle = await acquiring.result()
    address.fall_behind()
    with pytest.raises(ReplicationError):
        await acquire("another")
    address.fail_over()
    with pytest.raises(LockNotAcquired):
        await got(other.acquire("job", ttl=LONG))
    await rig.sleep(2.8)  # longer than the lease: the keeper has found the new primary
    assert not handle.lost.is_set()
    await got(handle.release())
    async with entered(other.hold("job", ttl=LONG)) as successor:
        assert successor.token > handle.token


def fifo(rig: Rig) -> Any:
    kind: Any = FifoLock if rig.is_async else SyncFifoLock
    return kind(rig.client, "job", lease_ms=1500, alive_ms=1500)


async def queued(rig: Rig, lock: Any, numbers: range, entries: list[tuple[int, Any]]) -> list[Any]:
    """Let some wait, one after the other; each notes its number and its fence when it enters."""

    async def wait(number: int) -> None:
        async with entered(lock.hold(20)) as lease:
            entries.append((number, lease.fence))

    async def waiting(count: int) -> bool:
        return bool((await got(lock.stats())).waiting == count)

    bodies = []
    for number in numbers:
        bodies.append(rig.start(wait(number)))
        count = number + 1
        await rig.until(lambda count=count: waiting(count))  # type: ignore[misc]
    return bodies


async def test_those_in_the_queue_that_the_replica_knew_keep_their_order(
    address: Address, rig_at: RigAt
) -> None:
    rig = rig_at(address.url)
    lock, entries = fifo(rig), list[tuple[int, Any]]()
    lease = await got(lock.acquire())
    bodies = await queued(rig, lock, range(3), entries)
    address.fall_behind()
    # These two have no place on the new primary: they ask again, and stand behind the others.
    bodies += await queued(rig, lock, range(3, 5), entries)
    address.fail_over()
    assert entries == []
    await got(lock.release(lease))
    for body in bodies:
        await body.result()
    numbers, fences = [number for number, _ in entries], [fence for _, fence in entries]
    assert numbers[:3] == [0, 1, 2]
    assert sorted(numbers[3:]) == [3, 4]
    assert [*fences, lease.fence] == [*sorted(fences), min(lease.fence, *fences)]


async def test_a_queue_that_the_failover_lost_stands_again_and_its_holder_is_told(
    address: Address, rig_at: RigAt
) -> None:
    rig = rig_at(address.url)
    lock, entries = fifo(rig), list[tuple[int, Any]]()
    address.fall_behind()
    lease = await got(lock.acquire())
    bodies = await queued(rig, lock, range(3), entries)
    address.fail_over()
    for body in bodies:
        await body.result()
    assert sorted(number for number, _ in entries) == [0, 1, 2]
    assert all(fence > lease.fence for _, fence in entries)
    await rig.until(lease.lost.is_set)
    with pytest.raises(LeaseLost):
        await got(lock.release(lease))


async def test_a_record_the_failover_lost_is_begun_again_with_a_higher_token(
    address: Address, rig_at: RigAt
) -> None:
    rig = rig_at(address.url)
    guard = rig.guard()
    assert await got(guard.run("kept", lambda: "once", ttl=LONG)) == "once"
    address.fall_behind()
    first = await got(guard.begin("lost", ttl=LONG))
    await got(first.complete("first"))
    address.fail_over()
    assert await got(guard.run("kept", lambda: "twice", ttl=LONG)) == "once"
    # What it did is done twice: an effect that must not be belongs into a database's transaction.
    again = await got(guard.begin("lost", ttl=LONG))
    assert again.outcome is BeginOutcome.BEGUN
    assert again.fence > first.fence
    await got(again.complete("second"))
    assert await got(guard.get_result("lost")) == "second"


async def test_a_load_whose_ticket_the_failover_lost_stores_nothing(
    address: Address, rig_at: RigAt
) -> None:
    rig = rig_at(address.url)
    async with opened_kit(rig.colour, address.url) as kit:
        cache = kit.declare()
        address.fall_behind()
        gate = kit.gate(OLD)
        reader = kit.start(lambda: cache.get_or_load(1, gate))
        await kit.entered(gate)
        address.fail_over()
        await got(cache.invalidate(1))
        gate.opened.set()
        await reader.result()
        assert await got(cache.get(1)) is None
        assert await got(cache.get_or_load(1, kit.loader(NEW))) == NEW


async def test_an_invalidation_that_the_failover_lost_has_not_happened(
    address: Address, rig_at: RigAt
) -> None:
    """What is not promised: the entry is there again until it expires or is invalidated again."""
    rig = rig_at(address.url)
    async with opened_kit(rig.colour, address.url) as kit:
        cache = kit.declare()
        await got(cache.get_or_load(1, kit.loader(OLD)))
        address.fall_behind()
        await got(cache.invalidate(1))
        assert await got(cache.get(1)) is None
        address.fail_over()
        assert await got(cache.get(1)) == OLD
        await got(cache.invalidate(1))
        assert await got(cache.get_or_load(1, kit.loader(NEW))) == NEW
