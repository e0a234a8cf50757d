"""A hit, a write and many hits, against the bare client doing the same by hand."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import (
    Figure,
    Scenario,
    Target,
    Timings,
    arace,
    at_least,
    exactly,
    race,
)
from benchmarks.profile import Profile, profile
from benchmarks.stand import Stand
from fencekit.cache import GenericCache, SyncGenericCache
from fencekit.drivers.aio import AsyncDriver
from harness import clients

__all__ = ["ENTRIES"]

_MANY = 1_000
# So many times a cycle, which then takes about as long as one of a thousand gets: a short turn
# would be all cold caches, or not at all disturbed by what else the machine does.
_MANIES = 10
_MONITORED = 50


def _read(raws: list[Any]) -> dict[int, Profile]:
    return {number: Profile.model_validate_json(raw) for number, raw in enumerate(raws)}


def _of_many(bulk: Timings, *, target: Target | None) -> Iterator[Figure]:
    yield Figure(
        "get_many of 1,000, of a thousand GETs",
        bulk.speed("ten of many", "bare each") * _MANIES,
        "×",
        at_least(10) if target else None,
        bulk.note("bare each", "ten of many"),
    )
    # Our own gets take two thirds of the time of bare ones, while what is left of get_many is what
    # no cache can save: half of it is pydantic, which reads the same JSON for each of them, and a
    # quarter is the server and the kernel, which copy the same megabyte. So this ratio follows how
    # quick a get is, and how many caches other programs leave to a megabyte at once: 9.1 to 14 in
    # asyncio, 7.7 to 9.9 in the sync colour, where one MGET by hand has no more. Tried, to no
    # effect: chunks of 25 to 1,000 keys, each read when it arrives; one array of JSON for all; a
    # buffer of our own for what is received; keys spelled without a line of Python.
    yield Figure(
        "get_many of 1,000, of a thousand of our own gets",
        bulk.speed("ten of many", "each") * _MANIES,
        "×",
        target,
        bulk.note("each", "ten of many"),
    )
    yield Figure(
        "one bare MGET + model_validate_json, of the same",
        bulk.speed("ten of MGET", "each") * _MANIES,
        "×",
        note="what can be had by hand",
    )
    yield Figure(
        "get_many of 1,000, of that MGET",
        bulk.speed("ten of many", "ten of MGET"),
        "×",
        at_least(0.88),
        bulk.note("ten of MGET"),
    )
    yield Figure(
        "of the time of get_many, what pydantic takes",
        bulk.speed("ten of many", "ten of read"),
        "×",
        note=bulk.note("ten of read"),
    )


async def _async(stand: Stand) -> dict[str, Any]:  # noqa: C901 - each contender is a small loop
    async with clients.aopened(stand.server.url) as client:

        class Profiles(GenericCache[Profile]):
            redis_client = client

        class Tagged(GenericCache[Profile]):
            name = "tagged"
            redis_client = client

            def tags(self, key: str) -> list[str]:
                return [f"team-{key}"]

        cache, tagged, value = Profiles(), Tagged(), profile()
        await cache.create(1, value)
        await tagged.create(1, value)
        await client.set("bare", value.model_dump_json())
        await cache.set_many({number: profile(number) for number in range(_MANY)})
        bare_keys = [f"bare:{number}" for number in range(_MANY)]
        read = Profile.__pydantic_validator__.validate_json  # as C calls it
        bodies = [profile(number).model_dump_json().encode() for number in range(_MANY)]
        await client.mset(dict(zip(bare_keys, bodies, strict=True)))

        async def bare_get(cycles: int) -> None:
            for _ in range(cycles):
                raw = await client.get("bare")
                assert raw is not None
                Profile.model_validate_json(raw)

        async def bare_set(cycles: int) -> None:
            for _ in range(cycles):
                await client.set("bare", value.model_dump_json(), ex=600)

        async def get(cycles: int) -> None:
            for _ in range(cycles):
                assert await cache.get(1) is not None

        async def get_or_load(cycles: int) -> None:
            for _ in range(cycles):
                assert await cache.get_or_load(1, profile) is not None

        async def get_tagged(cycles: int) -> None:
            for _ in range(cycles):
                assert await tagged.get(1) is not None

        async def create(cycles: int) -> None:
            for _ in range(cycles):
                await cache.create(1, value)

        async def together(cycles: int) -> None:
            for _ in range(0, cycles, 50):
                await asyncio.gather(*(cache.get(1) for _ in range(50)))

        timings = await arace(
            {
                "GET": bare_get,
                "SET": bare_set,
                "get": get,
                "get_or_load": get_or_load,
                "tagged get": get_tagged,
                "create": create,
                "get, 50 tasks": together,
            },
            rounds=21,
            cycles=150,
        )

        # All of them return a thousand values, as get_many cannot help doing: a value that is
        # dropped at once leaves its memory, still warm, to the next one.
        async def each(cycles: int) -> None:
            for _ in range(cycles):
                assert len({number: await cache.get(number) for number in range(_MANY)}) == _MANY

        async def bare_each(cycles: int) -> None:
            for _ in range(cycles):
                values = {
                    number: Profile.model_validate_json(await client.get(key))
                    for number, key in enumerate(bare_keys)
                }
                assert len(values) == _MANY

        async def many(cycles: int) -> None:
            for _ in range(cycles * _MANIES):
                assert len(await cache.get_many(range(_MANY))) == _MANY

        async def by_hand(cycles: int) -> None:
            for _ in range(cycles * _MANIES):
                assert len(_read(await client.mget(bare_keys))) == _MANY

        async def read_only(cycles: int) -> None:
            for _ in range(cycles * _MANIES):
                assert len(dict(zip(bare_keys, map(read, bodies), strict=True))) == _MANY

        # A thousand models at once set the collector going, which then walks over everything that
        # this program has imported; what an application has imported is not what is measured.
        gc.collect()
        gc.freeze()
        bulk = await arace(
            {
                "each": each,
                "bare each": bare_each,
                "ten of many": many,
                "ten of MGET": by_hand,
                "ten of read": read_only,
            },
            rounds=15,
            cycles=1,
        )
        gc.unfreeze()
        with stand.monitoring() as hits:
            await get(_MONITORED)
        await AsyncDriver.of(client).aclose()
        return {"timings": timings, "bulk": bulk, "hits": len(hits)}


def _measure_async(stand: Stand) -> Iterator[Figure]:
    with stand.pinned():
        measured = asyncio.run(_async(stand))
    timings, bulk = measured["timings"], measured["bulk"]
    note = timings.note("get", "GET")
    yield Figure(
        "hit, of GET + model_validate_json", timings.speed("get", "GET"), "×", at_least(0.88), note
    )
    yield Figure("commands per hit", measured["hits"] / _MONITORED, "", exactly(1))
    yield Figure(
        "get_or_load that hits, of the same",
        timings.speed("get_or_load", "GET"),
        "×",
        at_least(0.88),
    )
    yield Figure("tagged hit, of the same", timings.speed("tagged get", "GET"), "×")
    yield Figure(
        "hits of 50 tasks at once, of the same", timings.speed("get, 50 tasks", "GET"), "×"
    )
    note = timings.note("create", "SET")
    yield Figure(
        "create, of SET + model_dump_json", timings.speed("create", "SET"), "×", at_least(0.8), note
    )
    yield from _of_many(bulk, target=at_least(9, aim=10))


def _measure_sync(stand: Stand) -> Iterator[Figure]:  # noqa: C901 - each contender is a small loop
    with stand.client() as client, stand.pinned():

        class Profiles(SyncGenericCache[Profile]):
            redis_client = client

        cache, value = Profiles(), profile()
        cache.create(1, value)
        client.set("bare", value.model_dump_json())
        cache.set_many({number: profile(number) for number in range(_MANY)})
        bare_keys = [f"bare:{number}" for number in range(_MANY)]
        read = Profile.__pydantic_validator__.validate_json  # as C calls it
        bodies = [profile(number).model_dump_json().encode() for number in range(_MANY)]
        client.mset(dict(zip(bare_keys, bodies, strict=True)))

        def bare_get(cycles: int) -> None:
            for _ in range(cycles):
                raw = client.get("bare")
                assert raw is not None
                Profile.model_validate_json(raw)

        def bare_set(cycles: int) -> None:
            for _ in range(cycles):
                client.set("bare", value.model_dump_json(), ex=600)

        def get(cycles: int) -> None:
            for _ in range(cycles):
                assert cache.get(1) is not None

        def create(cycles: int) -> None:
            for _ in range(cycles):
                cache.create(1, value)

        def each(cycles: int) -> None:
            for _ in range(cycles):
                assert len({number: cache.get(number) for number in range(_MANY)}) == _MANY

        def bare_each(cycles: int) -> None:
            for _ in range(cycles):
                values = {
                    number: Profile.model_validate_json(client.get(key) or b"")
                    for number, key in enumerate(bare_keys)
                }
                assert len(values) == _MANY

        def many(cycles: int) -> None:
            for _ in range(cycles * _MANIES):
                assert len(cache.get_many(range(_MANY))) == _MANY

        def by_hand(cycles: int) -> None:
            for _ in range(cycles * _MANIES):
                assert len(_read(client.mget(bare_keys))) == _MANY

        def read_only(cycles: int) -> None:
            for _ in range(cycles * _MANIES):
                assert len(dict(zip(bare_keys, map(read, bodies), strict=True))) == _MANY

        timings = race(
            {"GET": bare_get, "SET": bare_set, "get": get, "create": create}, rounds=21, cycles=150
        )
        gc.collect()
        gc.freeze()
        bulk = race(
            {
                "each": each,
                "bare each": bare_each,
                "ten of many": many,
                "ten of MGET": by_hand,
                "ten of read": read_only,
            },
            rounds=15,
            cycles=1,
        )
        gc.unfreeze()
    yield Figure(
        "hit, of GET + model_validate_json",
        timings.speed("get", "GET"),
        "×",
        at_least(0.88),
        timings.note("get", "GET"),
    )
    yield Figure(
        "create, of SET + model_dump_json",
        timings.speed("create", "SET"),
        "×",
        at_least(0.8),
        timings.note("create", "SET"),
    )
    # A sync get is so quick that a thousand of them are less than ten times one MGET by hand.
    yield from _of_many(bulk, target=None)


ENTRIES = (
    Scenario("cache entries", "1 KiB of JSON, asyncio, one core", _measure_async),
    Scenario("cache entries, sync", "1 KiB of JSON, one core", _measure_sync),
)
