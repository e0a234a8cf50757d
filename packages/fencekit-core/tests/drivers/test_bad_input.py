"""What cannot be right is refused before a byte is sent, by a ValueError or TypeError."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import redis
import redis.asyncio

from fencekit import (
    AsyncDistributedLock,
    AsyncFenceGate,
    DistributedLock,
    FenceGate,
    FenceToken,
    OutcomeUnknown,
    RedisLock,
)
from fencekit.drivers.aio import AsyncDriver
from fencekit.protocol.fence import set_value
from fencekit.protocol.token import MAX_SHOWN_TOKEN
from harness.clients import aopened, opened

if TYPE_CHECKING:
    from harness.proxy import Proxy
    from harness.servers import Server
    from harness.topologies import Cluster

SECOND = timedelta(seconds=1)
NAMES: list[Any] = [
    pytest.param("", ValueError, id="empty"),
    pytest.param("a b", ValueError, id="blank"),
    pytest.param("a\n", ValueError, id="newline"),
    pytest.param("a\x00", ValueError, id="control"),
    pytest.param("a\x85b", ValueError, id="C1 control"),
    pytest.param("a\u2003b", ValueError, id="wide blank"),
    pytest.param("}a", ValueError, id="brace"),
    pytest.param("a" * 513, ValueError, id="513 bytes"),
    pytest.param("ö" * 257, ValueError, id="514 bytes"),
    pytest.param("\ud800", ValueError, id="surrogate"),
    pytest.param(b"a", TypeError, id="bytes"),
    pytest.param(5, TypeError, id="int"),
    pytest.param(None, TypeError, id="None"),
    pytest.param(["a"], TypeError, id="list"),
]
DURATIONS: list[Any] = [
    pytest.param(timedelta(0), ValueError, id="zero"),
    pytest.param(timedelta(seconds=-1), ValueError, id="negative"),
    pytest.param(timedelta(days=4000), ValueError, id="eleven years"),
    pytest.param(timedelta.max, ValueError, id="max"),
    pytest.param(5, TypeError, id="int"),
    pytest.param(0.5, TypeError, id="float"),
    pytest.param("5s", TypeError, id="str"),
    pytest.param(None, TypeError, id="None"),
]
OWNERS: list[Any] = [
    pytest.param("", ValueError, id="empty"),
    pytest.param("a:b", ValueError, id="colon"),
    pytest.param("a b", ValueError, id="blank"),
    pytest.param("a" * 129, ValueError, id="129 bytes"),
    pytest.param("\ud800", ValueError, id="surrogate"),
    pytest.param(b"me", TypeError, id="bytes"),
    pytest.param(7, TypeError, id="int"),
]
NO_TOKENS: list[Any] = [
    pytest.param(7, id="int"),
    pytest.param(True, id="bool"),
    pytest.param("7", id="str"),
    pytest.param(7.0, id="float"),
    pytest.param(None, id="None"),
]
KEYS: list[Any] = [
    pytest.param("", ValueError, id="empty"),
    pytest.param("fencekit:{a}:lock", ValueError, id="own lock"),
    pytest.param("fencekit:{any}:fence", ValueError, id="own fence"),
    pytest.param("fencekit:{any}:idem", ValueError, id="own record"),
    pytest.param("\ud800", ValueError, id="surrogate"),
    pytest.param(b"k", TypeError, id="bytes"),
    pytest.param(1, TypeError, id="int"),
    pytest.param(None, TypeError, id="None"),
]
VALUES: list[Any] = [
    pytest.param(None, TypeError, id="None"),
    pytest.param(True, TypeError, id="bool"),
    pytest.param(["v"], TypeError, id="list"),
    pytest.param("\ud800", ValueError, id="surrogate"),
]


class Pair:
    """One colour's lock and gate, called alike."""

    def __init__(self, lock: Any, gate: Any, raw: Any) -> None:
        self.lock = lock
        self.gate = gate
        self.raw = raw
        self.token = FenceToken(5, resource="a")

    async def do(self, call: Callable[[], Any]) -> Any:
        """Call, and await what it returns if it is to be awaited."""
        result = call()
        return await result if asyncio.iscoroutine(result) else result


