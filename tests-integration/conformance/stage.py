"""What the conformance suite runs on: servers of a topology, clients of every make, an adapter.

A test body is written once, as a coroutine, for both colours. What a method of fencekit returns
goes through `got`: a sync method has done its work by then, an async one is awaited::

    handle = await got(lock.acquire("invoices", ttl=SHORT))
    async with entered(lock.hold("invoices", ttl=SHORT)) as handle:
        ...

`Rig.start` runs a body beside the test: in a thread for the sync colour, in a task for the async.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import pytest

from conformance.columns import Profile
from fencekit import (
    AsyncDistributedLock,
    AsyncFenceGate,
    AsyncIdempotencyGuard,
    DistributedLock,
    FenceGate,
    IdempotencyGuard,
)
from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.sync import SyncDriver
from fencekit.fifo import FifoLock, SyncFifoLock
from harness.clients import Colour, Family, aclose, close, got, make
from harness.servers import ACL_PASSWORD, ACL_USER, Server, start
from harness.topologies import cluster, sentinel
from harness.waiting import cancelled
from harness.wire import ReplyError

__all__ = [
    "LONG",
    "SHORT",
    "Backend",
    "Rig",
    "Running",
    "Site",
    "Stage",
    "drive",
    "entered",
    "got",
    "ms",
]

_PATIENCE = 20.0  # for a body beside the test, seconds


def ms(milliseconds: float) -> timedelta:
    """So many milliseconds."""
    return timedelta(milliseconds=milliseconds)


LONG, SHORT = timedelta(seconds=30), ms(150)


@asynccontextmanager
async def entered(manager: Any) -> AsyncIterator[Any]:
    """A context manager of either colour."""
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


def drive(body: Coroutine[Any, Any, Any]) -> Any:
    """Run a body of the sync colour, which awaits nothing that is not there already."""
    try:
        body.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a body of the sync colour must not wait for a loop")


class Running:
    """A body that runs beside the test."""

    async def result(self) -> Any:
        """What it returned; raises what it raised."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        raise NotImplementedError


class _Thread(Running):
    def __init__(self, body: Coroutine[Any, Any, Any]) -> None:
        self._body = body
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = drive(self._body)
        except BaseException as error:  # noqa: BLE001 - told to whoever asks
            self._error = error

    async def result(self) -> Any:
        self._thread.join(_PATIENCE)
        assert self.done, "the body beside the test hangs"
        if self._error is not None:
            raise self._error
        return self._value

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()


class _Task(Running):
    def __init__(self, body: Coroutine[Any, Any, Any]) -> None:
        self.task = asyncio.get_running_loop().create_task(body)

    async def result(self) -> Any:
        return await asyncio.wait_for(self.task, _PATIENCE)

    @property
    def done(self) -> bool:
        return self.task.done()


@dataclass
class Site:
    """Where clients connect.

    Attributes:
        url: for `harness.clients.make`.
        topology: what the URL leads to, as `make` calls it.
        options: further arguments for clients.
    """

    url: str
    topology: Literal["single", "sentinel", "cluster"] = "single"
    options: dict[str, Any] = field(default_factory=dict)


class Backend(Site):
    """Servers of one kind in one topology."""

    def __init__(self, profile: Profile, stack: ExitStack) -> None:
        super().__init__("")
        kind, acl = profile.kind, profile.acl
        self.acl = acl
        # Where it is ours to let the user in; a server alone does that itself.
        self._users_at: list[Server] = []
        if profile.topology == "cluster":
            group = stack.enter_context(cluster(kind))
            self.url, self.topology = group.url, "cluster"
            self.data_servers: Callable[[], list[Server]] = lambda: group.nodes
            self._users_at = group.nodes
        elif profile.topology == "sentinel":
            # Nothing is to fail over here, however busy the machine, or cut off the Sentinel.
            watched = stack.enter_context(sentinel(kind, down_after_ms=30_000))
            self.url, self.topology = watched.url, "sentinel"
            self.data_servers = lambda: [watched.primary()]
            self._users_at = watched.servers
        else:
            server = stack.enter_context(
                start(
                    kind,
                    unixsocket=profile.topology == "unix",
                    tls=profile.topology == "tls",
                    acl=acl,
                )
            )
            self.url = server.url
            self.data_servers = lambda: [server]

        if acl is not None and self._users_at:
            self.options = {"username": ACL_USER, "password": ACL_PASSWORD}

    def clean(self) -> None:
        """Make it as good as new; its user has the rules of the profile, and no more."""
        for server in self.data_servers():
            server.clean()
        if self.acl is not None:
            for server in self._users_at:
                rules = ["on", f">{ACL_PASSWORD}", *self.acl.split()]
                server.call("ACL", "SETUSER", ACL_USER, "reset", "resetchannels", *rules)

    def allow(self, *rules: str) -> None:
        """Let the user do more, until the end of the test; nothing where anybody may do all."""
        if self.acl is not None:
            for server in self.data_servers():
                server.call("ACL", "SETUSER", ACL_USER, *rules)

    def forget_scripts(self) -> None:
        """Do what a restart or a failover does to scripts."""
        for server in self.data_servers():
            server.call("SCRIPT", "FLUSH")

    def lose_data(self) -> None:
        """Lose everything."""
        for server in self.data_servers():
            server.call("FLUSHALL")

    def drop_connections(self) -> None:
        """Close every client's connection, as a proxy's idle timeout does."""
        for server in self.data_servers():
            server.call("CLIENT", "KILL", "TYPE", "normal")
            server.call("CLIENT", "KILL", "TYPE", "pubsub")


