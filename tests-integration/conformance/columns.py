"""The columns of the matrix: which server, how it is reached, and through which client.

Their full product would be 600 columns, most of which say nothing new. On the newest server,
alone, every client is run with every setting; beyond that each *three* things in every combination
are together in some column (`test_columns.py`), which docs/decisions/ explains. The run with the
oldest redis-py has columns of its own: every two things.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

import redis

from harness import kinds
from harness.clients import Colour, Family
from harness.kinds import ServerKind

__all__ = [
    "OLDEST",
    "PROFILES",
    "QUICK",
    "Profile",
    "Topology",
    "covering",
    "documented_acl",
    "every",
    "profile_of",
    "together",
]

Topology = Literal["single", "unix", "tls", "sentinel", "cluster"]

_TOPOLOGIES: tuple[Topology, ...] = ("single", "unix", "tls", "sentinel", "cluster")
_COLOURS: tuple[Colour, ...] = ("sync", "async")
_FAMILIES: tuple[Family, ...] = ("redis", "valkey")
_RESPS: tuple[Literal[2, 3], ...] = (2, 3)
_NEWEST = 7  # the major version of redis-py from which on a run is not that of the oldest
# Whether this is the run with the oldest redis-py.
OLDEST = int(redis.__version__.partition(".")[0]) < _NEWEST
# Each server once, a cluster once and a Sentinel once in either colour: what `hatch run test` runs.
QUICK = {
    "valkey-9.1-single-sync-redis-resp2-bytes",
    "valkey-9.1-single-async-redis-resp3-str",
    "valkey-9.1-single-acl-async-valkey-resp3-str",
    "valkey-8.1-single-async-valkey-resp2-bytes",
    "redis-6.2-single-acl-sync-redis-resp2-bytes",
    "redis-7.0-single-async-redis-resp2-str",
    "redis-8.2-single-sync-valkey-resp3-str",
    "valkey-9.1-cluster-sync-redis-resp3-bytes",
    "valkey-9.1-cluster-async-redis-resp3-str",
    "valkey-9.1-sentinel-sync-redis-resp2-str",
    "valkey-9.1-sentinel-async-redis-resp2-bytes",
}


@dataclass(frozen=True)
class Profile:
    """One column of the matrix.

    Attributes:
        kind: the server.
        topology: how many of them, and how they are reached.
        colour: sync or async.
        family: whose client.
        resp: the client's protocol.
        decode: whether the client decodes replies.
        acl: the rules of the user that connects; None: the default user.
    """

    kind: ServerKind
    topology: Topology
    colour: Colour
    family: Family
    resp: Literal[2, 3]
    decode: bool
    acl: str | None = None

    @property
    def stage(self) -> str:
        """Where it plays: profiles of one stage share their servers."""
        acl = "" if self.acl is None else "-acl"
        return f"{self.kind}-{self.topology}{acl}"

    def __str__(self) -> str:
        replies = "str" if self.decode else "bytes"
        return f"{self.stage}-{self.colour}-{self.family}-resp{self.resp}-{replies}"


_ID = re.compile(
    r"(?P<kind>[a-z]+-\d\.\d)-(?P<topology>\w+?)(?P<acl>-acl)?-(?P<colour>a?sync)"
    r"-(?P<family>\w+)-resp(?P<resp>\d)-(?P<replies>str|bytes)"
)


def profile_of(text: str) -> dict[str, str] | None:
    """What a column's name says, wherever in a text it stands."""
    found = _ID.search(text)
    return None if found is None else {key: value or "" for key, value in found.groupdict().items()}


def documented_acl(topology: Topology) -> str:
    """The rules of docs/reference/acl.md, without the user's name and password."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "acl.md").read_text()
    everywhere, on_clusters = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    rules: list[str] = everywhere.split()[5:]
    if topology == "cluster":
        rules += on_clusters.split()
    return " ".join(rules)


def together(profile: Profile, count: int) -> set[tuple[tuple[str, Any], ...]]:
    """What is together in one column: every so many of its values."""
    values = [(each.name, getattr(profile, each.name)) for each in fields(profile)]
    return set(combinations([pair for pair in values if pair[0] != "acl"], count))


def every(families: tuple[Family, ...]) -> list[Profile]:
    """The full product, without ACLs."""
    made = product(kinds.ALL_KINDS, _TOPOLOGIES, _COLOURS, families, _RESPS, (False, True))
    return [Profile(*values) for values in made]


def covering(candidates: list[Profile], first: list[Profile], count: int) -> list[Profile]:
    """Some of the candidates, after the first ones: every `count` values that may be are together.

    Greedy, hence not the fewest; always the same.
    """
    chosen = list(first)
    missing = set[tuple[tuple[str, Any], ...]]().union(*(together(p, count) for p in candidates))
    missing = missing.difference(*(together(p, count) for p in chosen))
    while missing:
        best = max(candidates, key=lambda profile: len(together(profile, count) & missing))
        chosen.append(best)
        missing -= together(best, count)
    return chosen


def _columns() -> Iterator[Profile]:
    """Yield those of the newest redis-py, and of valkey-py."""
    candidates = every(_FAMILIES)
    alone = [one for one in candidates if one.stage == "valkey-9.1-single"]
    quick = [one for one in candidates if str(one) in QUICK and one not in alone]
    yield from covering(candidates, [*alone, *quick], 3)


def _acl_columns() -> Iterator[Profile]:
    makes: list[tuple[Topology, Colour, Family, Literal[2, 3], bool]] = [
        ("single", "sync", "redis", 2, False),
        ("single", "async", "valkey", 3, True),
        ("cluster", "sync", "valkey", 2, True),
        ("cluster", "async", "redis", 3, False),
    ]
    for kind in (kinds.VALKEY_9_1, kinds.REDIS_6_2):
        for topology, colour, family, resp, decode in makes:
            acl = documented_acl(topology)
            yield Profile(kind, topology, colour, family, resp, decode, acl)


def _all_columns() -> list[Profile]:
    if OLDEST:
        # valkey-py is the same whatever redis-py is beside it.
        return covering(every(("redis",)), [], 2)
    return [*_columns(), *_acl_columns()]


PROFILES = _all_columns()
