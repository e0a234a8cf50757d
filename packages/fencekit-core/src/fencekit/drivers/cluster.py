"""Which node of a cluster holds a key: the slot table, kept by what the nodes say."""

from __future__ import annotations

import time
from bisect import bisect_right

from fencekit.drivers.client import Address, Client, slot_of
from fencekit.errors import StoreUnavailable
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
    the reply to ``answer()``, until there is no question.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._starts: list[int] = []
        self._nodes: list[Address] = []
        self._moved: dict[int, Address] = {}
        self._known: list[Address] = list(client.seeds)
        self._to_ask: list[Address] | None = list(client.seeds)
        self._read_at = 0.0

    def question(self, key: str) -> Address | None:
        """The node to ask for the table before the key can be routed, or None.

        Raises:
            StoreUnavailable: every known node was asked in vain, and no table is known.
        """
        if self._to_ask is None or slot_of(key) in self._moved:
            return None
        if self._to_ask:
            return self._to_ask[0]
        self._to_ask = None
        if self._starts:
            return None
        self._to_ask = list(self._client.seeds)
        msg = "no node of the cluster answered"
        raise StoreUnavailable(msg)

    def answer(self, asked: Address, reply: Reply) -> None:
        """Take in what a node answered to CLUSTER SLOTS; anything but a table is passed over."""
        if not isinstance(reply, list) or not reply:
            if self._to_ask and self._to_ask[0] == asked:
                self._to_ask.pop(0)
            return
        ranges = sorted(
            (int(start), self._address(asked, primary)) for start, _, primary, *_ in reply
        )
        self._starts = [start for start, _ in ranges]
        self._nodes = [node for _, node in ranges]
        self._moved.clear()
        self._known = list(dict.fromkeys((*self._nodes, *self._client.seeds)))
        self._to_ask = None
        self._read_at = time.monotonic()

    def node(self, key: str) -> Address:
        """The primary of the key's slot, as far as is known."""
        slot = slot_of(key)
        moved = self._moved.get(slot)
        if moved is not None:
            return moved
        return self._nodes[max(bisect_right(self._starts, slot) - 1, 0)]

    def moved(self, key: str, node: Address) -> None:
        """A node said that the key's slot lives elsewhere."""
        self._moved[slot_of(key)] = node
        if node not in self._known:
            self._known.insert(0, node)

    def stale(self) -> None:
        """A node could not be reached: ask again, though not at every error."""
        if self._to_ask is None and time.monotonic() - self._read_at > _ASK_AGAIN:
            self._moved.clear()
            self._to_ask = list(self._known)
            self._read_at = time.monotonic()

    def routes(self, stem: str) -> list[str]:
        """A key for each primary, beginning with the stem; the table must be known."""
        wanted = set(self._nodes)
        found: dict[Address, str] = {}
        for number in range(_SLOTS_TRIED):
            key = f"{stem}{{{number}}}"
            found.setdefault(self.node(key), key)
            if wanted <= found.keys():
                break
        return list(found.values())

    def any_node(self) -> Address:
        """A node that is probably there: each call another one."""
        self._known.append(self._known.pop(0))
        return self._known[-1]

    def _address(self, asked: Address, primary: list[bytes | int]) -> Address:
        host = primary[0].decode() if isinstance(primary[0], bytes) else ""
        address = Address(host or asked.host, int(primary[1]))  # empty: the node we asked
        remap = self._client.remap
        return Address(*remap(tuple(address))) if remap is not None else address