class Stage:
    """The servers of one profile at a time: tests come sorted by stage."""

    def __init__(self) -> None:
        self._name = ""
        self._stack = ExitStack()
        self._backend: Backend | None = None

    def backend(self, profile: Profile) -> Backend:
        """The servers of a profile, as good as new."""
        if profile.kind.find() is None:
            pytest.skip(profile.kind.missing)
        if self._backend is None or profile.stage != self._name:
            self.close()
            self._backend = Backend(profile, self._stack)
            self._name = profile.stage
        self._backend.clean()
        return self._backend

    def close(self) -> None:
        """Stop the servers."""
        self._backend, self._name = None, ""
        self._stack.close()


class Rig:
    """The clients of one test, and fencekit's objects on them.

    Attributes:
        site: where they connect.
        options: what else clients are made with.
        client: a client of the make.
        is_async: the colour.
    """

    def __init__(
        self,
        site: Site,
        colour: Colour,
        *,
        family: Family = "redis",
        resp: Literal[2, 3] = 2,
        decode: bool = False,
    ) -> None:
        self.site = site
        self.colour: Colour = colour
        self.family: Family = family
        self.is_async = colour == "async"
        self.options: dict[str, Any] = {
            "family": family,
            "resp": resp,
            "decode": decode,
            **site.options,
        }
        self._clients: list[Any] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self.client = self.another_client()

    @classmethod
    def of(cls, profile: Profile, backend: Backend) -> Rig:
        """Make the clients of a profile."""
        return cls(
            backend,
            profile.colour,
            family=profile.family,
            resp=profile.resp,
            decode=profile.decode,
        )

    @property
    def backend(self) -> Backend:
        """The servers, where the suite started them."""
        assert isinstance(self.site, Backend)
        return self.site

    def another_client(self, **options: Any) -> Any:
        """Make a further client, as another process would have."""
        client = make(
            self.site.url,
            colour=self.colour,
            topology=self.site.topology,
            **{**self.options, **options},
        )
        self._clients.append(client)
        return client

    def lock(self, client: Any = None, **options: Any) -> Any:
        """A lock of the colour."""
        kind: Any = AsyncDistributedLock if self.is_async else DistributedLock
        return kind(client or self.client, **options)

    def gate(self, client: Any = None, **options: Any) -> Any:
        """A gate of the colour."""
        kind: Any = AsyncFenceGate if self.is_async else FenceGate
        return kind(client or self.client, **options)

    def guard(self, client: Any = None, **options: Any) -> Any:
        """A guard of the colour."""
        kind: Any = AsyncIdempotencyGuard if self.is_async else IdempotencyGuard
        return kind(client or self.client, **options)

    def fifo(self, client: Any = None, name: str = "job") -> Any:
        """A FIFO lock of the colour."""
        kind: Any = FifoLock if self.is_async else SyncFifoLock
        return kind(client or self.client, name)

    def target(self, resource: str) -> str:
        """A key of the application's beside a resource, which every ACL and cluster allows."""
        return f"fencekit:app:{{{resource}}}:status"

    def ask(self, command: str, key: str, *words: str) -> Any:
        """What a server answers, whatever the client's user may do."""
        for server in self.backend.data_servers():
            try:
                reply = server.call(command, key, *words)
            except ReplyError as error:
                if not str(error).startswith("MOVED"):
                    raise
            else:
                return reply.decode() if isinstance(reply, bytes) else reply
        raise AssertionError(f"no node has {key}")

    def start(self, body: Coroutine[Any, Any, Any]) -> Running:
        """Run a body beside the test."""
        if not self.is_async:
            return _Thread(body)
        running = _Task(body)
        self._tasks.append(running.task)
        return running

    def run(self, body: Coroutine[Any, Any, Any]) -> Any:
        """Run a body to its end where no loop is running: in a forked child, in a thread."""
        return asyncio.run(body) if self.is_async else drive(body)

    async def sleep(self, seconds: float) -> None:
        """Let time pass for everybody."""
        if self.is_async:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251 - the sync colour blocks

    async def until(self, condition: Callable[[], Any], timeout: float = 5.0) -> None:
        """Return once a condition, sync or async, is true."""
        deadline = time.monotonic() + timeout
        while not await got(condition()):
            assert time.monotonic() < deadline, f"not within {timeout} s"
            await self.sleep(0.005)

    async def close_driver(self, client: Any = None) -> None:
        """Close fencekit's connections for a client."""
        if self.is_async:
            await AsyncDriver.of(client or self.client).aclose()
        else:
            SyncDriver.of(client or self.client).close()

    async def close(self) -> None:
        """Close everything, and before that what could open it again."""
        await cancelled(*self._tasks)
        for client in self._clients:
            await self.close_driver(client)
            if self.is_async:
                await aclose(client)
            else:
                close(client)
