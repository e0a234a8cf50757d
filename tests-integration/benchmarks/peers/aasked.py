"""The async twin of `asked`: the same questions of an async library, and two more of its tasks."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import redis.asyncio

from benchmarks.peers.asked import (
    DEL,
    HEADSTART,
    KEEP_MS,
    LEASE,
    LIST,
    LONGEST,
    RESULT,
    SET,
    SPREAD,
    TURNS,
    pieces,
)
from harness.children import hear, tell

__all__ = ["aanswer"]

_WARM_UP = 10
_LOADER_SECONDS = 0.05


async def aanswer(contender: str, url: str) -> None:
    """In a child: answer questions until it is killed."""
    client = redis.asyncio.Redis.from_url(url)
    asked = Asked(pieces(contender), client, url)
    asked.set, asked.delete = await client.script_load(SET), await client.script_load(DEL)
    tell("ready")
    while True:
        # On a thread, so that what a library does in the background goes on.
        question, options = await asyncio.to_thread(hear)
        tell("answer", await getattr(asked, question)(**options))


async def turns(
    floor: Callable[[], Awaitable[object]], own: Callable[[], Awaitable[object]], cycles: int
) -> list[list[float]]:
    """Seconds a cycle of the floor and of a contender, for each turn."""
    await _seconds(floor, min(_WARM_UP, cycles))
    await _seconds(own, min(_WARM_UP, cycles))
    return [[await _seconds(floor, cycles), await _seconds(own, cycles)] for _ in range(TURNS)]


async def _seconds(run: Callable[[], Awaitable[object]], cycles: int) -> float:
    began = now = time.perf_counter()
    for done in range(1, cycles + 1):
        await run()
        now = time.perf_counter()
        if now - began > LONGEST:
            return (now - began) / done
    return (now - began) / cycles


async def _let_wait(spread: float) -> None:
    await asyncio.sleep(HEADSTART + random.random() * spread)


class Asked:
    """An async contender under questions; each method is one, and answers in JSON."""

    def __init__(self, module: Any, client: Any, url: str) -> None:
        self.module, self.client, self.url = module, client, url
        self.set = self.delete = ""
        self.fresh = itertools.count()
        self.held: list[Any] = []
        self.waiting: list[asyncio.Task[Any]] = []

    def _lock(self, role: str, name: str, lease: int = LEASE) -> Any:
        return getattr(self.module, role)(self.client, self.url, name, lease)

    async def _set(self, key: str) -> None:
        await self.client.evalsha(self.set, 1, key, "token", KEEP_MS)

    async def _floor(self, key: str = "bare") -> None:
        await self._set(key)
        await self.client.evalsha(self.delete, 1, key)

    async def cycle(self, role: str, cycles: int) -> list[list[float]]:
        """Acquire and release, beside two bare scripts."""
        lock = self._lock(role, "cycle")

        async def own() -> None:
            await lock.release(await lock.acquire())

        return await turns(self._floor, own, cycles)

    async def crowd(self, role: str, cycles: int, tasks: int) -> list[list[float]]:
        """The same of many tasks at once, a name each."""
        locks = [self._lock(role, f"crowd-{number}") for number in range(tasks)]

        async def one(lock: Any) -> None:
            await lock.release(await lock.acquire())

        async def floor() -> None:
            await asyncio.gather(*(self._floor(f"bare-{number}") for number in range(tasks)))

        async def own() -> None:
            await asyncio.gather(*(one(lock) for lock in locks))

        return await turns(floor, own, cycles)

    async def hold(self, role: str, name: str, lease: int = LEASE) -> float:
        """Take a lock and keep it; tells when it was had."""
        lock = self._lock(role, name, lease)
        self.held = [lock, await lock.acquire()]
        return time.monotonic()

    async def give(self) -> float:
        """Release what is held; tells when that began."""
        lock, held = self.held
        began = time.monotonic()
        await lock.release(held)
        return began

    async def take(self, role: str, name: str, lease: int = LEASE) -> float:
        """Wait for a lock; tells when it was had."""
        lock = self._lock(role, name, lease)
        held = await lock.acquire()
        had = time.monotonic()
        await lock.release(held)
        return had

    async def push(self) -> float:
        """The floor's `give`."""
        began = time.monotonic()
        await self.client.lpush(LIST, "x")
        return began

    async def pop(self) -> float:
        """The floor's `take`."""
        assert await self.client.blpop([LIST], timeout=4) is not None
        return time.monotonic()

    async def relay(
        self, role: str, rounds: int, seconds: float, spread: float = SPREAD
    ) -> list[list[float]]:
        """Hand-offs between two tasks of this process: a list's, and the lock's."""
        found: list[list[float]] = []
        until = time.monotonic() + seconds
        while len(found) < rounds and time.monotonic() < until:
            popping = asyncio.create_task(self.pop())
            await _let_wait(spread)
            began = await self.push()
            least = await popping - began
            await self.hold(role, "relay")
            taking = asyncio.create_task(self.take(role, "relay"))
            await _let_wait(spread)
            began = await self.give()
            found.append([least, await taking - began])
        return found

    async def idle(self, role: str, name: str, waiters: int) -> int:
        """Have so many tasks wait, until this process is killed."""
        locks = [self._lock(role, name) for _ in range(waiters)]
        self.waiting = [asyncio.create_task(lock.acquire()) for lock in locks]
        return waiters

    async def still(self) -> int:
        """How many of them still wait."""
        return sum(not task.done() for task in self.waiting)

    async def first(self, role: str, cycles: int) -> list[list[float]]:
        """Work done for the first time, beside two bare scripts."""
        once = getattr(self.module, role)(self.client, self.url, lambda: RESULT)

        async def floor() -> None:
            key = f"bare:{next(self.fresh)}"
            await self._set(key)
            await self._set(key)

        return await turns(floor, lambda: once(f"key-{next(self.fresh)}"), cycles)

    async def replay(self, role: str, cycles: int) -> list[list[float]]:
        """The same asked for again, beside one bare script."""
        once = getattr(self.module, role)(self.client, self.url, lambda: RESULT)
        assert await once("key") == await once("key") == RESULT
        return await turns(lambda: self._set("bare"), lambda: once("key"), cycles)

    async def hit(self, role: str, cycles: int) -> list[list[float]]:
        """A hit, beside GET and validation."""
        cache, profile = self._cache(role)
        await cache.set("1", profile())
        await self.client.set("bare", profile().model_dump_json())
        assert await cache.get("1") == profile()
        return await turns(lambda: self._bare_get("bare"), lambda: cache.get("1"), cycles)

    async def write(self, role: str, cycles: int) -> list[list[float]]:
        """A write, beside SET and dump."""
        cache, profile = self._cache(role)
        value = profile()
        return await turns(
            lambda: self._bare_set("bare", value), lambda: cache.set("1", value), cycles
        )

    async def fill(self, role: str, cycles: int) -> list[list[float]]:
        """A miss that is filled, beside GET and SET by hand."""
        cache, profile = self._cache(role)
        value = profile()

        async def load() -> Any:
            return value

        async def floor() -> None:
            key = f"bare:{next(self.fresh)}"
            if await self.client.get(key) is None:
                await self._bare_set(key, value)

        async def own() -> None:
            assert await cache.load(f"fill-{next(self.fresh)}", load) == value

        return await turns(floor, own, cycles)

    async def many(self, role: str, cycles: int, count: int) -> list[list[float]]:
        """Many hits at once, beside as many GETs."""
        cache, profile = self._cache(role)
        keys = [str(number) for number in range(count)]
        for key in keys:
            await cache.set(key, profile())
            await self.client.set(f"bare:{key}", profile().model_dump_json())
        assert len(await cache.many(keys)) == count

        async def floor() -> None:
            for key in keys:
                await self._bare_get(f"bare:{key}")

        return await turns(floor, lambda: cache.many(keys), cycles)

    async def stampede(self, role: str, callers: int) -> list[int]:
        """How often a loader runs for so many callers at once, and how many have an answer."""
        cache, profile = self._cache(role)
        calls = 0

        async def load() -> Any:
            nonlocal calls
            calls += 1
            await asyncio.sleep(_LOADER_SECONDS)
            return profile()

        got = await asyncio.gather(
            *(cache.load("stampede", load) for _ in range(callers)), return_exceptions=True
        )
        return [calls, sum(value == profile() for value in got)]

    async def stale(self, role: str, races: int) -> int:
        """Stale values, of loads that read before a change and end after its invalidation."""
        cache, profile = self._cache(role)
        found = 0
        for number in range(races):
            reading, ended = asyncio.Event(), asyncio.Event()

            async def old(
                number: int = number,
                reading: asyncio.Event = reading,
                ended: asyncio.Event = ended,
            ) -> Any:
                value = profile(number)
                reading.set()
                await ended.wait()
                return value

            async def new() -> Any:
                return profile(1_000_000)

            key = f"raced-{number}"
            running = asyncio.create_task(cache.load(key, old))
            await reading.wait()
            await cache.forget(key)
            ended.set()
            await running
            found += (await cache.load(key, new)).id == number
        return found

    def _cache(self, role: str) -> tuple[Any, Any]:
        # Not at the top: where only locks are asked there is no pydantic.
        from benchmarks.profile import Profile, profile  # noqa: PLC0415

        self.validate = Profile.model_validate_json
        return getattr(self.module, role)(self.client, self.url), profile

    async def _bare_get(self, key: str) -> None:
        raw = await self.client.get(key)
        assert raw is not None
        self.validate(raw)

    async def _bare_set(self, key: str, value: Any) -> None:
        await self.client.set(key, value.model_dump_json(), ex=600)
