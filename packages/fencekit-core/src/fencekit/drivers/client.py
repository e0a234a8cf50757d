"""What kind of client was given, and how to connect as it does.

Every connection of fencekit is its own, made of the given client's connection class and settings
(TLS, credentials, socket path, database, Sentinel), so that the application's pool is never
drained, with two differences: RESP2, because what scripts answer is the same in both and
subscriptions then need no push parser; and no retries of the library's own, because a command that
is sent again must be counted.
"""

from __future__ import annotations

from binascii import crc_hqx
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fencekit.drivers.sentinel import AsyncWatch, Watch

__all__ = ["Address", "Client", "describe", "slot_of"]

DEFAULT_TIMEOUT = 5.0
_SLOTS = 16384
# They have their client's pool. But what a lock asks is answered at once, in no pipeline.
_MADE_OF_CLIENTS = frozenset({"Pipeline", "ClusterPipeline", "PubSub", "ClusterPubSub", "Monitor"})

# Settings that only concern what we leave out: push notifications, retries, other encodings.
_DROPPED = frozenset(
    {
        "retry",
        "retry_on_error",
        "retry_on_timeout",
        "health_check_interval",
        "parser_class",
        "command_packer",
        "maint_notifications_config",
        "maint_notifications_pool_handler",
        "oss_cluster_maint_notifications_handler",
        "maintenance_state",
        "maintenance_notification_hash",
        "orig_host_address",
        "orig_socket_timeout",
        "orig_socket_connect_timeout",
        "himport_registry",
        "legacy_responses",
        "response_callbacks",
        "server_type",
    }
)


class Address(NamedTuple):
    """A node of a cluster."""

    host: str
    port: int


@dataclass(frozen=True)
class Client:
    """A client as the drivers see it. Holds no reference to it.

    Attributes:
        colour: "sync" or "async".
        kind: "single" (also a unix socket), "sentinel" or "cluster".
        connection_class: what makes a connection.
        settings: its keyword arguments, made ours.
        timeout: seconds a command may take.
        share: the most connections that the sync driver keeps for commands.
        seeds: the nodes of a cluster that the client was given.
        remap: the client's own translation of node addresses, or None.
    """

    colour: Literal["sync", "async"]
    kind: Literal["single", "sentinel", "cluster"]
    connection_class: Any
    settings: dict[str, Any]
    timeout: float
    share: int
    seeds: tuple[Address, ...] = ()
    remap: Any = field(default=None, compare=False)

    def connection(self, timeout: float | None = None, address: Address | None = None) -> Any:
        """Make a connection of the library's, not yet connected."""
        settings = dict(self.settings)
        settings["socket_timeout"] = timeout or self.timeout
        if timeout is not None:
            settings["socket_connect_timeout"] = min(settings["socket_connect_timeout"], timeout)
        if address is not None:
            settings["host"], settings["port"] = address
        return self.connection_class(**settings)


def describe(client: Any, colour: Literal["sync", "async"]) -> Client:
    """Look at a client and refuse what is none, or one of the other colour.

    Raises:
        TypeError: not a redis-py or valkey-py client, or an async one where a sync one is wanted,
            or the reverse.
    """
    library, found = _library(client)
    if found != colour:
        article = {"async": "an async", "sync": "a sync"}
        msg = (
            f"{type(client).__module__}.{type(client).__name__} is {article[found]} client: give "
            f"it to the {found} class, or give this one {article[colour]} client"
        )
        raise TypeError(msg)
    if hasattr(client, "nodes_manager"):
        return _describe_cluster(client, library, colour)
    pool = client.connection_pool
    kind: Literal["single", "sentinel"] = (
        "sentinel" if hasattr(pool, "sentinel_manager") else "single"
    )
    settings, timeout = _ours(pool.connection_kwargs)
    if kind == "sentinel":
        if not pool.is_master:
            msg = "a client of Sentinel's replicas cannot write: give one made by master_for()"
            raise TypeError(msg)
        settings["connection_pool"] = Watch(pool) if colour == "sync" else AsyncWatch(pool)
    return Client(
        colour=colour,
        kind=kind,
        connection_class=pool.connection_class,
        settings=settings,
        timeout=timeout,
        share=max(1, min(getattr(pool, "max_connections", None) or 2, 128) // 2),
    )


def slot_of(key: str) -> int:
    """The Cluster slot of a key: CRC-16/XMODEM of its hash tag, or of all of it."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % _SLOTS


def _library(client: Any) -> tuple[str, Literal["sync", "async"]]:
    hint = ""
    for base in type(client).__mro__:
        head, _, rest = base.__module__.partition(".")
        if head not in {"redis", "valkey"}:
            continue
        if base.__name__ in _MADE_OF_CLIENTS:
            hint = "; give the client that it was made of, for nothing is sent through it"
            break
        if hasattr(client, "connection_pool") or hasattr(client, "nodes_manager"):
            return head, "async" if rest.startswith("asyncio") else "sync"
    msg = (
        f"expected a client of redis-py or valkey-py, not {type(client).__module__}."
        f"{type(client).__name__}{hint}"
    )
    raise TypeError(msg)


class _ConnectHook:
    """A cluster client calls its user's hook after its own handshake, a connection in its place."""

    def __init__(self, hook: Any) -> None:
        self._hook = hook

    def __call__(self, connection: Any) -> None:
        connection.on_connect()
        self._hook(connection)


def _describe_cluster(client: Any, library: str, colour: Literal["sync", "async"]) -> Client:
    manager = client.nodes_manager
    nodes = list(manager.startup_nodes.values())
    if colour == "async":
        connection_class = nodes[0].connection_class
        raw = dict(nodes[0].connection_kwargs)
    else:
        # Any node will do: the client makes its pool of the settings we need.
        seed = next(iter((*manager.nodes_cache.values(), *nodes)))
        pool = getattr(client, f"get_{library}_connection")(seed).connection_pool
        connection_class, raw = pool.connection_class, dict(pool.connection_kwargs)
    # The cluster client's own hook asks for READONLY and keeps the client alive.
    raw.pop(f"{library}_connect_func", None)
    hook = getattr(client, "user_on_connect_func", None)
    if hook is not None:
        raw[f"{library}_connect_func"] = _ConnectHook(hook)
    settings, timeout = _ours(raw)
    return Client(
        colour=colour,
        kind="cluster",
        connection_class=connection_class,
        settings=settings,
        timeout=timeout,
        share=16,
        seeds=tuple(Address(node.host, int(node.port)) for node in nodes),
        remap=getattr(manager, "address_remap", None),
    )


def _ours(raw: dict[str, Any]) -> tuple[dict[str, Any], float]:
    settings = {name: value for name, value in raw.items() if name not in _DROPPED}
    timeout = float(settings.get("socket_timeout") or DEFAULT_TIMEOUT)
    settings["protocol"] = 2
    settings["decode_responses"] = False
    if settings.get("db"):
        # It is sent as it stands, and of an int hiredis asks for the repr, where a signal's handler
        # may raise: that ends the interpreter.
        settings["db"] = str(settings["db"])
    settings.setdefault("socket_connect_timeout", timeout)
    if settings["socket_connect_timeout"] is None:
        settings["socket_connect_timeout"] = timeout
    return settings, timeout