@pytest_asyncio.fixture(params=["sync", "async"])
async def pair(request: pytest.FixtureRequest, proxy: Proxy) -> AsyncIterator[Pair]:
    if request.param == "sync":
        with opened(proxy.url) as client:
            yield Pair(DistributedLock(client), FenceGate(client), client)
    else:
        async with aopened(proxy.url) as client:
            yield Pair(AsyncDistributedLock(client), AsyncFenceGate(client), client)


async def refuses(
    pair: Pair, proxy: Proxy, error: type[Exception], call: Callable[[], Any]
) -> None:
    """Check that a call raises, with a message, before anything is sent."""
    with pytest.raises(error, match=r"\S+ \S+") as raised:
        await pair.do(call)
    # Not a ValueError by way of the encoder: that would not say which argument it was.
    assert not isinstance(raised.value, UnicodeError)
    assert not proxy.commands, [command.name for command in proxy.commands]


@pytest.mark.parametrize(("name", "error"), NAMES)
async def test_names(pair: Pair, proxy: Proxy, name: Any, error: type[Exception]) -> None:
    lock, gate = pair.lock, pair.gate
    for call in (
        lambda: lock.acquire(name, ttl=SECOND),
        lambda: lock.try_acquire(name, ttl=SECOND),
        lambda: lock.inspect(name),
        lambda: lock.force_release(name),
        lambda: lock.advance_fence(name, at_least=1),
        lambda: lock.lock_key(name),
        lambda: gate.current_max(name),
        lambda: FenceToken(1, resource=name),
    ):
        await refuses(pair, proxy, error, call)


@pytest.mark.parametrize(("duration", "error"), DURATIONS)
async def test_durations(pair: Pair, proxy: Proxy, duration: Any, error: type[Exception]) -> None:
    lock, gate = pair.lock, pair.gate
    for call in (
        lambda: lock.acquire("a", ttl=duration),
        lambda: lock.try_acquire("a", ttl=duration),
        lambda: type(lock)(pair.raw, fence_retention=duration),
        lambda: type(lock)(pair.raw, replica_timeout=duration),
        lambda: type(gate)(pair.raw, fence_retention=duration),
    ):
        await refuses(pair, proxy, error, call)
    if duration is not None:
        await refuses(pair, proxy, error, lambda: lock.acquire("a", ttl=SECOND, max_hold=duration))
        await refuses(
            pair, proxy, error, lambda: gate.set_if_fresh(pair.token, "k", "v", ttl=duration)
        )


async def test_extending_by_no_duration(pair: Pair, proxy: Proxy) -> None:
    handle = await pair.do(lambda: pair.lock.acquire("a", ttl=SECOND))
    proxy.clear()
    for duration, error in ((timedelta(0), ValueError), (5, TypeError)):
        await refuses(pair, proxy, error, lambda: pair.lock.extend(handle, ttl=duration))  # noqa: B023 - called at once
    await pair.do(handle.release)


@pytest.mark.parametrize(
    ("terms", "error"),
    [
        pytest.param({"wait": timedelta(seconds=-1)}, ValueError, id="negative"),
        pytest.param({"wait": 5}, TypeError, id="int"),
        pytest.param({"blocking": True}, ValueError, id="blocking without wait"),
    ],
)
async def test_waiting(pair: Pair, proxy: Proxy, terms: Any, error: type[Exception]) -> None:
    await refuses(pair, proxy, error, lambda: pair.lock.acquire("a", ttl=SECOND, **terms))


@pytest.mark.parametrize(("owner", "error"), OWNERS)
async def test_owner_ids(pair: Pair, proxy: Proxy, owner: Any, error: type[Exception]) -> None:
    await refuses(pair, proxy, error, lambda: pair.lock.acquire("a", ttl=SECOND, owner_id=owner))


