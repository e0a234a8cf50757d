"""Make clients of every family, colour, protocol and topology in one place, and close them."""

from __future__ import annotations

import importlib
import inspect
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["Colour", "Family", "Topology", "aclose", "aopened", "close", "got", "make", "opened"]

Colour = Literal["sync", "async"]
Family = Literal["redis", "valkey"]
Topology = Literal["single", "cluster", "sentinel"]

_CLASSES = {"redis": ("Redis", "RedisCluster"), "valkey": ("Valkey", "ValkeyCluster")}
# The Sentinel connections behind a client, which it does not close by itself.
_WATCHERS = "_harness_sentinel_clients"


async def got(value: Any) -> Any:
    """What a method returned: of the sync colour as it is, of the async one awaited."""
    return await value if inspect.isawaitable(value) else value


def make(
    url: str,
    *,
    colour: Colour = "sync",
    resp: Literal[2, 3] = 2,
    decode: bool = False,
    family: Family = "redis",
    topology: Topology = "single",
    retries: int | None = None,
    **options: Any,
) -> Any:
    """Return a client; whoever made it closes it with `close` or `aclose`.

    Args:
        url: As a server, proxy, cluster or group of Sentinels gives it.
        colour: Whether its methods block or are awaited.
        resp: The protocol's version.
        decode: Whether replies are `str` rather than `bytes`.
        family: Whose library.
        topology: What the URL leads to.
        retries: How often the client re-sends after a connection error. By default as the library
            has it, and redis-py's `from_url`, unlike `Redis(host=…)`, never re-sends.
        options: Further arguments for the client, which keeps its own defaults otherwise.
    """
    options = {"protocol": resp, "decode_responses": decode, **options}
    if retries is not None:
        options["retry"] = _retry(colour, family, retries)
    module = importlib.import_module(f"{family}.asyncio" if colour == "async" else family)
    single, cluster = _CLASSES[family]
    if topology == "sentinel":
        return _behind_sentinels(url, colour, family, options)
    return getattr(module, cluster if topology == "cluster" else single).from_url(url, **options)


def _retry(colour: Colour, family: Family, retries: int) -> Any:
    name = f"{family}.asyncio.retry" if colour == "async" else f"{family}.retry"
    backoff = importlib.import_module(f"{family}.backoff").ConstantBackoff(0.01)
    return importlib.import_module(name).Retry(backoff, retries)


def _behind_sentinels(url: str, colour: Colour, family: Family, options: dict[str, Any]) -> Any:
    name = f"{family}.asyncio.sentinel" if colour == "async" else f"{family}.sentinel"
    hosts, _, service = url.partition("://")[2].partition("/")
    addresses = [
        (host, int(port)) for host, _, port in (h.rpartition(":") for h in hosts.split(","))
    ]
    watchers = importlib.import_module(name).Sentinel(addresses, **options)
    client = watchers.master_for(service)
    setattr(client, _WATCHERS, watchers.sentinels)
    return client


def close(client: Any) -> None:
    """Close a sync client and all its connections."""
    for part in (client, *getattr(client, _WATCHERS, ())):
        part.close()


async def aclose(client: Any) -> None:
    """Close an async client and all its connections."""
    for part in (client, *getattr(client, _WATCHERS, ())):
        await part.aclose()
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        # A cluster client that is to look at the cluster anew, as after an error of a connection,
        # takes itself for closed, and closes nothing.
        for part in ("nodes_cache", "startup_nodes"):
            await nodes.aclose(part)


@contextmanager
def opened(url: str, **options: Any) -> Iterator[Any]:
    """Yield a sync client as `make` does, and close it after the block."""
    client = make(url, colour="sync", **options)
    try:
        yield client
    finally:
        close(client)


@asynccontextmanager
async def aopened(url: str, **options: Any) -> AsyncIterator[Any]:
    """Yield an async client as `make` does, and close it after the block."""
    client = make(url, colour="async", **options)
    try:
        yield client
    finally:
        await aclose(client)
