"""Primaries that fail, replicas that lag, and what is lost between them.

The first test is red with a bare INCR in the place of the token (protocol.md §2 saw 4 after 8), and
`test_too_few_replicas_leave_nothing` with WAIT on another connection, which says yes falsely.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest

from conformance.stage import LONG, Rig, entered, got, ms
from fencekit import DistributedLock, FencedOutError, FenceKitError, ReplicationError
from fencekit.keys import names
from harness.proxy import Proxy
from harness.topologies import Replication, Sentinels, in_step, sentinel
from harness.waiting import eventually

RigAt = Callable[..., Rig]


async def test_a_failover_that_loses_writes_never_lowers_a_token(
    replicated_server: Replication, rig_at: RigAt
) -> None:
    replica = replicated_server.replicas[0]
    before = rig_at(replicated_server.url)
    lock, tokens = before.lock(min_replicas=1), []
    for _ in range(3):
        async with entered(lock.hold("job", ttl=LONG)) as handle:
            tokens.append(handle.token)
    # What is lost is what comes now, and no release of what came before.
    eventually(lambda: replica.server.call("EXISTS", names("fencekit", "job").lock) == 0)
    replica.stall()
    hasty = before.lock()
    for _ in range(5):
        async with entered(hasty.hold("job", ttl=LONG)) as handle:
            tokens.append(handle.token)
    held = await got(hasty.acquire("job", ttl=LONG))
    after = rig_at(replica.promote().url)
    async with entered(after.lock().hold("job", ttl=LONG)) as handle:
        assert handle.token > held.token > max(tokens)
        with pytest.raises(FencedOutError):
            await got(after.gate().set_if_fresh(held.token, "status", "late"))
    assert sorted(tokens) == tokens


@pytest.mark.parametrize("family", ["redis", "valkey"])
async def test_a_sentinel_failover_that_loses_writes(
    sentinel_server: Sentinels, rig_at: RigAt, family: str
) -> None:
    rig = rig_at(sentinel_server.url, "sentinel", family=family)
    lock, gate, guard = rig.lock(), rig.gate(), rig.guard()
    old = sentinel_server.primary()
    replicas = [server for server in sentinel_server.servers if server is not old]
    async with entered(rig.lock(min_replicas=2).hold("job", ttl=LONG)) as handle:
        first = handle.token
    assert await got(guard.run("charge", lambda: "once", ttl=LONG)) == "once"
    eventually(lambda: in_step(old, 2))
    # Nothing more arrives: the stopped replicas are cut off, and find nobody when they wake up.
    for server in replicas:
        server.pause()
    old.call("CLIENT", "KILL", "TYPE", "replica")
    lost = await got(lock.acquire("job", ttl=LONG))
    old.kill()
    for server in replicas:
        server.resume()
    # The Sentinel needs a second or two; the client's patience is longer.
    async with entered(lock.hold("job", ttl=LONG)) as handle:
        assert handle.token > lost.token > first
        with pytest.raises(FencedOutError):
            await got(gate.set_if_fresh(lost.token, "status", "late"))
        await got(gate.set_if_fresh(handle.token, "status", "fresh"))
    # Its verdict is not promised: what the failover lost, no record knows (protocol.md §9).
    assert await got(guard.run("charge", lambda: "twice", ttl=LONG)) == "once"
    sentinel_server.wait_for_failover(old)


@pytest.mark.slow
async def test_a_planned_failover_keeps_lock_and_renewal(
    sentinel_server: Sentinels, rig_at: RigAt
) -> None:
    rig = rig_at(sentinel_server.url, "sentinel")
    lock, old = rig.lock(), sentinel_server.primary()
    handle = await got(lock.acquire("job", ttl=ms(3000), renew=True))
    waiter = rig.start(_wait_for(lock))
    await rig.sleep(0.2)
    sentinel_server.sentinels[0].call("SENTINEL", "FAILOVER", sentinel_server.service)
    new = sentinel_server.wait_for_failover(old)
    # The Sentinel itself takes eight seconds to demote a primary that still answers.
    old.call("REPLICAOF", new.host, new.port)
    await rig.sleep(3.5)  # longer than the lease: the keeper has found the new primary
    assert not handle.lost.is_set()
    assert new.call("GET", names("fencekit", "job").lock) is not None
    began = time.monotonic()
    await got(handle.release())
    successor = await waiter.result()
    assert time.monotonic() - began < 1.5  # the hub, too
    assert successor.token > handle.token
    await got(successor.release())


@pytest.fixture
def patient_sentinel() -> Iterator[Sentinels]:
    """Give a Sentinel that does not take a server for dead which has no turn on a busy machine."""
    with sentinel(down_after_ms=1500) as group:
        yield group


@pytest.mark.slow
async def test_sentinels_own_failover_under_load(
    patient_sentinel: Sentinels, rig_at: RigAt
) -> None:
    """The primary dies while eight contend for three names: what goes on, and in which order.

    Two may hold a lock that the failover lost; no token comes twice, a later grant has a higher
    one, and the gate lets nobody write behind it.
    """
    rig = rig_at(patient_sentinel.url, "sentinel")
    lock, gate, old = rig.lock(), rig.gate(), patient_sentinel.primary()
    grants: dict[str, list[tuple[float, float, int]]] = {name: [] for name in "abc"}
    ended, refused = threading.Event(), Counter[str]()

    async def work(number: int) -> None:
        while not ended.is_set():
            name = "abc"[number % 3]
            asked = time.monotonic()
            try:
                handle = await got(lock.acquire(name, ttl=ms(2000), wait=ms(20_000)))
                grants[name].append((asked, time.monotonic(), int(handle.token)))
                await got(gate.set_if_fresh(handle.token, f"{{{name}}}:last", int(handle.token)))
                await rig.sleep(0.002)  # the others need a turn, too
                await got(handle.release())
            except FenceKitError as error:
                refused[type(error).__name__] += 1

    workers = [rig.start(work(number)) for number in range(8)]
    await rig.until(lambda: all(grants.values()))
    await rig.sleep(0.5)
    died = time.monotonic()
    old.kill()
    # In a thread, for it looks at the servers until they have agreed.
    waiting = threading.Thread(target=patient_sentinel.wait_for_failover, args=(old,))
    waiting.start()
    everywhere = lambda: all(one[-1][1] > died + 0.2 for one in grants.values())  # noqa: E731
    await rig.until(everywhere, timeout=20)
    await rig.sleep(0.5)
    ended.set()
    for worker in workers:
        await worker.result()
    waiting.join()
    alive = [server for server in patient_sentinel.servers if server is not old]
    for name, each in grants.items():
        tokens = [token for _, _, token in each]
        assert len(set(tokens)) == len(tokens)
        for (_, ended_at, token), (asked, _, later) in combinations(sorted(each), 2):
            assert later > token or asked < ended_at
        # Whichever is the primary by now.
        assert max(int(server.call("GET", f"{{{name}}}:last")) for server in alive) == max(tokens)
    # Who was in the middle of something was told, and how.
    assert set(refused) <= {"StoreUnavailable", "OutcomeUnknown", "LockNotOwned", "FencedOutError"}


async def _wait_for(lock: Any) -> Any:
    return await got(lock.acquire("job", ttl=LONG, wait=LONG))


async def test_readonly_after_a_demotion_is_healed_by_reconnecting(
    replicated_server: Replication, rig_at: RigAt
) -> None:
    """Behind an address that follows the primary, as a load balancer or a DNS name does."""
    old, replica = replicated_server.primary, replicated_server.replicas[0]
    with Proxy(old.host, old.port) as proxy:
        rig = rig_at(proxy.url)
        lock, guard = rig.lock(), rig.guard()
        handle = await got(lock.acquire("job", ttl=ms(1500), renew=True))
        claims = await got(guard.begin_many(["a", "b"], ttl=LONG))
        eventually(lambda: in_step(old, 1))
        new = replica.promote()
        old.call("REPLICAOF", new.host, new.port)
        proxy.server = (new.host, new.port)
        await got(guard.complete_many([(claim, 1) for claim in claims]))
        await rig.sleep(2.5)
        assert not handle.lost.is_set()
        await got(handle.release())
        async with entered(lock.hold("job", ttl=LONG)):
            pass
        assert new.call("EXISTS", names("fencekit", "a").idem) == 1


async def test_too_few_replicas_leave_nothing(
    replicated_server: Replication, rig_at: RigAt
) -> None:
    """As in redisson#5256 and redisson#4706: a lock that was not replicated is not left behind."""
    rig = rig_at(replicated_server.url)
    primary, replica = replicated_server.primary, replicated_server.replicas[0]
    lock = rig.lock(min_replicas=1, replica_timeout=ms(300))
    async with entered(lock.hold("job", ttl=LONG)) as handle:
        assert replica.server.call("GET", names("fencekit", "job").lock) is not None
    replica.stall()
    began = time.monotonic()
    with pytest.raises(ReplicationError) as error:
        await got(lock.acquire("job", ttl=LONG))
    assert 0.25 < time.monotonic() - began < 1.0
    assert (error.value.wanted, error.value.confirmed) == (1, 0)
    assert primary.call("EXISTS", names("fencekit", "job").lock) == 0
    # Another client's writes, which nobody waits for, go on.
    async with entered(rig.lock().hold("job", ttl=LONG)) as hasty:
        assert hasty.token > handle.token
    replica.resume()
    async with entered(lock.hold("job", ttl=LONG, wait=LONG)):
        pass


