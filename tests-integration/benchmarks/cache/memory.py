"""What an entry takes beside a plain SET of the same JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figure, Scenario, at_most
from benchmarks.profile import Profile, profile
from benchmarks.stand import Stand
from fencekit.cache import SyncGenericCache

__all__ = ["MEMORY"]

_ENTRIES = 20_000


def _taken(stand: Stand, write: Any) -> float:
    stand.server.call("FLUSHALL", "SYNC")
    before = stand.memory()
    for number in range(_ENTRIES):
        write(number)
    return (stand.memory() - before) / _ENTRIES


def _measure(stand: Stand) -> Iterator[Figure]:
    with stand.client() as client:

        class Profiles(SyncGenericCache[Profile]):
            redis_client = client

        cache = Profiles()
        value = profile()
        text = value.model_dump_json()
        value.about = value.about[: len(value.about) - (len(text) - 1024)]
        text = value.model_dump_json()

        def set_plainly(number: int) -> None:
            client.set(f":profile:{number}", text, ex=600)

        # Once in vain: what the scenario before left is freed meanwhile, and would be counted here.
        _taken(stand, set_plainly)
        plain = _taken(stand, set_plainly)
        ours = _taken(stand, lambda number: cache.create(number, value))
        stored = len(client.get(":profile:1") or b"")
    note = f"{ours:.0f} and {plain:.0f} bytes for {len(text)} of JSON"
    yield Figure("memory per entry, of a plain SET", ours / plain, "×", at_most(1.15), note)
    yield Figure("header without tags", stored - len(text), "bytes", at_most(24))


MEMORY = (Scenario("cache memory", "20,000 entries of 1 KiB of JSON", _measure),)
