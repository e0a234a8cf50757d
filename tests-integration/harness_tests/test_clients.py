"""Clients of each family, colour, protocol and topology reach their server and close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from harness.clients import Family, aopened, opened
from harness.waiting import eventually

if TYPE_CHECKING:
    from harness.fixtures import ServerPool
    from harness.servers import Server
    from harness.statistics import CommandStats
    from harness.topologies import Cluster, Sentinels

families = pytest.mark.parametrize("family", ["redis", "valkey"])
protocols = pytest.mark.parametrize("resp", [2, 3])


@families
@protocols
@pytest.mark.parametrize("decode", [False, True])
async def test_single(server: Server, family: Family, resp: Literal[2, 3], *, decode: bool) -> None:
    value = "v" if decode else b"v"
    with opened(server.url, family=family, resp=resp, decode=decode) as client:
        client.set("key", "v")
        assert client.get("key") == value
        assert isinstance(client.hgetall("none"), dict)
    async with aopened(server.url, family=family, resp=resp, decode=decode) as client:
        assert await client.get("key") == value
    assert len(server.call("CLIENT", "LIST").splitlines()) == 1


@families
@protocols
async def test_cluster(cluster_server: Cluster, family: Family, resp: Literal[2, 3]) -> None:
    options: dict[str, Any] = {"family": family, "resp": resp, "topology": "cluster"}
    with opened(cluster_server.url, **options) as client:
        for key in "abcdef":
            client.set(key, key)
            assert cluster_server.node_of(key).call("GET", key) == key.encode()
    async with aopened(cluster_server.url, **options) as client:
        assert await client.get("a") == b"a"


@families
async def test_a_cluster_client_is_closed_also_where_it_is_to_look_anew(
    cluster_server: Cluster, family: Family
) -> None:
    """Red before: its connections were left open, and collected in whatever test came next."""
    async with aopened(cluster_server.url, family=family, topology="cluster") as client:
        for key in "abcdef":
            await client.get(key)
        client._initialize = True  # as after an error of a connection
    eventually(
        lambda: all(
            len(node.call("CLIENT", "LIST").splitlines()) == 1 for node in cluster_server.nodes
        )
    )


@families
async def test_sentinel(sentinel_server: Sentinels, family: Family) -> None:
    options: dict[str, Any] = {"family": family, "topology": "sentinel"}
    with opened(sentinel_server.url, **options) as client:
        client.set("key", "v")
    async with aopened(sentinel_server.url, **options) as client:
        assert await client.get("key") == b"v"
    assert sentinel_server.primary().call("GET", "key") == b"v"


@families
async def test_tls(servers: ServerPool, family: Family) -> None:
    server = servers.clean(tls=True)
    with opened(server.url, family=family) as client:
        client.set("key", "v")
    async with aopened(server.url, family=family) as client:
        assert await client.get("key") == b"v"


@families
async def test_unix_socket(servers: ServerPool, family: Family) -> None:
    server = servers.clean(unixsocket=True)
    with opened(server.url, family=family) as client:
        client.set("key", "v")
    async with aopened(server.url, family=family) as client:
        assert await client.get("key") == b"v"


def test_command_statistics_count_from_where_they_start(
    redis_client: Any, commandstats: CommandStats
) -> None:
    redis_client.set("key", 1)
    redis_client.get("key")
    redis_client.get("key")
    assert commandstats.total("get") == 2
    assert commandstats.total("get", "set") == 3
    commandstats.restart()
    assert commandstats.total() == 0


async def test_the_client_fixtures_share_a_server(
    redis_client: Any, async_redis_client: Any
) -> None:
    redis_client.set("key", "v")
    assert await async_redis_client.get("key") == b"v"
