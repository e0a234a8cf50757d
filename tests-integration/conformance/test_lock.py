"""DistributedLock, on every server, through every client, in both colours.

Each promise is also broken once: `test_the_bodies_bite` runs bodies of this module on a lock that
grants to everybody, and they fail.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from conformance.forks import in_a_fork
from conformance.stage import LONG, SHORT, Rig, entered, got, ms
from fencekit import (
    AsyncDistributedLock,
    DistributedLock,
    FenceToken,
    HandleForked,
    LockNotAcquired,
    LockNotOwned,
)


async def _wait_for(lock: Any) -> Any:
    return await got(lock.acquire("job", ttl=LONG, wait=LONG))


async def test_one_holder(rig: Rig) -> None:
    lock, other = rig.lock(), rig.lock(rig.another_client())
    handle = await got(lock.acquire("job", ttl=LONG, owner_id="me"))
    assert (handle.resource, handle.owner_id, handle.ttl) == ("job", "me", LONG)
    assert isinstance(handle.token, FenceToken)
    assert handle.token.resource == "job"
    assert ms(0) < handle.remaining() <= LONG
    assert not handle.lost.is_set()
    with pytest.raises(LockNotAcquired) as refused:
        await got(other.acquire("job", ttl=LONG))
    assert (refused.value.resource, refused.value.holder) == ("job", "me")
    assert 25_000 < refused.value.retry_after_ms <= 30_000
    assert await got(lock.try_acquire("job", ttl=LONG)) is None
    await got(lock.release(handle))
    async with entered(other.hold("job", ttl=LONG)) as successor:
        assert successor.token > handle.token


async def test_tokens_rise_whatever_is_lost(rig: Rig) -> None:
    lock, tokens = rig.lock(), []
    for round_ in range(6):
        async with entered(lock.hold("job", ttl=LONG)) as handle:
            tokens.append(handle.token)
        if round_ == 3:
            rig.backend.lose_data()
    assert tokens == sorted(set(tokens))
    assert await got(lock.advance_fence("job", at_least=tokens[-1] + 1000)) == tokens[-1] + 1000
    async with entered(lock.hold("job", ttl=LONG)) as handle:
        assert handle.token > tokens[-1] + 1000


async def test_a_release_has_one_verdict(rig: Rig) -> None:
    lock = rig.lock()
    released = await got(lock.acquire("job", ttl=LONG))
    await got(released.release())
    lapsed = await got(lock.acquire("job", ttl=ms(60)))
    await rig.sleep(0.1)
    successor = await got(lock.acquire("job", ttl=LONG))
    await got(released.release())  # silent, however often
    for _ in range(2):
        with pytest.raises(LockNotOwned):
            await got(lapsed.release())
    with pytest.raises(LockNotOwned):
        await got(lapsed.extend())
    assert lapsed.lost.is_set()
    info = await got(lock.inspect("job"))
    assert (info.token, info.lapsed) == (successor.token, (lapsed.token,))


async def test_a_lease_is_extended_and_never_shortened(rig: Rig) -> None:
    lock = rig.lock()
    handle = await got(lock.acquire("job", ttl=ms(500)))
    await got(handle.extend(LONG))
    await got(handle.extend(ms(100)))
    info = await got(lock.inspect("job"))
    assert info.ttl_ms > 25_000
    assert handle.remaining() > ms(25_000)


async def test_a_lease_is_renewed_while_it_is_held(rig: Rig) -> None:
    lock = rig.lock()
    lost: list[Any] = []
    async with entered(lock.hold("job", ttl=ms(1200), on_lost=lost.append)) as handle:
        await rig.sleep(1.5)
        assert await got(lock.try_acquire("job", ttl=LONG)) is None
        assert not handle.lost.is_set()
    assert not lost


async def test_a_lost_lease_is_told(rig: Rig) -> None:
    lock = rig.lock()
    told: list[Any] = []
    handle = await got(lock.acquire("job", ttl=ms(300), renew=True, on_lost=told.append))
    assert await got(lock.force_release("job"))
    await rig.until(lambda: told, timeout=2)
    assert told == [handle]
    assert handle.lost.is_set()
    with pytest.raises(LockNotOwned):
        await got(handle.release())


async def test_a_release_wakes_a_waiter(rig: Rig) -> None:
    lock = rig.lock()
    handle = await got(lock.acquire("job", ttl=LONG))

    async def wait(client: Any) -> float:
        async with entered(rig.lock(client).hold("job", ttl=LONG, wait=LONG)):
            return time.monotonic()

    for client in (rig.client, rig.another_client()):
        waiter = rig.start(wait(client))
        await rig.sleep(0.15)
        assert not waiter.done
        released_at = time.monotonic()
        await got(handle.release())
        assert await waiter.result() - released_at < 1.0
        handle = await got(lock.acquire("job", ttl=LONG))


async def test_an_expiry_wakes_a_waiter(rig: Rig) -> None:
    lock = rig.lock()
    await got(lock.acquire("job", ttl=ms(400)))
    began = time.monotonic()
    async with entered(lock.hold("job", ttl=LONG, wait=LONG)):
        assert 0.3 < time.monotonic() - began < 1.4


async def test_a_wait_ends_in_time(rig: Rig) -> None:
    lock = rig.lock()
    await got(lock.acquire("job", ttl=LONG))
    began = time.monotonic()
    with pytest.raises(LockNotAcquired):
        await got(lock.acquire("job", ttl=LONG, wait=SHORT))
    assert 0.1 < time.monotonic() - began < 1.2


async def test_nobody_enters_beside_a_holder(rig: Rig) -> None:
    inside: list[FenceToken] = []
    tokens: list[FenceToken] = []

    async def work(lock: Any) -> None:
        for _ in range(3):
            async with entered(lock.hold("job", ttl=LONG, wait=LONG)) as handle:
                inside.append(handle.token)
                await rig.sleep(0.002)
                assert inside == [handle.token]
                tokens.append(handle.token)
                inside.clear()

    clients = (rig.client, rig.another_client())
    workers = [rig.start(work(rig.lock(client))) for client in clients for _ in range(3)]
    errors: list[AssertionError] = []
    for worker in workers:  # all of them, so that none is left in the loop
        try:
            await worker.result()
        except AssertionError as error:
            errors.append(error)
    assert not errors
    assert len(tokens) == 18
    assert tokens == sorted(tokens)


async def test_the_exception_of_the_body_wins(rig: Rig) -> None:
    lock = rig.lock()

    async def work(error: Exception | None = None) -> None:
        async with entered(lock.hold("job", ttl=LONG)):
            await got(lock.force_release("job"))
            if error is not None:
                raise error

    with pytest.raises(ZeroDivisionError):
        await work(ZeroDivisionError())
    with pytest.raises(LockNotOwned):
        await work()
    assert await got(lock.force_release("job")) is False


async def test_scripts_may_be_flushed_between_any_two_operations(rig: Rig) -> None:
    lock, flush = rig.lock(), rig.backend.forget_scripts
    flush()
    handle = await got(lock.acquire("job", ttl=LONG))
    flush()
    await got(handle.extend(LONG))
    flush()
    assert await got(lock.try_acquire("job", ttl=LONG, wait=ms(20))) is None
    flush()
    assert (await got(lock.inspect("job"))).token == handle.token
    flush()
    await got(handle.release())
    flush()
    assert await got(lock.force_release("job")) is False
    flush()
    key = lock.lock_key("job")
    async with entered(lock.hold("job", ttl=ms(3000))):
        await rig.sleep(0.1)
        flush()
        left = rig.ask("PTTL", key)
        while rig.ask("PTTL", key) <= left:  # until it is renewed; -2 once it is lost
            assert rig.ask("PTTL", key) > 0
            await rig.sleep(0.05)


async def test_connections_may_be_closed_between_any_two_operations(rig: Rig) -> None:
    lock, drop = rig.lock(), rig.backend.drop_connections
    handle = await got(lock.acquire("job", ttl=LONG))
    drop()
    await got(handle.extend(LONG))
    waiter = rig.start(_wait_for(lock))
    await rig.sleep(0.1)
    drop()
    await rig.sleep(0.1)
    await got(handle.release())
    successor = await waiter.result()
    drop()
    await got(successor.release())


async def test_a_fork_starts_afresh(rig: Rig) -> None:
    lock = rig.lock()
    handle = await got(lock.acquire("job", ttl=LONG, renew=True))
    waiter = rig.start(_wait_for(lock))
    await rig.sleep(0.05)

    async def child() -> None:
        assert await got(lock.try_acquire("job", ttl=LONG)) is None
        with pytest.raises(HandleForked):
            await got(handle.release())
        async with entered(lock.hold("other", ttl=LONG)) as own:
            assert own.owner_id != handle.owner_id
            assert await got(lock.try_acquire("other", ttl=LONG, wait=ms(20))) is None

    in_a_fork(lambda: rig.run(child()))
    await got(handle.release())
    await got((await waiter.result()).release())


async def test_closing_is_no_end(rig: Rig) -> None:
    lock = rig.lock()
    handle = await got(lock.acquire("job", ttl=LONG))
    assert await got(lock.try_acquire("job", ttl=LONG, wait=ms(10))) is None
    await rig.close_driver()
    await got(handle.release())
    async with entered(lock.hold("job", ttl=LONG)):
        pass


def test_another_loop_has_connections_of_its_own(profile: Any, stage: Any) -> None:
    if profile.colour == "sync":
        pytest.skip("sync clients have no loop")
    backend, made = stage.backend(profile), list[Rig]()

    async def body() -> None:
        rig = made[0] if made else Rig.of(profile, backend)
        made.append(rig)
        lock = rig.lock()
        for _ in range(2):
            async with lock.hold("job", ttl=LONG, wait=LONG):
                assert await lock.try_acquire("job", ttl=LONG, wait=ms(20)) is None
        await rig.close_driver()
        if len(made) == 3:
            await rig.close()

    for _ in range(3):
        asyncio.run(body())


async def test_a_cancelled_waiter_leaves_nothing(rig: Rig) -> None:
    if not rig.is_async:
        pytest.skip("threads are not cancelled")
    lock = rig.lock()
    handle = await lock.acquire("job", ttl=LONG)
    for pause in (0, 0, 0.001, 0.01, 0.1):
        waiters = [asyncio.create_task(lock.acquire("job", ttl=LONG, wait=LONG)) for _ in range(3)]
        await asyncio.sleep(pause)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.wait(waiters)
    await handle.release()
    for turns in range(12):
        taker = asyncio.create_task(lock.acquire("job", ttl=LONG))
        for _ in range(turns):
            await asyncio.sleep(0)
        taker.cancel()
        await asyncio.wait([taker])
        if not taker.cancelled():
            await taker.result().release()
        async with lock.hold("job", ttl=LONG, wait=ms(1000)):
            pass


async def test_a_client_of_the_other_colour_is_refused(rig: Rig) -> None:
    wrong: Any = DistributedLock if rig.is_async else AsyncDistributedLock
    with pytest.raises(TypeError, match="async client" if rig.is_async else "sync client"):
        wrong(rig.client)


_numbers = itertools.count()


class _Generous:
    """A lock that grants to everybody."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)

    def _everybody(self, resource: str, kwargs: dict[str, Any]) -> str:
        kwargs.pop("wait", None)
        return f"{resource}-{next(_numbers)}"

    def acquire(self, resource: str, **kwargs: Any) -> Any:
        return self._lock.acquire(self._everybody(resource, kwargs), **kwargs)

    def try_acquire(self, resource: str, **kwargs: Any) -> Any:
        return self._lock.try_acquire(self._everybody(resource, kwargs), **kwargs)

    def hold(self, resource: str, **kwargs: Any) -> Any:
        return self._lock.hold(self._everybody(resource, kwargs), **kwargs)


async def test_the_bodies_bite(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = rig.lock
    monkeypatch.setattr(rig, "lock", lambda *args: _Generous(honest(*args)))
    for body in (
        test_one_holder,
        test_a_wait_ends_in_time,
        test_nobody_enters_beside_a_holder,
    ):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            await body(rig)