@pytest.mark.parametrize("token", NO_TOKENS)
async def test_tokens_of_another_kind(pair: Pair, proxy: Proxy, token: Any) -> None:
    gate = pair.gate
    for call in (
        lambda: gate.set_if_fresh(token, "k", "v"),
        lambda: gate.delete_if_fresh(token, "k"),
        lambda: gate.hset_if_fresh(token, "k", {"f": "v"}),
        lambda: gate.check(token),
        lambda: gate.check_and_advance(token),
    ):
        await refuses(pair, proxy, TypeError, call)


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (MAX_SHOWN_TOKEN + 1, ValueError),
        (2**60, ValueError),
        (True, TypeError),
        (1.5, TypeError),
        ("1000", TypeError),
    ],
)
async def test_numbers_that_no_token_may_have(
    pair: Pair, proxy: Proxy, number: Any, error: type[Exception]
) -> None:
    await refuses(pair, proxy, error, lambda: pair.lock.advance_fence("a", at_least=number))


@pytest.mark.parametrize(("key", "error"), KEYS)
async def test_keys(pair: Pair, proxy: Proxy, key: Any, error: type[Exception]) -> None:
    gate, token = pair.gate, pair.token
    for call in (
        lambda: gate.set_if_fresh(token, key, "v"),
        lambda: gate.delete_if_fresh(token, key),
        lambda: gate.hset_if_fresh(token, key, {"f": "v"}),
    ):
        await refuses(pair, proxy, error, call)


@pytest.mark.parametrize(("value", "error"), VALUES)
async def test_values(pair: Pair, proxy: Proxy, value: Any, error: type[Exception]) -> None:
    gate, token = pair.gate, pair.token
    await refuses(pair, proxy, error, lambda: gate.set_if_fresh(token, "k", value))
    await refuses(pair, proxy, error, lambda: gate.hset_if_fresh(token, "k", {"f": value}))


@pytest.mark.parametrize(
    ("mapping", "error"),
    [
        pytest.param({}, ValueError, id="empty"),
        pytest.param({1: "v"}, TypeError, id="int field"),
        pytest.param({b"f": "v"}, TypeError, id="bytes field"),
        pytest.param({"\ud800": "v"}, ValueError, id="surrogate field"),
        pytest.param([("f", "v")], TypeError, id="pairs"),
        pytest.param("fv", TypeError, id="str"),
    ],
)
async def test_mappings(pair: Pair, proxy: Proxy, mapping: Any, error: type[Exception]) -> None:
    await refuses(pair, proxy, error, lambda: pair.gate.hset_if_fresh(pair.token, "k", mapping))


@pytest.mark.parametrize("handle", [None, "handle", 7, FenceToken(7, resource="a")], ids=repr)
async def test_handles(pair: Pair, proxy: Proxy, handle: Any) -> None:
    await refuses(pair, proxy, TypeError, lambda: pair.lock.release(handle))
    await refuses(pair, proxy, TypeError, lambda: pair.lock.extend(handle, ttl=SECOND))


