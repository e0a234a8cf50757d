"""Caches of both colours alike: what a method returns goes through `got`, which may await it."""

from __future__ import annotations

import asyncio
import threading
import time
import types
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from pydantic import BaseModel
from redis.exceptions import RedisClusterException, RedisError

from fencekit.cache import GenericCache, SyncGenericCache
from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.sync import SyncDriver
from harness import clients
from harness.clients import Colour, Topology, got
from harness.waiting import cancelled

__all__ = [
    "Beside",
    "Gate",
    "Kit",
    "Loader",
    "PlainCache",
    "Profile",
    "got",
    "opened_kit",
    "tagged",
    "tags_of",
]

_PATIENCE = 20.0


class Profile(BaseModel):
    """What most tests cache."""

    id: int
    name: str = "Ada"


def tags_of(choose: Callable[[str], Any]) -> Callable[[Any, str], Any]:
    """Make a class's `tags` of a function of the key."""

    def tags(_: Any, key: str) -> Any:
        return choose(key)

    return tags


def tagged(*tags: str) -> Callable[[Any, str], Any]:
    """Make a class's `tags` that are the same for every key."""
    return tags_of(lambda _: tags)


class Loader:
    """A load that counts its calls; of either colour.

    Attributes:
        calls: how often it was called.
        value: what it returns: a value, or an exception to raise.
        seconds: how long it takes.
    """

    def __init__(self, kit: Kit, value: Any, seconds: float = 0.0) -> None:
        self.kit = kit
        self.value = value
        self.seconds = seconds
        self.calls = 0
        self.keys: list[Any] = []

    def __call__(self, keys: Any = None) -> Any:
        self.calls += 1
        self.keys.append(keys)
        return self._async() if self.kit.is_async else self._sync()

    async def _async(self) -> Any:
        value = self.value  # read at the beginning, as a query is
        await asyncio.sleep(self.seconds)
        return self._return(value)

    def _sync(self) -> Any:
        value = self.value
        time.sleep(self.seconds)
        return self._return(value)

    @staticmethod
    def _return(value: Any) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value


class Gate(Loader):
    """A load that stands still until it is opened.

    Attributes:
        entered: set when the load has begun.
    """

    def __init__(self, kit: Kit, value: Any) -> None:
        super().__init__(kit, value)
        self.entered = threading.Event()
        self.opened = threading.Event()

    async def _async(self) -> Any:
        value = self.value
        self.entered.set()
        while not self.opened.is_set():  # noqa: ASYNC110 - a thread may open it
            await asyncio.sleep(0.002)
        return self._return(value)

    def _sync(self) -> Any:
        value = self.value
        self.entered.set()
        assert self.opened.wait(_PATIENCE)
        return self._return(value)


class Beside:
    """A body that runs beside the test: in a thread, or in a task."""

    def __init__(self, kit: Kit, call: Callable[[], Any]) -> None:
        self._kit = kit
        self._value: Any = None
        self._error: BaseException | None = None
        if kit.is_async:
            self.task = asyncio.get_running_loop().create_task(self._await(call))
        else:
            self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
            self._thread.start()

    async def _await(self, call: Callable[[], Any]) -> Any:
        return await got(call())

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._value = call()
        except BaseException as error:  # noqa: BLE001 - told to whoever asks
            self._error = error

    async def result(self) -> Any:
        if self._kit.is_async:
            return await asyncio.wait_for(self.task, _PATIENCE)
        await asyncio.to_thread(self._thread.join, _PATIENCE)
        assert not self._thread.is_alive(), "the body beside the test hangs"
        if self._error is not None:
            raise self._error
        return self._value


