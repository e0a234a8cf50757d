"""Give every test room the harness's servers, clients and faults as fixtures.

Nothing starts before a test asks for it. Each test process has one default server, cleaned before
every test that uses it; a test that kills, stops or configures its server takes `fresh_server`.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from harness import kinds
from harness.waiting import eventually as wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from harness.kinds import ServerKind
    from harness.postgres import Postgres
    from harness.proxy import Proxy
    from harness.servers import Server
    from harness.statistics import CommandStats
    from harness.topologies import Cluster, Replication, Sentinels


class ServerPool:
    """One running server of each kind and set of options, shared by the tests of a process."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._servers: dict[Any, Any] = {}

    def clean(self, kind: ServerKind | None = None, **options: Any) -> Server:
        """Return the server, as good as new; a test is skipped if it is not installed."""
        from harness.servers import start  # noqa: PLC0415 - the plugin loads in every test run

        chosen = kind or kinds.default_kind()
        skip_unless_installed(chosen)
        key = (chosen.name, tuple(sorted(options.items())))
        server: Server | None = self._servers.get(key)
        if server is None or not server.alive:
            server = self._stack.enter_context(start(chosen, **options))
            self._servers[key] = server
        server.clean()
        return server

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        """Return what was made under this key, made at the first call."""
        if key not in self._servers:
            self._servers[key] = self._stack.enter_context(make())
        return self._servers[key]

    def close(self) -> None:
        """Stop all."""
        self._stack.close()


def skip_unless_installed(kind: ServerKind) -> None:
    """Skip the test, with the reason, where this server is not installed."""
    if kind.find() is None:
        pytest.skip(kind.missing)


class OpenWriters:
    """The stream writers of asyncio that were made here, as long as they live."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # proxies have threads of their own
        self._made: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()

    def watch(self) -> None:
        """Hear of every writer from now on."""
        make = asyncio.StreamWriter.__init__

        def made(writer: asyncio.StreamWriter, *terms: Any, **more: Any) -> None:
            make(writer, *terms, **more)
            with self._lock:
                self._made.add(writer)

        asyncio.StreamWriter.__init__ = made  # type: ignore[assignment, method-assign]

    def any(self) -> bool:
        """Whether one is open."""
        with self._lock:
            return any(not writer.is_closing() for writer in self._made)


_WRITERS = OpenWriters()
_WRITERS.watch()


def pytest_collection_finish() -> None:
    """Have the collector pass over what was there before the first test: modules, 5,000 tests.

    It would take a tenth of a second each time, and many a fixture has it come round at its end.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def forgotten_connections() -> Iterator[None]:
    """Have the collector warn of a connection in the test that forgot it, not in a later one.

    Set up before every other fixture, it is the last to end. It collects only where a connection is
    open, because to collect after each test would cost the whole run half a minute.
    """
    yield
    if _WRITERS.any():
        gc.collect()


@pytest.fixture(scope="session")
def servers() -> Iterator[ServerPool]:
    """Share running servers: `servers.clean(kind, acl=…, tls=…, unixsocket=…)`."""
    pool = ServerPool()
    yield pool
    pool.close()


@pytest.fixture
def server(servers: ServerPool) -> Server:
    """Give the default server, empty."""
    return servers.clean()


@pytest.fixture
def redis_url(server: Server) -> str:
    """Give the URL of the default server, empty."""
    return server.url


@pytest.fixture(params=[pytest.param(kind, id=kind.name) for kind in kinds.ALL_KINDS])
def any_server(request: pytest.FixtureRequest, servers: ServerPool) -> Server:
    """Run the test on each kind of server, empty; those not installed are skipped."""
    return servers.clean(request.param)


@pytest.fixture
def fresh_server() -> Iterator[Server]:
    """Give the test a server of its own, to kill, pause, restart or configure."""
    from harness.servers import start  # noqa: PLC0415

    with start() as server:
        yield server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """Stand between clients and the default server; add faults to it."""
    from harness.proxy import Proxy  # noqa: PLC0415

    with Proxy.before(server) as proxy:
        yield proxy


@pytest.fixture
def redis_client(server: Server) -> Iterator[Any]:
    """Give a stock sync client of the default server."""
    from harness.clients import opened  # noqa: PLC0415

    with opened(server.url) as client:
        yield client


@pytest_asyncio.fixture
async def async_redis_client(server: Server) -> AsyncIterator[Any]:
    """Give a stock async client of the default server."""
    from harness.clients import aopened  # noqa: PLC0415

    async with aopened(server.url) as client:
        yield client


@pytest.fixture
def cluster_server(servers: ServerPool) -> Cluster:
    """Give a cluster of three masters, empty, shared by the tests of a process."""
    from harness.topologies import cluster  # noqa: PLC0415

    shared: Cluster = servers.shared("cluster", cluster)
    shared.clean()
    return shared


@pytest.fixture
def proxied_cluster(servers: ServerPool) -> Cluster:
    """Give a cluster that clients reach through a proxy before each node, without faults."""
    from harness.topologies import cluster  # noqa: PLC0415

    shared: Cluster = servers.shared("proxied cluster", lambda: cluster(proxied=True))
    shared.clean()
    return shared


@pytest.fixture
def sentinel_server() -> Iterator[Sentinels]:
    """Give the test a primary, two replicas and a Sentinel of its own."""
    from harness.topologies import sentinel  # noqa: PLC0415

    with sentinel() as group:
        yield group


@pytest.fixture
def replicated_server() -> Iterator[Replication]:
    """Give the test a primary of its own with one replica that can be stalled and promoted."""
    from harness.topologies import primary_with_replicas  # noqa: PLC0415

    with primary_with_replicas() as group:
        yield group


@pytest.fixture(scope="session")
def postgres(servers: ServerPool) -> Postgres:
    """Give a PostgreSQL server, shared by the tests of a process, which make databases on it."""
    from harness import postgres  # noqa: PLC0415

    if not postgres.installed():
        pytest.skip(postgres.MISSING)
    shared: Postgres = servers.shared("postgres", postgres.start)
    return shared


@pytest.fixture
def commandstats(server: Server) -> CommandStats:
    """Count the commands that the default server gets from here on."""
    from harness.statistics import CommandStats  # noqa: PLC0415

    return CommandStats(server)


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Give `harness.waiting.eventually`."""
    return wait_until