async def test_handles_of_the_other_colour(server: Server) -> None:
    with opened(server.url) as client:
        sync = DistributedLock(client)
        async with aopened(server.url) as aclient:
            lock = AsyncDistributedLock(aclient)
            theirs, ours = sync.acquire("a", ttl=SECOND), await lock.acquire("b", ttl=SECOND)
            with pytest.raises(TypeError, match="expected a AsyncLockHandle, not LockHandle"):
                await lock.release(theirs)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="expected a LockHandle, not AsyncLockHandle"):
                sync.release(ours)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("terms", "error"),
    [
        pytest.param({"prefix": ""}, ValueError, id="empty prefix"),
        pytest.param({"prefix": "a{b"}, ValueError, id="brace in the prefix"),
        pytest.param({"prefix": "a b"}, ValueError, id="blank in the prefix"),
        pytest.param({"prefix": b"a"}, TypeError, id="bytes prefix"),
        pytest.param({"min_replicas": -1}, ValueError, id="-1 replicas"),
        pytest.param({"min_replicas": True}, TypeError, id="bool replicas"),
        pytest.param({"min_replicas": "1"}, TypeError, id="str replicas"),
    ],
)
async def test_terms_of_a_lock(
    pair: Pair, proxy: Proxy, terms: Any, error: type[Exception]
) -> None:
    await refuses(pair, proxy, error, lambda: type(pair.lock)(pair.raw, **terms))
    if "prefix" in terms:
        await refuses(pair, proxy, error, lambda: type(pair.gate)(pair.raw, **terms))


@pytest.mark.parametrize("hooks", [5, {}, "log", print], ids=["int", "dict", "str", "function"])
async def test_what_are_no_hooks(pair: Pair, proxy: Proxy, hooks: Any) -> None:
    """Found here: they were taken, and an acquire fell over them with the lock in its hands."""
    await refuses(pair, proxy, TypeError, lambda: type(pair.lock)(pair.raw, hooks=hooks))
    await refuses(pair, proxy, TypeError, lambda: type(pair.gate)(pair.raw, hooks=hooks))


async def test_what_could_not_be_told_of_a_loss(pair: Pair, proxy: Proxy) -> None:
    """Found here: it was noticed, in a log, when the lease had been lost."""
    lock = pair.lock
    await refuses(pair, proxy, TypeError, lambda: lock.acquire("a", ttl=SECOND, on_lost="print(1)"))

    async def later(_: object) -> None:
        return

    if isinstance(lock, DistributedLock):
        await refuses(pair, proxy, TypeError, lambda: lock.acquire("a", ttl=SECOND, on_lost=later))
    else:
        handle = await lock.acquire("a", ttl=SECOND, on_lost=later)
        await handle.release()


@pytest.mark.parametrize(
    ("number", "error"),
    [(0, ValueError), (-5, ValueError), (2**53, ValueError), (True, TypeError), ("5", TypeError)],
)
async def test_holders_that_there_cannot_be(
    pair: Pair, proxy: Proxy, number: Any, error: type[Exception]
) -> None:
    """Found here: of a free lock, "freed" was the answer to 0, as its record has no holder."""
    await pair.do((await pair.do(lambda: pair.lock.acquire("a", ttl=SECOND))).release)
    proxy.clear()
    await refuses(pair, proxy, error, lambda: pair.lock.force_release("a", token=number))


@pytest.mark.parametrize(
    ("terms", "error"),
    [
        pytest.param({"key": "\ud800"}, ValueError, id="surrogate"),
        pytest.param({"key": ""}, ValueError, id="empty"),
        pytest.param({"key": b"k"}, TypeError, id="bytes"),
        pytest.param({"timeout": 1e18}, ValueError, id="longer than a server counts"),
        pytest.param({"timeout": float("nan")}, ValueError, id="nan"),
        pytest.param({"timeout": float("inf")}, ValueError, id="inf"),
        pytest.param({"blocking": True, "blocking_timeout": 0}, ValueError, id="zero"),
        pytest.param({"timeout": SECOND}, TypeError, id="timedelta"),
    ],
)
async def test_terms_of_a_bare_lock(proxy: Proxy, terms: Any, error: type[Exception]) -> None:
    async with aopened(proxy.url) as client:
        with pytest.raises(error, match=r"\S+ \S+") as raised:
            await RedisLock(client, **{"key": "k", **terms}).acquire()
    assert not isinstance(raised.value, UnicodeError)
    assert not proxy.commands


# -- clients ------------------------------------------------------------------------------------

SYNC = redis.Redis
ASYNC = redis.asyncio.Redis


