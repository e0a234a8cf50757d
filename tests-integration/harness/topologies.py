"""Start several servers that belong together: a cluster, replicas, Sentinels."""

from __future__ import annotations

import contextlib
import hashlib
from contextlib import ExitStack
from typing import TYPE_CHECKING

from harness.kinds import ServerKind, default_kind
from harness.ports import HOST
from harness.proxy import Proxy
from harness.servers import Server, start
from harness.waiting import eventually
from harness.wire import ReplyError, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

__all__ = [
    "Cluster",
    "Replication",
    "Sentinels",
    "StallableReplica",
    "cluster",
    "follows",
    "in_step",
    "primary_with_replicas",
    "sentinel",
]

_SLOTS = 16384
# The primary sends a file: a streamed copy starts five seconds late, and a replica fed so gets no
# writes until its next heartbeat. The replica loads from the stream: Valkey 9 notices a completed
# file only once a second.
_PRIMARY_ARGS = ("--repl-diskless-sync", "no")
_REPLICA_ARGS = (*_PRIMARY_ARGS, "--repl-diskless-load", "on-empty-db")


class Group:
    """Servers that are stopped together."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def stop(self) -> None:
        """Stop all servers; does nothing in a fork of the test process."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Cluster(Group):
    """A cluster of masters, each with an equal share of the slots.

    Attributes:
        kind: Which server.
        nodes: The masters, in the order of their slots.
        proxies: The proxies before them, in that order, if it was started with proxies.
        url: The first node, or its proxy; clients find the others.
    """

    def __init__(
        self, kind: ServerKind, masters: int, args: Sequence[str], *, proxied: bool
    ) -> None:
        super().__init__()
        self.kind = kind
        self.nodes: list[Server] = []
        self.proxies: list[Proxy] = []
        own = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", *args)
        for _ in range(masters):
            announced: tuple[str, ...] = ()
            if proxied:
                # The proxy comes first, for its port is what the node tells clients.
                self.proxies.append(self._stack.enter_context(Proxy(HOST, 0)))
                announced = ("--cluster-announce-port", str(self.proxies[-1].port))
            node = self._stack.enter_context(start(kind, args=(*own, *announced)))
            self.nodes.append(node)
            if proxied:
                self.proxies[-1].server = (HOST, node.port)
        self.url = self.proxies[0].url if proxied else self.nodes[0].url
        for index, node in enumerate(self.nodes):
            first, last = _SLOTS * index // masters, _SLOTS * (index + 1) // masters
            node.call("CLUSTER", "ADDSLOTS", *range(first, last))
            node.call("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        # Everybody meets everybody, which is faster than waiting for gossip.
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node.call("CLUSTER", "MEET", HOST, other.port)
        eventually(self.is_complete, timeout=15, interval=0.02)

    def is_complete(self) -> bool:
        """Tell whether every node knows all others and serves."""
        for node in self.nodes:
            state = node.call("CLUSTER", "INFO").decode()
            if "cluster_state:ok" not in state:
                return False
            if f"cluster_known_nodes:{len(self.nodes)}\r" not in state:
                return False
        return True

    def node_of(self, key: str) -> Server:
        """Return the node that serves a key."""
        slot = self.nodes[0].call("CLUSTER", "KEYSLOT", key)
        size = len(self.nodes)
        return next(
            node for index, node in enumerate(self.nodes) if slot < _SLOTS * (index + 1) // size
        )

    def proxy_of(self, key: str) -> Proxy:
        """Return the proxy before the node that serves a key."""
        return self.proxies[self.nodes.index(self.node_of(key))]

    def move(self, key: str) -> Server:
        """Move the slot of a key, keys and all, to another node, and return that."""
        slot = self.nodes[0].call("CLUSTER", "KEYSLOT", key)
        source = next(node for node in self.nodes if _serves(node, key))
        target = next(node for node in self.nodes if node is not source)
        self.start_moving(slot, source, target)
        self.finish_moving(slot, source, target)
        return target

    def start_moving(self, slot: int, source: Server, target: Server) -> None:
        """From now on the slot is being migrated."""
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", _node_id(source))
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", _node_id(target))

    def finish_moving(self, slot: int, source: Server, target: Server) -> None:
        """Bring the keys of a slot over and tell everybody."""
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.call("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source, *self.nodes):
            node.call("CLUSTER", "SETSLOT", slot, "NODE", _node_id(target))

    def clean(self) -> None:
        """Make every node as good as new, without changing the slots, and end all faults."""
        for node in self.nodes:
            node.clean()
        for proxy in self.proxies:
            proxy.clear()


def _serves(node: Server, key: str) -> bool:
    try:
        node.call("EXISTS", key)
    except ReplyError:
        return False  # MOVED
    return True


def _node_id(node: Server) -> str:
    identity: bytes = node.call("CLUSTER", "MYID")
    return identity.decode()


class StallableReplica:
    """A replica whose link to its primary can be frozen, and which can then be promoted.

    Attributes:
        server: The replica.
    """

    def __init__(self, primary: Server, kind: ServerKind, stack: ExitStack) -> None:
        self._link = stack.enter_context(Proxy(HOST, primary.port, raw=True))
        args = ("--replicaof", HOST, str(self._link.port))
        self.server = stack.enter_context(start(kind, args=(*args, *_REPLICA_ARGS)))
        eventually(self.is_linked, timeout=10)

    @property
    def url(self) -> str:
        """Where clients connect to the replica."""
        return self.server.url

    def is_linked(self) -> bool:
        """Tell whether it follows its primary."""
        return follows(self.server)

    def stall(self) -> None:
        """Let nothing more arrive from the primary, nor any acknowledgement at it."""
        self._link.freeze()

    def resume(self) -> None:
        """Let the stalled bytes through."""
        self._link.thaw()

    def promote(self) -> Server:
        """Make it a primary with what it has: what was stalled is lost, as in a failover."""
        self._link.cut(refuse_for=3600)
        self.server.call("REPLICAOF", "NO", "ONE")
        return self.server


class Replication(Group):
    """A primary with replicas.

    Attributes:
        primary: The primary.
        replicas: Its replicas, in step when the constructor returns.
        url: The primary.
    """

    def __init__(self, kind: ServerKind, replicas: int, args: Sequence[str]) -> None:
        super().__init__()
        self.primary = self._stack.enter_context(start(kind, args=(*_PRIMARY_ARGS, *args)))
        self.url = self.primary.url
        self.replicas = [StallableReplica(self.primary, kind, self._stack) for _ in range(replicas)]
        eventually(lambda: in_step(self.primary, replicas), timeout=10)


class Sentinels(Group):
    """A primary and replicas watched by Sentinels.

    Attributes:
        service: The name under which the Sentinels know the primary.
        servers: The primary and its replicas; who is who may change.
        sentinels: The Sentinels.
        url: `redis+sentinel://host:port,…/service`, for `clients.make`.
    """

    service = "mymaster"

    def __init__(self, kind: ServerKind, replicas: int, sentinels: int, down_after_ms: int) -> None:
        super().__init__()
        primary = self._stack.enter_context(start(kind, args=_PRIMARY_ARGS))
        self.servers = [primary]
        for _ in range(replicas):
            args = ("--replicaof", HOST, str(primary.port), *_REPLICA_ARGS)
            self.servers.append(self._stack.enter_context(start(kind, args=args)))
        # A Sentinel asks the primary for its replicas at once and then every ten seconds.
        eventually(
            lambda: primary.info("replication")["connected_slaves"] == str(replicas), timeout=10
        )
        quorum = sentinels // 2 + 1
        eventually(lambda: in_step(primary, replicas), timeout=10)
        self.sentinels: list[Server] = []
        for index in range(sentinels):
            config = _sentinel_config(self.service, primary.port, quorum, down_after_ms, index)
            watcher = start(kind, sentinel_config=config)
            self.sentinels.append(self._stack.enter_context(watcher))
        eventually(lambda: self._all_know(replicas, sentinels), timeout=15, interval=0.02)
        hosts = ",".join(f"{HOST}:{watcher.port}" for watcher in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{self.service}"

    def primary(self) -> Server:
        """Return the server that the first Sentinel takes for the primary."""
        address = self.sentinels[0].call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        return next(server for server in self.servers if server.port == int(address[1]))

    def wait_for_failover(self, previous: Server, timeout: float = 15.0) -> Server:
        """Return the new primary, once every Sentinel names it and it accepts writes.

        Raises:
            AssertionError: Nobody is promoted within `timeout` seconds.
        """

        def promoted() -> Server | None:
            with contextlib.suppress(OSError):
                current = self.primary()
                if current is not previous and current.info("replication")["role"] == "master":
                    return current
            return None

        found = eventually(promoted, timeout=timeout, interval=0.02)
        assert found is not None
        return found

    def _all_know(self, replicas: int, sentinels: int) -> bool:
        for watcher in self.sentinels:
            reply = watcher.call("SENTINEL", "MASTER", self.service)
            facts = dict(zip(reply[::2], reply[1::2], strict=True))
            known = int(facts[b"num-slaves"]), int(facts[b"num-other-sentinels"])
            if known != (replicas, sentinels - 1):
                return False
        return True


def cluster(
    kind: ServerKind | None = None,
    masters: int = 3,
    *,
    args: Sequence[str] = (),
    proxied: bool = False,
) -> Cluster:
    """Start a cluster and return when it serves; takes two seconds, which the server insists on.

    Args:
        kind: Which server; the default kind if omitted.
        masters: How many nodes.
        args: Further arguments for each node.
        proxied: Whether clients are led through a proxy before each node, for faults.
    """
    return Cluster(kind or default_kind(), masters, args, proxied=proxied)


def primary_with_replicas(
    kind: ServerKind | None = None, replicas: int = 1, *, args: Sequence[str] = ()
) -> Replication:
    """Start a primary, to which `args` apply, and replicas in step with it."""
    return Replication(kind or default_kind(), replicas, args)


def sentinel(
    kind: ServerKind | None = None,
    *,
    replicas: int = 2,
    sentinels: int = 1,
    down_after_ms: int = 300,
) -> Sentinels:
    """Start a primary, replicas and Sentinels that promote one `down_after_ms` after it is lost."""
    return Sentinels(kind or default_kind(), replicas, sentinels, down_after_ms)


def follows(replica: Server) -> bool:
    """Tell whether a replica's link to its primary is up."""
    return replica.info("replication").get("master_link_status") == "up"


def in_step(primary: Server, replicas: int) -> bool:
    """Tell whether a write reaches so many replicas, and with it all that was written before.

    A link that is up may not carry any yet; and WAIT alone waits for nobody's writes but its own
    connection's.
    """
    with Wire(primary.unix_path) as wire, contextlib.suppress(ReplyError):
        wire.call("SET", "harness:in-step", "1", "PX", 1)
        wire.call("DEL", "harness:in-step")
        return bool(wire.call("WAIT", replicas, 50) >= replicas)
    return False


def _sentinel_config(service: str, port: int, quorum: int, down_after_ms: int, index: int) -> str:
    identity = hashlib.sha256(f"{port}:{index}".encode()).hexdigest()[:40]
    return f"""\
sentinel myid {identity}
sentinel monitor {service} {HOST} {port} {quorum}
sentinel down-after-milliseconds {service} {down_after_ms}
sentinel failover-timeout {service} 2000
sentinel parallel-syncs {service} 2
"""
