"""Which node of a cluster holds a key: the slot table, kept by what the nodes say."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right

from fencekit.drivers.client import Address, Client, slot_of
from fencekit.drivers.delivery import Delivery, WireLost
from fencekit.protocol.operation import Reply

__all__ = ["SlotTable"]

# How long a table is kept after it was seen to be wrong, seconds: a node that is down must not
# have every operation ask every node.
_ASK_AGAIN = 0.25
# Keys tried until every node has one: far more than a node with a hundred slots needs.
_SLOTS_TRIED = 10_000


class SlotTable:
    """Slots and their primaries, from CLUSTER SLOTS, corrected by MOVED.

    Without a socket: the driver asks ``question()`` which node to put CLUSTER SLOTS to, and hands
    the reply to ``answer()``, until there is no question. Used by any number of threads.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        # Replaced as a whole, so that nobody sees the slots of one answer and the nodes of another.
        self._table: tuple[list[int], list[Address]] = ([], [])
        self._moved: dict[int, Address] = {}
        self._known: list[Address] = list(client.seeds)
        self._to_ask: list[Address] | None = list(client.seeds)
        self._turn = 0
        self._read_at = 0.0

    def question(self, key: str) -> Address | None:
        """The node to ask for the table before the key can be routed, or None.

        Raises:
            WireLost: every known node was asked in vain, and no table is known.
        """
        if self._to_ask is None:
            return None
        with self._lock:
            if self._to_ask is None or slot_of(key) in self._moved:
                return None
            if self._to_ask:
                return self._to_ask[0]
            if self._table[0]:
                self._to_ask = None
                return None
            self._to_ask = list(self._known)
        raise WireLost("no node of the cluster answered", sent=False)

    def answer(self, asked: Address, reply: Reply) -> None:
        """Take in what a node answered to CLUSTER SLOTS; anything but a table is passed over."""
        if not isinstance(reply, list) or not reply:
            with self._lock:
                if self._to_ask and self._to_ask[0] == asked:
                    self._to_ask.pop(0)
            return
        ranges = sorted(
            (int(start), self._address(asked, *_endpoint(primary)))
            for start, _, primary, *_ in reply
        )
        nodes = [node for _, node in ranges]
        with self._lock:
            self._table = [start for start, _ in ranges], nodes
            self._moved.clear()
            self._known = list(dict.fromkeys((*nodes, *self._client.seeds)))
            self._to_ask = None
            self._read_at = time.monotonic()

    def node(self, key: str) -> Address:
        """The primary of the key's slot, as far as is known."""
        slot = slot_of(key)
        starts, nodes = self._table
        return self._moved.get(slot) or nodes[max(bisect_right(starts, slot) - 1, 0)]

    def route(self, delivery: Delivery) -> Address:
        """Where the next copy goes: where its last answer said, or the primary of its slot."""
        key = delivery.operation.keys[0]
        if delivery.node is not None:
            # A redirect without a host means the host that said it.
            node = self._address(delivery.at or self._known[0], *delivery.node)
            delivery.node = None
            if not delivery.asking:
                with self._lock:
                    self._moved[slot_of(key)] = node
                    if node not in self._known:
                        self._known.insert(0, node)
        elif delivery.asking and delivery.at is not None:
            node = delivery.at
        else:
            node = self.node(key)
        delivery.at = node
        return node

    def stale(self, failed: Address | None = None) -> None:
        """A node could not be reached: ask the others first, though not at every error."""
        with self._lock:
            now = time.monotonic()
            if self._to_ask is not None or now - self._read_at <= _ASK_AGAIN:
                return
            self._read_at = now
            self._moved.clear()
            # Each time another one first, for one may know less than the others.
            self._turn = (self._turn + 1) % len(self._known)
            turned = self._known[self._turn :] + self._known[: self._turn]
            self._to_ask = sorted(turned, key=lambda node: node == failed)

    def routes(self, stem: str) -> list[str]:
        """A key for each primary, beginning with the stem; the table must be known."""
        wanted = set(self._table[1])
        found: dict[Address, str] = {}
        for number in range(_SLOTS_TRIED):
            key = f"{stem}{{{number}}}"
            found.setdefault(self.node(key), key)
            if wanted <= found.keys():
                break
        return list(found.values())

    def any_node(self) -> Address:
        """A node that is probably there: each call another one."""
        with self._lock:
            self._known.append(self._known.pop(0))
            return self._known[-1]

    def _address(self, asked: Address, host: str, port: int) -> Address:
        address = Address(host or asked.host, port)
        remap = self._client.remap
        return Address(*remap(tuple(address))) if remap is not None and host else address


def _endpoint(primary: list[bytes | int | None]) -> tuple[str, int]:
    """The host and port of a node; the host is empty where it is the host that was asked."""
    host, port = primary[:2]
    known = isinstance(host, bytes) and host != b"?"
    return host.decode() if known and isinstance(host, bytes) else "", int(port or 0)
