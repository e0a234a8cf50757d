"""From a URL to a client, whatever stands behind it: a server, a cluster, Sentinels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from fencekit.cli.codes import Complaint, ExitCode
from fencekit.drivers.sync import SyncDriver

__all__ = ["Target", "connected"]

Topology = Literal["single", "cluster", "sentinel"]

_TIMEOUTS = {"socket_timeout": 5.0, "socket_connect_timeout": 3.0}
_SENTINEL = ("redis+sentinel", "rediss+sentinel")


@dataclass(frozen=True)
class Target:
    """Where a command looks.

    Attributes:
        client: a sync client.
        topology: what the URL leads to.
        shown: the URL without anything secret.
    """

    client: Any
    topology: Topology
    shown: str

    def nodes(self) -> list[tuple[str, Any]]:
        """A name and a client for each server that takes writes."""
        if self.topology != "cluster":
            return [(self.shown, self.client)]
        primaries = sorted(self.client.get_primaries(), key=lambda node: str(node.name))
        return [(str(node.name), self.client.get_redis_connection(node)) for node in primaries]


@contextmanager
def connected(url: str) -> Iterator[Target]:
    """Connect, find out what the URL leads to, and close everything after the block.

    Raises:
        Complaint: not the URL of a server.
        redis.RedisError: the server cannot be reached, or refuses.
    """
    scheme = url.partition("://")[0]
    # Whatever is wrong with a URL is told without quoting it: it may hold a password.
    try:
        _check_encoding(url)
        client = _behind_sentinels(url) if scheme in _SENTINEL else _single(url)
    except (ValueError, TypeError, AttributeError):
        raise Complaint(
            "the URL makes no sense; it is like redis://user:password@host:6379/0, rediss://… with "
            "TLS, unix:///path/to/socket, or redis+sentinel://host:26379,host:26379/service, and "
            "what is not a letter or digit of a password is written as %2F and the like",
            ExitCode.USAGE,
        ) from None
    topology: Topology = "sentinel" if scheme in _SENTINEL else "single"
    shown = _shown(client, scheme, url)
    if topology == "single" and _is_cluster(client):
        client.close()
        topology = "cluster"
        # A hole is what doctor is asked about.
        client = RedisCluster.from_url(url, require_full_coverage=False, **_TIMEOUTS)
    try:
        yield Target(client, topology, shown)
    finally:
        with suppress(Exception):
            SyncDriver.of(client).close()
            client.close()


def _check_encoding(url: str) -> None:
    """Refuse a password with a ``/``, ``?`` or ``#`` that is not encoded: half of it is an address.

    Raises:
        ValueError: there is one.
    """
    parts = urlsplit(url)
    if "@" in parts.path + parts.query + parts.fragment:
        raise ValueError("an @ behind the address")


def _single(url: str) -> Any:
    return Redis.from_url(url, **_TIMEOUTS)


def _is_cluster(client: Any) -> bool:
    """Whether it is a node of a cluster; asked with what the smallest ACL allows there."""
    try:
        client.execute_command("CLUSTER SLOTS")
    except ResponseError:  # disabled, forbidden, unknown
        return False
    return True


def _behind_sentinels(url: str) -> Any:
    parts = urlsplit(url)
    userinfo, _, hosts = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    service, _, db = parts.path.strip("/").partition("/")
    if not service or not hosts:
        raise ValueError("no service")
    addresses = []
    for host in hosts.split(","):
        name, _, port = host.rpartition(":")
        addresses.append((name, int(port)) if name else (port, 26379))
    asked = dict(parse_qsl(parts.query))
    tls = {"ssl": True} if parts.scheme == "rediss+sentinel" else {}
    # Whether to ask once more is for the person who asks.
    once = {**_TIMEOUTS, **tls, "retry": Retry(NoBackoff(), 0)}
    watchers = {
        "username": asked.get("sentinel_username"),
        "password": asked.get("sentinel_password"),
        **once,
    }
    make: Any = Sentinel  # untyped
    return make(
        addresses,
        sentinel_kwargs=watchers,
        username=unquote(user) or None,
        password=unquote(password) or None,
        db=int(db or 0),
        **once,
    ).master_for(service)


def _shown(client: Any, scheme: str, url: str) -> str:
    """The address out of what the client made of the URL, never out of the URL's own text."""
    if scheme in _SENTINEL:
        parts = urlsplit(url)
        return f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    settings = client.connection_pool.connection_kwargs
    if "path" in settings:
        return f"unix://{settings['path']}?db={settings.get('db', 0)}"
    host, port = settings.get("host", "localhost"), settings.get("port", 6379)
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{port}/{settings.get('db', 0)}"
