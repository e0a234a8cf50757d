"""Connections are made as the given client's are, whatever pool, Sentinel or cluster made it."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
import valkey

from fencekit import AsyncDistributedLock, DistributedLock
from fencekit.drivers.client import describe
from harness.clients import opened
from harness.fixtures import ServerPool
from harness.servers import ACL_PASSWORD, ACL_USER
from harness.topologies import Cluster

LONG = timedelta(seconds=30)
# Untyped in redis-py.
_BLOCKING_POOL: Any = redis.BlockingConnectionPool
_SENTINEL: Any = redis.sentinel.Sentinel
_ASYNC_SENTINEL: Any = redis.asyncio.sentinel.Sentinel


class Provider(redis.CredentialProvider):
    """Hands out credentials, and counts how often."""

    def __init__(self, fails_at: int = 0) -> None:
        self.asked = 0
        self._fails_at = fails_at

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        if self.asked == self._fails_at:
            raise LookupError("the service that knows the password does not answer")
        return ACL_USER, ACL_PASSWORD


@pytest.mark.parametrize(
    ("pool", "share"),
    [
        (redis.ConnectionPool(max_connections=1), 1),
        (redis.ConnectionPool(max_connections=3), 1),
        (redis.ConnectionPool(max_connections=10), 5),
        (_BLOCKING_POOL(max_connections=20, timeout=1), 10),
        (redis.ConnectionPool(max_connections=10_000), 64),
    ],
    ids=lambda value: str(getattr(value, "max_connections", value)),
)
def test_at_most_half_as_many_connections_as_the_client_may_have(
    pool: redis.ConnectionPool, share: int
) -> None:
    assert describe(redis.Redis(connection_pool=pool), "sync").share == share


def test_settings_that_connections_need_are_kept() -> None:
    client = redis.Redis(
        host="h",
        port=1234,
        db=5,
        username="u",
        password="p",  # noqa: S106
        client_name="me",
        socket_timeout=2.5,
        socket_connect_timeout=1.5,
        socket_keepalive=True,
        ssl=True,
        ssl_check_hostname=False,
        ssl_cert_reqs="none",
        health_check_interval=30,
        protocol=3,
        decode_responses=True,
    )
    seen = describe(client, "sync")
    kept = seen.settings
    assert seen.connection_class is redis.SSLConnection
    assert (kept["host"], kept["port"], kept["db"]) == ("h", 1234, "5")
    assert (kept["username"], kept["password"], kept["client_name"]) == ("u", "p", "me")
    assert (seen.timeout, kept["socket_connect_timeout"]) == (2.5, 1.5)
    assert (kept["protocol"], kept["decode_responses"]) == (2, False)
    connection = seen.connection()
    assert connection.retry._retries == 0
    assert connection.cert_reqs == ssl.CERT_NONE


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_credential_provider_is_asked_for_each_connection(
    servers: ServerPool, colour: str
) -> None:
    server = servers.clean(acl="~fencekit:* &fencekit:* +@all")
    provider = Provider()
    options: dict[str, Any] = {
        "host": server.host,
        "port": server.port,
        "credential_provider": provider,
    }
    if colour == "sync":
        with redis.Redis(**options) as client, DistributedLock(client).hold("job", ttl=LONG):
            assert server.call("EXISTS", "fencekit:{job}:lock") == 1
    else:
        async with (
            redis.asyncio.Redis(**options) as client,
            AsyncDistributedLock(client).hold("job", ttl=LONG),
        ):
            assert server.call("EXISTS", "fencekit:{job}:lock") == 1
    assert provider.asked


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("fails_at", [1, 2], ids=["acquire", "renewal"])
async def test_a_credential_provider_that_fails_once_costs_nothing(
    servers: ServerPool, colour: str, fails_at: int
) -> None:
    """Red before: its error, which is none of the library's, ended the renewals of a lease."""
    server = servers.clean(acl="~fencekit:* &fencekit:* +@all")
    options: dict[str, Any] = {
        "host": server.host,
        "port": server.port,
        "credential_provider": Provider(fails_at),
    }
    lease = timedelta(seconds=0.6)
    if colour == "sync":
        with redis.Redis(**options) as client, DistributedLock(client).hold("job", ttl=lease) as h:
            assert not await asyncio.to_thread(h.lost.wait, 1.2)
    else:
        async with (
            redis.asyncio.Redis(**options) as client,
            AsyncDistributedLock(client).hold("job", ttl=lease) as handle,
        ):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(handle.lost.wait(), 1.2)


def test_the_database_of_the_client_is_used(redis_url: str, redis_client: Any) -> None:
    with opened(redis_url[:-1] + "7") as client, DistributedLock(client).hold("job", ttl=LONG):
        assert client.exists("fencekit:{job}:lock")
        assert not redis_client.exists("fencekit:{job}:lock")


@pytest.mark.parametrize("db", [0, 5])
def test_no_int_is_sent_to_choose_the_database(db: int) -> None:
    """Red where hiredis asks for its repr: a handler that raises there ends the interpreter."""
    connection = describe(redis.Redis(db=db), "sync").connection()
    sent: list[tuple[Any, ...]] = []
    connection.send_command = lambda *args, **_: sent.append(args)
    connection.read_response = lambda *_, **__: b"OK"
    connection.on_connect()
    assert [args for args in sent if args[0] == "SELECT"] == ([("SELECT", "5")] if db else [])
    assert not any(isinstance(arg, int) for args in sent for arg in args)


def test_clients_of_replicas_are_refused() -> None:
    sync = _SENTINEL([("127.0.0.1", 1)]).slave_for("m")
    with pytest.raises(TypeError, match="master_for"):
        DistributedLock(sync)
    asynchronous = _ASYNC_SENTINEL([("127.0.0.1", 1)]).slave_for("m")
    with pytest.raises(TypeError, match="master_for"):
        AsyncDistributedLock(asynchronous)


def test_what_is_no_client_is_refused() -> None:
    for thing in (None, "redis://localhost", object(), redis.ConnectionPool()):
        with pytest.raises(TypeError, match="expected a client"):
            DistributedLock(thing)


@pytest.mark.parametrize(("family", "library"), [("redis", redis), ("valkey", valkey)])
def test_the_users_hook_comes_after_the_handshake_of_a_cluster(
    cluster_server: Cluster, family: str, library: Any
) -> None:
    """Red before: the hook took the place of the handshake, so that no AUTH was sent."""
    called: list[Any] = []
    for node in cluster_server.nodes:
        node.call("ACL", "SETUSER", "hooked", "reset", "on", ">pw", "+@all", "~*", "&*")
    kind = library.RedisCluster if family == "redis" else library.ValkeyCluster
    options = {f"{family}_connect_func": called.append}
    client = kind(
        host="127.0.0.1",
        port=cluster_server.nodes[0].port,
        username="hooked",
        password="pw",  # noqa: S106
        **options,
    )
    before = len(called)
    with DistributedLock(client).hold("job", ttl=LONG):
        assert len(called) > before
        users = b"".join(node.call("CLIENT", "LIST") for node in cluster_server.nodes)
        assert b"user=hooked" in users
    client.close()
