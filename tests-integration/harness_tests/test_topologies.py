"""Clusters serve, replicas stall and are promoted, Sentinels fail over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.clients import Family, aopened, opened
from harness.faults import Delay, containing
from harness.topologies import primary_with_replicas, sentinel
from harness.wire import ReplyError, Wire

if TYPE_CHECKING:
    from harness.topologies import Cluster, Replication, Sentinels


def test_a_cluster_serves_each_key_at_its_node(cluster_server: Cluster) -> None:
    owners = set()
    for key in map(str, range(20)):
        owner = cluster_server.node_of(key)
        owner.call("SET", key, key)
        owners.add(owner.port)
        stranger = next(node for node in cluster_server.nodes if node is not owner)
        with pytest.raises(ReplyError, match="MOVED"):
            stranger.call("GET", key)
    assert len(owners) == 3


@pytest.mark.parametrize("family", ["redis", "valkey"])
async def test_faults_reach_one_node_of_a_cluster(proxied_cluster: Cluster, family: Family) -> None:
    keys = ["first-key", "second-key", "third-key"]
    counters = [proxied_cluster.proxy_of(key).add(Delay(0, containing(key))) for key in keys]
    with opened(proxied_cluster.url, family=family, topology="cluster") as client:
        for key in keys:
            client.set(key, 1)
    async with aopened(proxied_cluster.url, family=family, topology="cluster") as client:
        for key in keys:
            assert await client.get(key) == b"1"
    assert [counter.fired for counter in counters] == [2, 2, 2]


def test_a_stalled_replica_acknowledges_nothing_and_catches_up(
    replicated_server: Replication,
) -> None:
    replica = replicated_server.replicas[0]
    with Wire(replicated_server.primary.unix_path) as primary:
        primary.call("SET", "key", "1")
        assert primary.call("WAIT", 1, 2000) == 1
        replica.stall()
        primary.call("SET", "key", "2")
        assert primary.call("WAIT", 1, 50) == 0
        replica.resume()
        assert primary.call("WAIT", 1, 2000) == 1
    assert replica.server.call("GET", "key") == b"2"


def test_a_stalled_replica_is_promoted_without_what_it_missed(
    replicated_server: Replication,
) -> None:
    replica = replicated_server.replicas[0]
    with Wire(replicated_server.primary.unix_path) as primary:
        primary.call("SET", "key", "1")
        assert primary.call("WAIT", 1, 2000) == 1
        replica.stall()
        primary.call("SET", "key", "2")
    promoted = replica.promote()
    assert promoted.call("GET", "key") == b"1"
    promoted.call("SET", "key", "3")


def test_one_replica_of_two_can_be_stalled() -> None:
    with primary_with_replicas(replicas=2) as group, Wire(group.primary.unix_path) as primary:
        group.replicas[0].stall()
        primary.call("SET", "key", "1")
        assert primary.call("WAIT", 2, 50) == 1


def test_a_sentinel_promotes_a_replica(sentinel_server: Sentinels) -> None:
    old = sentinel_server.primary()
    with Wire(old.unix_path) as wire:
        wire.call("SET", "key", "1")
        wire.call("WAIT", 2, 2000)
    old.kill()
    new = sentinel_server.wait_for_failover(old)
    assert new.call("GET", "key") == b"1"


@pytest.mark.slow
def test_three_sentinels_promote_a_replica() -> None:
    with sentinel(sentinels=3) as group:
        old = group.primary()
        old.pause()
        assert group.wait_for_failover(old) is not old
