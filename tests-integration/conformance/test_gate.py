"""FenceGate, on every server, through every client, in both colours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.forks import in_a_fork
from conformance.stage import LONG, Rig, got
from fencekit import FencedOutError, FenceToken


async def test_only_the_newest_holder_writes(rig: Rig) -> None:
    lock, gate, key = rig.lock(), rig.gate(), rig.target("job")
    stale = await got(lock.acquire("job", ttl=LONG))
    await got(gate.set_if_fresh(stale.token, key, "first"))
    assert await got(lock.force_release("job"))
    fresh = await got(lock.acquire("job", ttl=LONG))
    attempts: list[Callable[[], Any]] = [
        lambda: gate.set_if_fresh(stale.token, key, "late"),
        lambda: gate.delete_if_fresh(stale.token, key),
        lambda: gate.check(stale.token),
        lambda: gate.check_and_advance(stale.token),
    ]
    for attempt in attempts:
        with pytest.raises(FencedOutError) as refused:
            await got(attempt())
        assert refused.value.resource == "job"
        assert refused.value.token == stale.token
        assert refused.value.current is not None
        assert refused.value.current >= fresh.token
    assert rig.ask("GET", key) == "first"
    await got(gate.set_if_fresh(fresh.token, key, "second", ttl=LONG))
    assert rig.ask("GET", key) == "second"
    assert 0 < rig.ask("PTTL", key) <= 30_000
    assert await got(gate.delete_if_fresh(fresh.token, key)) is True
    assert await got(gate.delete_if_fresh(fresh.token, key)) is False


async def test_hashes_and_values_of_every_kind(rig: Rig) -> None:
    gate, key = rig.gate(), rig.target("job")
    token = (await got(rig.lock().acquire("job", ttl=LONG))).token
    fields = {"text": "ä", "bytes": b"b", "int": 7, "float": 1.5}
    await got(gate.hset_if_fresh(token, key, fields))
    for field, stored in (("text", "ä"), ("bytes", "b"), ("int", "7"), ("float", "1.5")):
        assert rig.ask("HGET", key, field) == stored
    await got(gate.hset_if_fresh(token, key, {f"f{number}": number for number in range(5000)}))
    assert rig.ask("HLEN", key) == 5004


async def test_a_token_that_travelled_is_judged_alike(rig: Rig) -> None:
    gate = rig.gate(rig.another_client())
    handle = await got(rig.lock().acquire("job", ttl=LONG))
    token = FenceToken(int(handle.token), resource="job")
    await got(gate.check(token))
    assert await got(gate.current_max("job")) == token
    assert await got(gate.current_max("never-locked")) is None
    with pytest.raises(TypeError):
        await got(gate.check(int(token)))
    # The lock is free, but nobody has come since: the last holder may still write.
    await got(handle.release())
    await got(gate.check(token))


async def test_without_a_record_nobody_writes(rig: Rig) -> None:
    gate, key = rig.gate(), rig.target("job")
    handle = await got(rig.lock().acquire("job", ttl=LONG))
    rig.backend.lose_data()
    with pytest.raises(FencedOutError):
        await got(gate.set_if_fresh(handle.token, key, "late"))
    assert rig.ask("GET", key) is None


async def test_a_gate_far_from_the_lock_keeps_what_it_was_shown(rig: Rig) -> None:
    gate, key = rig.gate(remote=True), rig.target("elsewhere")
    old, new = (FenceToken(number, resource="elsewhere") for number in (1000, 2000))
    await got(gate.set_if_fresh(old, key, "old"))
    await got(gate.check_and_advance(new))
    with pytest.raises(FencedOutError):
        await got(gate.set_if_fresh(old, key, "late"))
    await got(gate.set_if_fresh(new, key, "new"))
    assert rig.ask("GET", key) == "new"
    assert await got(gate.current_max("elsewhere")) == new


async def test_scripts_may_be_flushed_between_any_two_writes(rig: Rig) -> None:
    gate, key = rig.gate(), rig.target("job")
    token = (await got(rig.lock().acquire("job", ttl=LONG))).token
    calls: list[Callable[[], Any]] = [
        lambda: gate.set_if_fresh(token, key, "1"),
        lambda: gate.delete_if_fresh(token, key),
        lambda: gate.hset_if_fresh(token, key, {"a": 1}),
        lambda: gate.check(token),
        lambda: gate.check_and_advance(token),
        lambda: gate.current_max("job"),
    ]
    for call in calls:
        rig.backend.forget_scripts()
        await got(call())


async def test_a_fork_starts_afresh(rig: Rig) -> None:
    gate, key = rig.gate(), rig.target("job")
    token = (await got(rig.lock().acquire("job", ttl=LONG))).token
    await got(gate.set_if_fresh(token, key, "parent"))

    async def child() -> None:
        await got(gate.set_if_fresh(token, key, "child"))

    in_a_fork(lambda: rig.run(child()))
    assert rig.ask("GET", key) == "child"


async def test_fencekits_own_keys_are_no_targets(rig: Rig) -> None:
    lock, gate = rig.lock(), rig.gate()
    token: Any = (await got(lock.acquire("job", ttl=LONG))).token
    with pytest.raises(ValueError, match="own keys"):
        await got(gate.set_if_fresh(token, lock.lock_key("job"), "mine"))
    with pytest.raises(ValueError, match="empty"):
        await got(gate.set_if_fresh(token, "", "mine"))
