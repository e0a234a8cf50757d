"""Where the cases play: each kind of server, and a cluster of three masters.

The default server is what `hatch run test` runs on; the others are `full`, for
`hatch run conformance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from harness import clients, topologies
from harness.caches import Kit, PlainCache, opened_kit
from harness.clients import Colour, Topology
from harness.faults import Cut
from harness.fixtures import ServerPool
from harness.kinds import ALL_KINDS, default_kind
from harness.proxy import Proxy
from harness.servers import Server
from harness.statistics import CommandStats

# What a client of a cluster asks by itself.
_ITS_OWN = ("cluster|", "command", "client|", "hello", "readonly")


@dataclass
class Site:
    """Where a case plays.

    Attributes:
        url: where clients connect.
        topology: what the URL leads to.
        nodes: the servers that hold data.
        proxies: what stands between clients and each of them, where a case wants it.
    """

    url: str
    topology: Topology
    nodes: list[Server]
    proxies: list[Proxy] = field(default_factory=list[Proxy])

    async def shown_on_plain(
        self,
        scenario: Callable[[PlainCache, Kit], Awaitable[None]],
        *options: Any,
        error: Any = AssertionError,
        **of_client: Any,
    ) -> None:
        """Fail a scenario on plain cache-aside: the test bites."""
        async with (
            clients.aopened(self.url, topology=self.topology, **of_client) as client,
            opened_kit("async", self.url, self.topology) as kit,
        ):
            with pytest.raises(error):
                await scenario(PlainCache(client, *options), kit)
        for node in self.nodes:
            node.clean()

    def counting(self) -> Callable[[], Counter[str]]:
        """Count from now on; what is returned tells the commands so far, of all nodes."""
        stats = [CommandStats(node) for node in self.nodes]

        def counts() -> Counter[str]:
            found: Counter[str] = sum((one.counts() for one in stats), Counter[str]())
            return Counter({name: n for name, n in found.items() if not name.startswith(_ITS_OWN)})

        return counts

    def fill(self, count: int) -> None:
        """Put foreign keys there, shared out among the nodes."""
        script = "for i = 1, ARGV[1] do redis.call('SET', KEYS[1] .. i, '') end"
        for index, node in enumerate(self.nodes):
            tag = next(t for t in map(str, range(1000)) if self._lives_at(index, f"{{{t}}}"))
            node.call("EVAL", script, 1, f"foreign:{{{tag}}}", count // len(self.nodes))

    def _lives_at(self, index: int, key: str) -> bool:
        if self.topology != "cluster":
            return True
        slot = self.nodes[0].call("CLUSTER", "KEYSLOT", key)
        return bool(slot * len(self.nodes) // 16384 == index)

    def lose(self) -> None:
        """Nobody gets through any more: whatever is said, the connection is cut."""
        for proxy in self.proxies:
            proxy.add(Cut(nth=None))

    def find_again(self) -> None:
        """Everybody gets through again."""
        for proxy in self.proxies:
            proxy.clear()


def _place(name: str) -> Any:
    quick = name == default_kind().name
    group = pytest.mark.xdist_group(f"cache-cases-{name}")
    return pytest.param(name, marks=() if quick else (pytest.mark.full, group))


@pytest.fixture(params=[*(_place(kind.name) for kind in ALL_KINDS), _place("cluster")])
def place(request: pytest.FixtureRequest) -> str:
    """A kind of server, or a cluster of the default kind."""
    name: str = request.param
    return name


@pytest.fixture
def site(place: str, servers: ServerPool) -> Site:
    """Servers, as good as new."""
    if place == "cluster":
        group = servers.shared("cluster", topologies.cluster)
        group.clean()
        return Site(group.url, "cluster", group.nodes)
    server = servers.clean(next(kind for kind in ALL_KINDS if kind.name == place))
    return Site(server.url, "single", [server])


@pytest.fixture
def distant_site(place: str, servers: ServerPool) -> Iterator[Site]:
    """Servers that can be reached through proxies only, as good as new."""
    if place == "cluster":
        group = servers.shared("proxied cluster", lambda: topologies.cluster(proxied=True))
        group.clean()
        yield Site(group.url, "cluster", group.nodes, group.proxies)
        return
    server = servers.clean(next(kind for kind in ALL_KINDS if kind.name == place))
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy.before(server))
        yield Site(proxy.url, "single", [server], [proxy])


@pytest_asyncio.fixture
async def kit(colour: Colour, site: Site) -> AsyncIterator[Kit]:
    """Caches of the test's colour."""
    async with opened_kit(colour, site.url, site.topology) as made:
        yield made


@pytest.fixture
def store(site: Site) -> Iterator[Any]:
    """A plain client, to look at what is stored."""
    with clients.opened(site.url, topology=site.topology) as client:
        yield client