@pytest.mark.parametrize("kind", [DistributedLock, FenceGate])
async def test_an_async_client_given_to_a_sync_class(kind: Any) -> None:
    async with ASYNC() as client:
        with pytest.raises(TypeError, match=r"an async client: give it to the async class"):
            kind(client)


@pytest.mark.parametrize("kind", [AsyncDistributedLock, AsyncFenceGate])
def test_a_sync_client_given_to_an_async_class(kind: Any) -> None:
    with (
        SYNC() as client,
        pytest.raises(TypeError, match=r"a sync client: give it to the sync class"),
    ):
        kind(client)


@pytest.mark.parametrize(
    "client",
    [None, "redis://localhost", object(), SYNC],
    ids=["None", "url", "object", "class"],
)
@pytest.mark.parametrize("kind", [DistributedLock, FenceGate, AsyncDistributedLock, AsyncFenceGate])
def test_no_client_at_all(kind: Any, client: Any) -> None:
    with pytest.raises(TypeError, match="expected a client of redis-py or valkey-py"):
        kind(client)


async def test_what_is_made_of_a_client_is_none() -> None:
    """Found here: a lock took a pipeline for its client, and sent everything past it, at once."""
    with SYNC() as client:
        for made in (client.pipeline(), client.pubsub()):
            with pytest.raises(TypeError, match="give the client that it was made of"):
                FenceGate(made)
    async with ASYNC() as aclient:
        for amade in (aclient.pipeline(), aclient.pubsub()):
            with pytest.raises(TypeError, match="give the client that it was made of"):
                AsyncFenceGate(amade)


def test_on_a_cluster_a_key_in_another_slot_says_how_to_name_it(cluster_server: Cluster) -> None:
    with opened(cluster_server.url, topology="cluster") as client:
        lock, gate = DistributedLock(client), FenceGate(client)
        handle = lock.acquire("invoices", ttl=SECOND)
        with pytest.raises(ValueError, match=r"\{invoices\}:status"):
            gate.set_if_fresh(handle.token, "status", "running")
        gate.set_if_fresh(handle.token, "{invoices}:status", "running")
        lock.release(handle)


# -- texts that are not what they seem -----------------------------------------------------------


class Job(str, Enum):
    NIGHTLY = "nightly"


def test_an_enum_is_the_name_that_it_equals(server: Server) -> None:
    """Found here: format() of such an enum depends on the Python version, and so did the key."""
    with opened(server.url) as client:
        lock, gate = DistributedLock(client), FenceGate(client)
        assert lock.lock_key(Job.NIGHTLY) == "fencekit:{nightly}:lock"
        handle = lock.acquire(Job.NIGHTLY, ttl=SECOND, owner_id=Job.NIGHTLY)
        info = lock.inspect("nightly")
        assert info is not None
        assert info.owner_id == "nightly"
        gate.set_if_fresh(handle.token, Job.NIGHTLY, Job.NIGHTLY)
        assert client.get("nightly") == b"nightly"
        lock.release(handle)


async def test_what_cannot_be_written_never_shifts_the_replies_of_others(server: Server) -> None:
    """Found here: it was waited for without having left, and every later reply went astray."""
    async with aopened(server.url) as client:
        lock, driver = AsyncDistributedLock(client), AsyncDriver.of(client)
        handle = await lock.acquire("a", ttl=timedelta(seconds=30))
        broken = set_value(
            "fencekit", handle.token, 1_000, key="k", value="\ud800", ttl_ms=0, remote=False
        )
        outcomes = await asyncio.gather(
            lock.inspect("a"),
            driver.execute(broken),
            lock.inspect("b"),
            lock.inspect("a"),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], ValueError)
        assert not isinstance(outcomes[1], OutcomeUnknown)
        assert outcomes[2] is None
        for info in (outcomes[0], outcomes[3], await lock.inspect("a")):
            assert not isinstance(info, BaseException)
            assert info is not None
            assert info.token == handle.token
        await lock.release(handle)
