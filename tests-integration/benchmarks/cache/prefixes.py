"""get_list among foreign keys, in commands, against SCAN and a GET for each key."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figures import Figure, Scenario, at_most
from benchmarks.profile import Profile, profile
from benchmarks.stand import Stand
from fencekit.cache import SyncGenericCache
from harness.statistics import CommandStats

__all__ = ["PREFIXES"]

_FOREIGN = 200_000
_ENTRIES = 1_000


def _measure(stand: Stand) -> Iterator[Figure]:
    with stand.client() as client:

        class Profiles(SyncGenericCache[Profile]):
            redis_client = client

        cache = Profiles()
        client.eval(f"for i = 1, {_FOREIGN} do redis.call('SET', 'foreign:' .. i, '') end", 0)
        cache.set_many({f"team-a:{number}": profile(number) for number in range(_ENTRIES)})
        stats = CommandStats(stand.server)
        found = [client.get(key) for key in client.scan_iter(":profile:team-a*")]
        plain = stats.total()
        assert len(found) == _ENTRIES
        stats.restart()
        assert len(cache.get_list("team-a")) == _ENTRIES
        ours = stats.total()
    yield Figure(
        "commands of get_list, of SCAN and GET",
        ours / plain,
        "×",
        at_most(0.25),
        f"{ours} and {plain}, those inside scripts included",
    )


PREFIXES = (
    Scenario("cache prefixes", f"{_ENTRIES:,} entries among {_FOREIGN:,} foreign keys", _measure),
)