class Kit:
    """Caches of one colour on one server.

    Attributes:
        colour: sync or async.
        url: of the server.
        client: the client that the caches are given.
    """

    def __init__(
        self, colour: Colour, url: str, topology: Topology = "single", **options: Any
    ) -> None:
        self.colour = colour
        self.url = url
        self.topology = topology
        self._options = options
        self._clients: list[Any] = []
        self._beside: list[Beside] = []
        self.client = self.another_client()

    @property
    def is_async(self) -> bool:
        return self.colour == "async"

    @property
    def base(self) -> Any:
        return GenericCache if self.is_async else SyncGenericCache

    @property
    def driver(self) -> Any:
        return (AsyncDriver if self.is_async else SyncDriver).of(self.client)

    def another_client(self, url: str | None = None, **options: Any) -> Any:
        client = clients.make(
            url or self.url,
            colour=self.colour,
            topology=self.topology,
            **{**self._options, **options},
        )
        self._clients.append(client)
        return client

    def declare(self, kind: Any = Profile, **attributes: Any) -> Any:
        """Define a class of cache and make one."""
        attributes.setdefault("redis_client", self.client)
        attributes.setdefault("ttl", 60)
        made = types.new_class(
            "TestedCache", (self.base[kind],), exec_body=lambda space: space.update(attributes)
        )
        return made()

    def loader(self, value: Any, seconds: float = 0.0) -> Loader:
        return Loader(self, value, seconds)

    def gate(self, value: Any) -> Gate:
        return Gate(self, value)

    def start(self, call: Callable[[], Any]) -> Beside:
        self._beside.append(Beside(self, call))
        return self._beside[-1]

    async def entered(self, gate: Gate) -> None:
        await self.until(gate.entered.is_set)

    async def until(self, condition: Callable[[], Any], timeout: float = 5.0) -> None:
        deadline = time.monotonic() + timeout
        while not await got(condition()):
            assert time.monotonic() < deadline, f"not within {timeout} s"
            await asyncio.sleep(0.002)

    async def close(self) -> None:
        # What a scenario that failed left running would connect once more, and nobody would close
        # that: the sockets were collected in whatever test came next.
        await cancelled(*(body.task for body in self._beside if self.is_async))
        for client in self._clients:
            if self.is_async:
                await AsyncDriver.of(client).aclose()
                await clients.aclose(client)
            else:
                SyncDriver.of(client).close()
                clients.close(client)


class PlainCache:
    """Plain cache-aside, async, as most applications write it: what each case is first shown on.

    The methods that take part have the names of `GenericCache`'s. Errors of Redis are swallowed,
    tags are counters that an entry remembers, and keys are found with a pattern.
    """

    def __init__(self, client: Any, kind: Any = Profile, ttl: float = 60, *tags: str) -> None:
        self.client = client
        self.kind = kind
        self.ttl = ttl
        self.tags = tags

    async def get(self, key: Any) -> Any:
        raw = await self.client.get(f"plain:{key}")
        return None if raw is None else await self._read(raw)

    async def create(self, key: Any, value: Any) -> None:
        text = f"{await self._versions()}|{value.model_dump_json()}"
        with suppress(RedisError, RedisClusterException):
            await self.client.set(f"plain:{key}", text, ex=self.ttl)

    async def get_or_load(self, key: Any, load: Callable[[], Any]) -> Any:
        value = await self.get(key)
        if value is None:
            value = await got(load())
            if value is not None:
                await self.create(key, value)
        return value

    async def invalidate(self, *keys: Any) -> None:
        for key in keys:
            with suppress(RedisError, RedisClusterException):
                await self.client.delete(f"plain:{key}")

    async def get_list(self, key_prefix: str, *, boundary: str = "") -> list[Any]:
        del boundary
        raws = [await self.client.get(key) for key in await self._found(key_prefix)]
        return [await self._read(raw) for raw in raws]

    async def delete_by_filters(self, key_prefix: str, *, boundary: str = "") -> None:
        del boundary
        for key in await self._found(key_prefix):
            await self.client.delete(key)

    async def _read(self, raw: Any) -> Any:
        text: str = raw if isinstance(raw, str) else raw.decode()
        versions, _, body = text.partition("|")
        if versions != await self._versions():
            return None
        return self.kind.model_validate_json(body)

    async def _versions(self) -> str:
        counts = [await self.client.get(f"plain:tag:{tag}") for tag in self.tags]
        return ",".join("1" if count is None else count.decode() for count in counts)

    async def _found(self, key_prefix: str) -> list[Any]:
        return sorted([key async for key in self.client.scan_iter(f"plain:{key_prefix}*")])


@asynccontextmanager
async def opened_kit(
    colour: Colour, url: str, topology: Topology = "single", **options: Any
) -> AsyncIterator[Kit]:
    """Yield a kit, whose clients have these options, and close it."""
    kit = Kit(colour, url, topology, **options)
    try:
        yield kit
    finally:
        await kit.close()
