"""Tasks that are cancelled at any moment: what began is given back, what was done stays done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.wire import Wire
from fencekit.idempotency import AsyncIdempotencyGuard, IdempotencyGuard
from harness.claims import Record
from harness.clients import aopened
from harness.faults import Delay
from harness.proxy import Proxy
from harness.waiting import eventually_async

HOUR = timedelta(hours=1)
DELAY = 0.04


@pytest_asyncio.fixture
async def slow(proxy: Proxy) -> AsyncIterator[AsyncIdempotencyGuard]:
    """A guard whose replies come late."""
    async with aopened(proxy.url) as client:
        guard = AsyncIdempotencyGuard(client)
        await guard.run("warm-up", lambda: 7, ttl=HOUR)
        async with guard.begin("warm-up-2", ttl=HOUR) as claim:
            await claim.fail("Oops")
        delay = proxy.add(Delay(DELAY))
        yield guard
        proxy.remove(delay)
        await AsyncDriver.of(client).aclose()


@pytest.mark.parametrize("after", [0.0, 0.001, DELAY / 2, DELAY * 0.99, DELAY * 1.01])
async def test_a_cancelled_begin_is_given_back_within_a_second(
    slow: AsyncIdempotencyGuard, record: Record, after: float
) -> None:
    task = asyncio.ensure_future(slow.begin("job", ttl=HOUR).__aenter__())
    await asyncio.sleep(after)
    task.cancel()
    try:
        claim = await task
    except asyncio.CancelledError:
        await asyncio.sleep(DELAY * 3)
        await eventually_async(lambda: record.state is None)
        assert record.begin("next", max_attempts=1)[0] == "begun", "uncounted"
    else:
        await claim.release()


async def test_a_run_that_is_cancelled_at_every_step(
    slow: AsyncIdempotencyGuard, record: Record
) -> None:
    """Stepped through in pieces: the work is done at most once, and never lost halfway."""
    for piece in range(14):
        runs: list[int] = []

        async def work(runs: list[int] = runs) -> int:
            await asyncio.sleep(DELAY / 2)
            runs.append(1)
            return len(runs)

        task = asyncio.ensure_future(slow.run("job", work, ttl=HOUR))
        await asyncio.sleep(piece * DELAY / 4)
        task.cancel()
        await asyncio.wait([task])
        if runs:
            await eventually_async(lambda: record.state == "done")
        else:
            await eventually_async(lambda: record.state in {None, "retryable"})
        assert await slow.run("job", work, ttl=HOUR) == 1
        assert runs == [1], piece
        assert await slow.clear("job")


async def test_a_cancelled_completion_is_sent_again_when_the_with_is_left(
    slow: AsyncIdempotencyGuard, record: Record
) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with slow.begin("job", ttl=HOUR) as claim:
            inside.set()
            await claim.complete(7)

    task = asyncio.ensure_future(work())
    await inside.wait()
    await asyncio.sleep(DELAY / 2)  # it is sent, and its answer under way
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert record.state == "done"
    assert (await slow.begin("job", ttl=HOUR)).result == 7


async def test_a_cancelled_body_is_a_failed_attempt(
    slow: AsyncIdempotencyGuard, record: Record
) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with slow.begin("job", ttl=HOUR):
            inside.set()
            await asyncio.sleep(10)

    task = asyncio.ensure_future(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert record.state == "retryable"
    assert record.fields["error"] == "CancelledError"


@pytest.mark.parametrize("after", [0.001, DELAY / 2, DELAY * 1.01])
async def test_cancelled_begins_of_many_are_given_back(
    slow: AsyncIdempotencyGuard, redis_client: Any, after: float
) -> None:
    keys = [f"k{n}" for n in range(10)]
    task = asyncio.ensure_future(slow.begin_many(keys, ttl=HOUR))
    await asyncio.sleep(after)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        return
    await asyncio.sleep(DELAY * 3)
    for key in keys:
        assert Record(redis_client, key).begin("next", max_attempts=1)[0] == "begun"


async def test_cancelled_completions_of_many_are_renewed_no_more(
    slow: AsyncIdempotencyGuard,
) -> None:
    """Found here: nobody held them any more, and nobody else could take the work over."""
    claims = await slow.begin_many([f"k{n}" for n in range(3)], ttl=HOUR)
    task = asyncio.ensure_future(slow.complete_many([(claim, 7) for claim in claims]))
    await asyncio.sleep(DELAY / 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [claim._kept for claim in claims] == [None] * 3


def test_interrupted_completions_of_many_are_renewed_no_more(
    redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = IdempotencyGuard(redis_client)
    claims = guard.begin_many([f"k{n}" for n in range(3)], ttl=HOUR)
    with monkeypatch.context() as broken:
        broken.setattr(Wire, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            guard.complete_many([(claim, 7) for claim in claims])
    assert [claim._kept for claim in claims] == [None] * 3
    guard.complete_many([(claim, 7) for claim in claims])
    assert guard.get_result("k2") == 7


def test_interrupted_begins_of_many_are_withdrawn(
    redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = IdempotencyGuard(redis_client)
    receive, keys = Wire.receive, [f"k{n}" for n in range(3)]
    guard.run("warm-up", lambda: 7, ttl=HOUR)

    def interrupted_once(wire: Wire, count: int) -> list[Any]:
        broken.undo()
        assert receive(wire, count)
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(Wire, "receive", interrupted_once)
        with pytest.raises(KeyboardInterrupt):
            guard.begin_many(keys, ttl=HOUR)
    for key in keys:
        assert Record(redis_client, key).begin("next", max_attempts=1)[0] == "begun"


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt
