"""Both colours: servers that are away, refuse, lose an answer, or forget their scripts."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from typing import Any

import pytest

from fencekit.cache import CacheError, CacheHooks, Lookup
from fencekit.cache.protocol import READ_TAG
from fencekit.drivers import delivery
from fencekit.drivers.sync import SyncDriver
from fencekit.errors import OutcomeUnknown, StoreError, StoreRefused, StoreUnavailable
from fencekit.protocol.operation import Operation
from harness.caches import Kit, Profile, got, opened_kit, tagged
from harness.clients import Colour
from harness.conditions import out_of_memory, read_only
from harness.faults import Cut, DropReply, HoldBack, containing, named
from harness.proxy import Proxy
from harness.servers import Server

OLD, NEW = Profile(id=1, name="old"), Profile(id=1, name="new")
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
async def away(colour: Colour) -> Any:
    async with opened_kit(colour, NOWHERE) as kit:
        yield kit


async def test_without_redis_the_simple_methods_go_on(
    away: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[CacheError] = []
    cache = away.declare(strict=True, hooks=CacheHooks(on_error=told.append))
    began = time.monotonic()
    assert await got(cache.get(1)) is None
    assert await got(cache.lookup(1)) == Lookup("miss")
    await got(cache.create(1, OLD))
    await got(cache.update(1, OLD))
    await got(cache.delete(1))
    assert await got(cache.get_list("1")) == []
    await got(cache.delete_by_filters("1"))
    assert await got(cache.get_many([1, 2])) == {}
    await got(cache.set_many({1: OLD, 2: NEW}))
    assert await got(cache.get_or_load(1, away.loader(OLD))) == OLD
    assert await got(cache.get_or_load(1, away.loader(None))) is None
    assert await got(cache.get_or_load_many([1, 2], away.loader({1: OLD}))) == {1: OLD}
    # A service must not become slow because its cache is away.
    assert time.monotonic() - began < 6.0
    assert {event.operation for event in told} >= {"get", "create", "delete", "get_or_load"}
    assert all(event.transient for event in told)
    messages = [record for record in caplog.records if record.name == "fencekit.cache"]
    assert len(messages) == 1  # throttled
    assert messages[0].levelno == logging.WARNING


async def test_without_redis_a_loader_is_still_shared_in_the_process(away: Kit) -> None:
    cache, loader = away.declare(), away.loader(OLD, seconds=0.3)
    running = [away.start(lambda: cache.get_or_load(1, loader)) for _ in range(10)]
    assert [await one.result() for one in running] == [OLD] * 10
    # Who comes later than the load has begun may not share it: nothing says that nothing was
    # invalidated before. Tasks ask in one turn; on a busy machine each thread may be such a one.
    assert loader.calls <= (3 if away.is_async else 10)


async def test_whatever_invalidates_tells_that_it_was_lost(
    away: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_BUDGET", 0.5)
    cache = away.declare(tags=tagged("a"))
    calls: list[Any] = [
        lambda: cache.invalidate(1),
        lambda: cache.invalidate(1, hold=timedelta(seconds=1)),
        lambda: cache.invalidate_tags("a"),
        cache.invalidate_all,
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            await got(call())


async def test_an_invalidation_waits_out_a_restart(colour: Colour, fresh_server: Server) -> None:
    async with opened_kit(colour, fresh_server.url) as kit:
        cache = kit.declare()
        await got(cache.create(1, OLD))
        fresh_server.kill()
        running = kit.start(lambda: cache.invalidate(1))
        await asyncio.sleep(0.5)
        fresh_server.restart(keep_data=True)
        await running.result()
        assert await got(cache.get(1)) is None


async def test_a_loader_that_fails_fails_also_without_redis(away: Kit) -> None:
    with pytest.raises(KeyError):
        await got(away.declare().get_or_load(1, away.loader(KeyError("x"))))


async def test_full_memory_refuses_a_write_and_leaves_no_old_value(
    kit: Kit, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    cache, strict = kit.declare(), kit.declare(strict=True)
    await got(cache.create(1, OLD))
    await got(cache.create(2, OLD))
    with out_of_memory(server):
        await got(cache.update(1, NEW))
        assert await got(cache.get(1)) is None
        with pytest.raises(StoreRefused, match="OOM"):
            await got(strict.set_many({2: NEW}))
        assert await got(cache.get(2)) is None
        assert await got(cache.get_or_load(1, kit.loader(NEW))) == NEW
        await got(cache.invalidate(1))  # allowed when memory is full
    errors = [r for r in caplog.records if r.name == "fencekit.cache"]
    assert [record.levelno for record in errors] == [logging.ERROR]
    assert "maxmemory" in errors[0].getMessage()


async def test_a_wrong_password_is_an_error_that_names_the_cure(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    client = kit.another_client(password="wrong")  # noqa: S106
    cache = kit.declare(redis_client=client)
    assert await got(cache.get(1)) is None
    (record,) = [r for r in caplog.records if r.name == "fencekit.cache"]
    assert record.levelno == logging.ERROR
    assert "password" in record.getMessage()
    with pytest.raises(StoreError):
        await got(kit.declare(redis_client=client, strict=True).get(1))


async def test_a_missing_permission_is_an_error_that_names_the_cure(
    colour: Colour, servers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = servers.clean(acl="~fencekit:* +@all")
    async with opened_kit(colour, server.url) as kit:
        assert await got(kit.declare().get(1)) is None
        with pytest.raises(StoreRefused, match="NOPERM"):
            await got(kit.declare(strict=True).get_or_load(1, kit.loader(OLD)))
    (record,) = [r for r in caplog.records if r.name == "fencekit.cache"]
    assert "ACL" in record.getMessage()


async def test_a_key_of_another_type(kit: Kit, store: Any) -> None:
    cache = kit.declare()
    store.hset(":profile:1", "a", "b")
    assert await got(cache.get(1)) is None
    assert await got(cache.get_many([1])) == {}
    assert await got(cache.get_or_load(1, kit.loader(OLD))) == OLD
    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        await got(kit.declare(strict=True).get(1))


async def test_a_demoted_primary_reads_and_does_not_write(kit: Kit, server: Server) -> None:
    cache = kit.declare()
    await got(cache.create(1, OLD))
    with read_only(server):
        assert await got(cache.get(1)) == OLD
        await got(cache.update(1, NEW))
        with pytest.raises(StoreRefused, match="READONLY"):
            await got(cache.invalidate(1))


async def test_scripts_that_are_forgotten(kit: Kit, store: Any) -> None:
    cache = kit.declare(tags=tagged("a"))
    for key in range(5):
        store.script_flush()
        assert await got(cache.get_or_load(key, kit.loader(OLD))) == OLD
        store.script_flush()
        await got(cache.invalidate(key))
        assert await got(cache.get(key)) is None


async def test_a_lost_reply_of_each_step(colour: Colour, proxy: Proxy, store: Any) -> None:
    async with opened_kit(colour, proxy.url) as kit:
        cache = kit.declare()
        await got(cache.get_or_load(0, kit.loader(OLD)))  # scripts and connections are there
        proxy.add(DropReply(named("GET")))
        assert await got(cache.get(0)) == OLD
        for number, nth in enumerate((1, 2), start=1):  # the ticket's reply, the store's reply
            proxy.clear()
            proxy.add(DropReply(named("EVALSHA"), nth=nth))
            loader = kit.loader(OLD)
            assert await got(cache.get_or_load(number, loader)) == OLD
            assert loader.calls == 1
            assert await got(cache.get(number)) == OLD
            assert not [key for key in store.keys("*") if b"fill" in key]
        proxy.clear()
        proxy.add(DropReply(named("EVALSHA")))
        await got(cache.invalidate(1))
        assert await got(cache.get(1)) is None


async def test_a_late_copy_of_a_store_is_refused(colour: Colour, proxy: Proxy) -> None:
    # Both the ticket and the store arrive once more, after an invalidation.
    async with opened_kit(colour, proxy.url) as kit:
        cache = kit.declare()
        await got(cache.get_or_load(0, kit.loader(OLD)))
        first = proxy.add(HoldBack(named("EVALSHA")))
        running = kit.start(lambda: cache.get_or_load(1, kit.loader(OLD)))
        await running.result()
        second = proxy.add(HoldBack(named("EVALSHA"), nth=2))
        await got(cache.invalidate(1))
        running = kit.start(lambda: cache.get_or_load(1, kit.loader(OLD)))
        await running.result()
        await got(cache.invalidate(1))
        first.deliver()
        second.deliver()
        await asyncio.sleep(0.05)
        assert await got(cache.get(1)) is None


async def test_a_ticket_whose_reply_was_lost_for_good_is_given_back(
    colour: Colour, proxy: Proxy, store: Any
) -> None:
    async with opened_kit(colour, proxy.url) as kit:
        cache = kit.declare()
        await got(cache.get_or_load(0, kit.loader(OLD)))  # scripts and connections are there
        asking: list[Any] = [
            lambda: cache.get_or_load(1, kit.loader(OLD)),
            lambda: cache.get_or_load_many([1], kit.loader({1: OLD})),
        ]
        for ask in asking:
            proxy.clear()
            proxy.add(DropReply(named("EVALSHA"), nth=1))
            proxy.add(DropReply(named("EVALSHA"), nth=2))
            assert await got(ask()) in (OLD, {1: OLD})
            assert store.keys("*") == [b":profile:0"]


async def test_many_tickets_are_given_back_to_a_silent_server_as_quickly_as_one(
    colour: Colour, server: Server
) -> None:
    async with opened_kit(colour, server.url, socket_timeout=0.1) as kit:
        cache = kit.declare()
        await got(cache.get(0))

        def load(_: Any) -> Any:
            server.pause()
            raise KeyError

        began = time.monotonic()
        try:
            with pytest.raises(KeyError):
                await got(cache.get_or_load_many(range(60), load))
        finally:
            server.resume()
        assert time.monotonic() - began < 3  # and not sixty timeouts


async def test_many_writes_wait_for_a_silent_server_no_longer_than_one(
    colour: Colour, server: Server
) -> None:
    async with opened_kit(colour, server.url, socket_timeout=0.1) as kit:
        cache = kit.declare()
        server.pause()
        began = time.monotonic()
        try:
            await got(cache.set_many(dict.fromkeys(range(60), OLD)))
        finally:
            server.resume()
        assert time.monotonic() - began < 3  # and not sixty timeouts


async def test_many_invalidations_wait_for_a_silent_server_no_longer_than_one(
    colour: Colour, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found here: the sync cache asked again for each key by itself, one after the other."""
    monkeypatch.setattr(delivery, "_BUDGET", 0.4)
    async with opened_kit(colour, server.url, socket_timeout=0.1) as kit:
        cache = kit.declare()
        server.pause()
        began = time.monotonic()
        try:
            with pytest.raises(StoreError):
                await got(cache.invalidate(*range(60)))
        finally:
            server.resume()
        assert time.monotonic() - began < 3  # and not sixty timeouts


def test_a_late_copy_of_the_question_for_a_tag_makes_another_nonce(store: Any) -> None:
    driver, tag = SyncDriver.of(store), "{:profile}:tag:a"
    question: Operation[bytes] = Operation(READ_TAG, (tag,), (60_000, b"r" * 32), bytes)
    nonce = driver.execute(question)
    assert driver.execute(question) == nonce
    store.delete(tag)  # invalidated: what was stored under the nonce must stay a miss
    assert driver.execute(question) != nonce


async def test_a_write_that_was_not_answered_is_not_sent_again(
    colour: Colour, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_kit(colour, proxy.url) as kit:
        cache = kit.declare()
        await got(cache.create(1, OLD))
        proxy.add(DropReply(named("EVALSHA")))
        await got(cache.create(1, NEW))
        assert "no answer" in caplog.text
        assert await got(cache.get(1)) == NEW
        proxy.clear()
        proxy.add(Cut(containing(":profile:1"), refuse_for=0.2))
        await got(cache.create(1, OLD))
        assert await got(cache.get(1)) is None


async def test_many_writes_that_were_not_answered_are_not_sent_again(
    colour: Colour, proxy: Proxy, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_kit(colour, proxy.url) as kit:
        cache = kit.declare()
        await got(cache.create(1, OLD))
        proxy.add(DropReply(named("EVALSHA"), nth=2))
        running = kit.start(lambda: cache.set_many({1: NEW, 2: NEW}))
        await running.result()
        assert "no answer" in caplog.text
    sent = sum(
        one["calls"] for name, one in store.info("commandstats").items() if "evalsha" in name
    )
    assert sent <= 3  # create, and each of the many once


async def test_a_wake_that_is_forbidden_costs_time_and_nothing_else(
    colour: Colour, servers: Any
) -> None:
    server = servers.clean(acl="~* +@all resetchannels")
    async with opened_kit(colour, server.url) as one, opened_kit(colour, server.url) as two:
        first, second, gate = one.declare(), two.declare(), one.gate(OLD)
        winner = one.start(lambda: first.get_or_load(1, gate))
        await one.entered(gate)
        loser = two.start(lambda: second.get_or_load(1, two.loader(NEW)))
        await asyncio.sleep(0.1)
        gate.opened.set()
        assert await winner.result() == OLD
        assert await loser.result() == OLD


def test_an_unknown_outcome_is_a_store_error() -> None:
    assert issubclass(OutcomeUnknown, StoreError)