async def test_many_at_once_wait_for_replicas(
    replicated_server: Replication, rig_at: RigAt
) -> None:
    rig = rig_at(replicated_server.url)
    primary, replica = replicated_server.primary, replicated_server.replicas[0]
    lock = rig.lock(min_replicas=1, replica_timeout=ms(400))

    async def take(name: str) -> Any:
        return await got(lock.acquire(name, ttl=LONG))

    for running in [rig.start(take(f"job-{number}")) for number in range(40)]:
        await got((await running.result()).release())
    replica.stall()
    began = time.monotonic()
    refused = 0
    for running in [rig.start(take(f"job-{number}")) for number in range(40)]:
        try:
            await running.result()
        except ReplicationError:
            refused += 1
    assert refused == 40
    assert time.monotonic() - began < 3.5
    assert primary.call("KEYS", "*:lock") == []
    replica.resume()


def test_threads_do_not_take_each_others_acknowledgements(replicated_server: Replication) -> None:
    """A replica that lags now and then: every grant that was confirmed is at the replica."""
    from harness.clients import opened  # noqa: PLC0415

    replica = replicated_server.replicas[0]
    with opened(replicated_server.url) as client:
        lock = DistributedLock(client, min_replicas=1, replica_timeout=ms(100))
        wrong: list[str] = []

        def work(number: int) -> None:
            for round_ in range(6):
                name = f"job-{number}-{round_}"
                try:
                    handle = lock.acquire(name, ttl=LONG)
                except ReplicationError:
                    continue
                if replica.server.call("GET", names("fencekit", name).lock) is None:
                    wrong.append(name)
                handle.release()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            time.sleep(0.05)
            replica.stall()
            time.sleep(0.05)
            replica.resume()
        for thread in threads:
            thread.join()
        assert not wrong
