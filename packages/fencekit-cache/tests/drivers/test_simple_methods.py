"""Both colours: the simple methods, many keys, prefixes, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from fencekit.cache import (
    CacheHit,
    CacheHooks,
    CacheMiss,
    CacheNegative,
    Lookup,
)
from harness.caches import Kit, Profile, got, opened_kit, tagged, tags_of
from harness.clients import Colour, opened
from harness.servers import Server
from harness.statistics import CommandStats
from harness.topologies import Cluster


async def test_create_get_update_delete(kit: Kit, profile: Profile) -> None:
    cache = kit.declare()
    assert await got(cache.get(key=1)) is None
    await got(cache.create(key=1, value=profile))
    assert await got(cache.get(key=1)) == profile
    await got(cache.update(key=1, value=Profile(id=1, name="Grace")))
    assert await got(cache.get(key=1)) == Profile(id=1, name="Grace")
    assert await got(cache.lookup(1)) == Lookup("value", Profile(id=1, name="Grace"))
    await got(cache.delete(key=1))
    assert await got(cache.get(key=1)) is None
    assert await got(cache.lookup(1)) == Lookup("miss")


async def test_an_entry_is_one_string_with_17_bytes_of_header(
    kit: Kit, profile: Profile, store: Any
) -> None:
    cache = kit.declare()
    await got(cache.create(1, profile))
    assert store.keys("*") == [b":profile:1"]
    raw = store.get(":profile:1")
    assert raw[17:] == profile.model_dump_json().encode()
    assert 54_000 <= store.pttl(":profile:1") <= 66_000


async def test_a_hit_is_one_get_and_a_tagged_hit_one_mget_more(
    kit: Kit, profile: Profile, commandstats: CommandStats
) -> None:
    plain = kit.declare()
    grouped = kit.declare(name="grouped", tags=tagged("a", "b"))
    for cache in (plain, grouped):
        await got(cache.create(1, profile))
        await got(cache.get(1))
    commandstats.restart()
    for _ in range(10):
        assert await got(plain.get(1)) == profile
    assert commandstats.counts() == {"get": 10}
    commandstats.restart()
    for _ in range(10):
        assert await got(grouped.get(1)) == profile
    assert commandstats.counts() == {"get": 10, "mget": 10}


async def test_get_many_and_set_many(kit: Kit, commandstats: CommandStats) -> None:
    cache = kit.declare()
    profiles = {key: Profile(id=key) for key in range(1_100)}
    await got(cache.set_many(profiles))
    commandstats.restart()
    assert await got(cache.get_many([*profiles, 9_999])) == profiles
    assert commandstats.counts() == {"mget": 3}
    assert await got(cache.get_many([])) == {}
    await got(cache.set_many({}))


async def test_get_many_leaves_out_what_cannot_be_read_among_what_can(kit: Kit, store: Any) -> None:
    cache = kit.declare()
    profiles = {key: Profile(id=key) for key in range(5)}
    await got(cache.set_many(profiles))
    for key in (1, 4):
        raw = store.get(f":profile:{key}")
        store.set(f":profile:{key}", raw[:-1])
        del profiles[key]
    assert await got(cache.get_many(range(5))) == profiles


async def test_tags_may_come_in_any_order(kit: Kit, profile: Profile) -> None:
    # As those of a set do, in another order in each process.
    one, other = (kit.declare(tags=tagged(*tags)) for tags in (("a", "b", "a"), ("b", "a")))
    await got(one.create(1, profile))
    assert await got(other.get(1)) == profile
    await got(other.invalidate_tags("a"))
    assert await got(one.get(1)) is None


async def test_get_many_of_tagged_entries(kit: Kit) -> None:
    cache = kit.declare(tags=tags_of(lambda key: [f"team-{int(key) % 2}"]))
    await got(cache.set_many({key: Profile(id=key) for key in range(10)}))
    await got(cache.invalidate_tags("team-1"))
    assert sorted(await got(cache.get_many(range(10)))) == [0, 2, 4, 6, 8]
    assert [one.id for one in await got(cache.get_list())] == [0, 2, 4, 6, 8]


async def test_get_list_in_the_order_of_keys(kit: Kit, store: Any) -> None:
    cache = kit.declare()
    other = kit.declare(name="profile2")
    store.mset({f"foreign:{number}": "x" for number in range(2_500)})
    await got(cache.set_many({f"team-a:{n}": Profile(id=n) for n in range(5)}))
    await got(cache.create("team-b:0", Profile(id=9)))
    await got(other.create("team-a:7", Profile(id=7)))
    store.set(":profile:team-a:foreign", "not ours")
    found = await got(cache.get_list(key_prefix="team-a"))
    assert [one.id for one in found] == [0, 1, 2, 3, 4]
    assert len(await got(cache.get_list())) == 6
    await got(cache.delete_by_filters(key_prefix="team-a"))
    assert [one.id for one in await got(cache.get_list())] == [9]
    assert store.exists(":profile2:team-a:7")
    assert store.exists("foreign:7")
    assert not store.exists(":profile:team-a:foreign")


async def test_invalidate_all_leaves_the_others(kit: Kit, profile: Profile, store: Any) -> None:
    cache, other = kit.declare(), kit.declare(name="other")
    await got(cache.set_many(dict.fromkeys(range(20), profile)))
    await got(other.create(1, profile))
    await got(cache.invalidate_all())
    assert store.keys("*") == [b":other:1"]


async def test_keys_with_braces_and_globs_and_any_text(kit: Kit) -> None:
    cache = kit.declare()
    keys = ["{a}", "%7Ba%7D", "a*b", "[x]", "a\\b", "ü ö", "a\nb", "}{"]
    values = {key: Profile(id=number) for number, key in enumerate(keys)}
    await got(cache.set_many(values))
    for key, value in values.items():
        assert await got(cache.get(key)) == value
        assert await got(cache.get_list(key)) == [value]
    assert await got(cache.get_many(keys)) == values


async def test_bad_arguments_are_refused_before_anything_is_sent(
    kit: Kit, profile: Profile, commandstats: CommandStats
) -> None:
    cache = kit.declare()
    calls: list[Any] = [
        (lambda: cache.get(None), TypeError),
        (lambda: cache.create(1, None), TypeError),
        (lambda: cache.create(1, {"id": 1}), TypeError),
        (lambda: cache.create("", profile), ValueError),
        (lambda: cache.get_many("abc"), TypeError),
        (lambda: cache.set_many([1]), TypeError),
        (lambda: cache.invalidate(1, hold=5), TypeError),
        (lambda: cache.invalidate_tags("a"), TypeError),
        (lambda: cache.get_or_load(1, profile), TypeError),
        (lambda: cache.get_or_load_many([1], None), TypeError),
        (lambda: cache.get_list(None), TypeError),
        (lambda: cache.get_list("a", boundary=1), TypeError),
    ]
    for call, error in calls:
        with pytest.raises(error):
            await got(call())
    assert not commandstats.counts()


async def test_tags_that_make_no_sense_are_refused(kit: Kit, profile: Profile) -> None:
    cache = kit.declare(tags=tags_of(lambda _: "team"))
    with pytest.raises(TypeError, match="not one str"):
        await got(cache.create(1, profile))
    cache = kit.declare(tags=tagged("a:b"))
    with pytest.raises(ValueError, match="'a:b' is not allowed"):
        await got(cache.create(1, profile))
    with pytest.raises(ValueError, match="'a b' is not allowed"):
        await got(cache.invalidate_tags("a b"))


async def test_verify_refuses_a_value_that_does_not_come_back(kit: Kit, store: Any) -> None:
    class Subclass(Profile):
        extra: int = 0

    cache = kit.declare(verify=True)
    with pytest.raises(ValueError, match="does not come back equal"):
        await got(cache.create(1, Subclass(id=1, extra=5)))
    assert not store.exists(":profile:1")
    await got(cache.create(1, Profile(id=1)))
    assert await got(cache.get(1)) == Profile(id=1)


async def test_hooks_are_told_of_hits_misses_and_negatives(kit: Kit, profile: Profile) -> None:
    told: list[Any] = []
    hooks = CacheHooks(on_hit=told.append, on_miss=told.append, on_negative=told.append)
    cache = kit.declare(hooks=hooks, negative_ttl=5)
    await got(cache.get(1))
    await got(cache.create(1, profile))
    await got(cache.get(1))
    await got(cache.get_or_load(2, kit.loader(None)))
    assert await got(cache.get(2)) is None
    assert await got(cache.lookup(2)) == Lookup("negative")
    await got(cache.get_many([1, 2, 3]))
    assert told == [
        CacheMiss(cache="profile", key="1"),
        CacheHit(cache="profile", key="1"),
        CacheMiss(cache="profile", key="2"),
        CacheNegative(cache="profile", key="2"),
        CacheNegative(cache="profile", key="2"),
        CacheHit(cache="profile", key="1"),
        CacheNegative(cache="profile", key="2"),
        CacheMiss(cache="profile", key="3"),
    ]


async def exercise(kit: Kit) -> None:
    """Everything once, with tags, on whatever server."""
    cache = kit.declare(
        tags=tags_of(lambda key: [f"team-{int(key) % 2}", "all"]), negative_ttl=5, grace=5, beta=1
    )
    profiles = {key: Profile(id=key) for key in range(40)}
    await got(cache.create(0, profiles[0]))
    assert await got(cache.get(0)) == profiles[0]
    loader = kit.loader(profiles)
    assert await got(cache.get_or_load_many(list(profiles), loader)) == profiles
    assert await got(cache.get_many(profiles)) == profiles
    assert len(await got(cache.get_list())) == 40
    assert len(await got(cache.get_list("1"))) == 11
    await got(cache.invalidate_tags("team-1"))
    assert sorted(await got(cache.get_many(profiles))) == list(range(0, 40, 2))
    await got(cache.set_many(profiles))
    assert len(await got(cache.get_many(profiles))) == 40
    await got(cache.invalidate(0, 1, 2))
    assert len(await got(cache.get_many(profiles))) == 37
    assert await got(cache.get_or_load(1, kit.loader(profiles[1]))) == profiles[1]
    assert await got(cache.get_or_load(99, kit.loader(None))) is None
    assert await got(cache.lookup(99)) == Lookup("negative")
    await got(cache.delete_by_filters("1"))
    assert len(await got(cache.get_list())) == 27
    await got(cache.invalidate_all())
    assert await got(cache.get_list()) == []


async def test_every_server(colour: Colour, any_server: Server) -> None:
    async with opened_kit(colour, any_server.url) as kit:
        await exercise(kit)


async def test_a_cluster(colour: Colour, cluster_server: Cluster) -> None:
    async with opened_kit(colour, cluster_server.url, "cluster") as kit:
        await exercise(kit)
        left = [key for node in cluster_server.nodes for key in node.call("KEYS", "*")]
        assert all(b":tag:" in key for key in left)


async def test_every_key_expires(kit: Kit, store: Any) -> None:
    cache = kit.declare(tags=tagged("a"), ttl=5, negative_ttl=5)
    await got(cache.get_or_load(1, kit.loader(Profile(id=1))))
    await got(cache.get_or_load(2, kit.loader(None)))
    keys = store.keys("*")
    assert len(keys) == 3
    assert all(0 < store.pttl(key) <= 90_000 for key in keys)


@pytest.mark.parametrize("options", [{"resp": 3, "decode": True}, {"resp": 2, "decode": True}])
async def test_whatever_the_client_makes_of_replies(
    colour: Colour, server: Server, options: dict[str, Any]
) -> None:
    async with opened_kit(colour, server.url) as kit:
        for family in ("redis", "valkey"):
            client = kit.another_client(family=family, **options)
            cache = kit.declare(redis_client=client)
            await got(cache.create(1, Profile(id=1)))
            assert await got(cache.get(1)) == Profile(id=1)
            assert await got(cache.get_list()) == [Profile(id=1)]


def test_the_smallest_acl(servers: Any, colour: Colour) -> None:
    import asyncio  # noqa: PLC0415

    acl = (
        "~:profile:* ~{:profile* &fencekit:cache:* +get +set +del +mget +exists +pttl +pexpire "
        "+time +getrange +publish +subscribe +unsubscribe +eval +evalsha +scan +unlink +ping "
        "+select +client|setinfo"
    )
    server = servers.clean(acl=acl)

    async def run() -> None:
        async with opened_kit(colour, server.url) as kit:
            await exercise(kit)

    asyncio.run(run())
    with opened(server.admin_url) as client:
        assert not client.acl_log()
