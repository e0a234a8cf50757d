"""What a contender of a sync library is asked, in a process of its own.

Runs in the environment of that library, where there is redis-py, the standard library and these
benchmarks, but no fencekit. Each figure comes with its floor, measured by the same client in turns
of a fraction of a second.
"""

from __future__ import annotations

import importlib
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import redis

from harness.children import hear, tell

__all__ = [
    "DEL",
    "HEADSTART",
    "KEEP_MS",
    "LEASE",
    "LIST",
    "LONGEST",
    "RESULT",
    "SET",
    "SPREAD",
    "TURNS",
    "answer",
    "pieces",
]

# The floor: what any lock on this client pays for one key set with a lease, and for its removal.
SET: Final = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])"
DEL: Final = "return redis.call('DEL', KEYS[1])"
KEEP_MS: Final = 300_000
LEASE: Final = 30
LIST: Final = "relay-list"
RESULT: Final = {"id": "evt_1024", "status": "captured", "amount": 1999}
# Floor and contender take so many turns for one answer, none of them longer than this.
TURNS: Final = 3
LONGEST: Final = 0.1
# How long a waiter waits at least before it is given the lock, and how much longer at random: who
# polls does so every tenth of a second, and must not always be met at the same point of it.
HEADSTART: Final = 0.005
SPREAD: Final = 0.1
_WARM_UP: Final = 10
_LOADER_SECONDS: Final = 0.05


def pieces(contender: str) -> Any:
    """The module of a contender."""
    return importlib.import_module(f"benchmarks.peers.contenders.{contender}")


def answer(contender: str, url: str) -> None:
    """In a child: answer questions until it is killed."""
    asked = Asked(pieces(contender), redis.Redis.from_url(url), url)
    tell("ready")
    while True:
        question, options = hear()
        tell("answer", getattr(asked, question)(**options))


def turns(floor: Callable[[], object], own: Callable[[], object], cycles: int) -> list[list[float]]:
    """Seconds a cycle of the floor and of a contender, for each turn."""
    _seconds(floor, min(_WARM_UP, cycles))
    _seconds(own, min(_WARM_UP, cycles))
    return [[_seconds(floor, cycles), _seconds(own, cycles)] for _ in range(TURNS)]


def _seconds(run: Callable[[], object], cycles: int) -> float:
    began = now = time.perf_counter()
    for done in range(1, cycles + 1):
        run()
        now = time.perf_counter()
        if now - began > LONGEST:
            return (now - began) / done
    return (now - began) / cycles


class Asked:
    """A sync contender under questions; each method is one, and answers in JSON."""

    def __init__(self, module: Any, client: Any, url: str) -> None:
        self.module, self.client, self.url = module, client, url
        self.set, self.delete = client.script_load(SET), client.script_load(DEL)
        self.fresh = itertools.count()
        self.held: list[Any] = []
        self.waiting: list[threading.Thread] = []

    def _lock(self, role: str, name: str, lease: int = LEASE) -> Any:
        return getattr(self.module, role)(self.client, self.url, name, lease)

    def _set(self, key: str) -> None:
        self.client.evalsha(self.set, 1, key, "token", KEEP_MS)

    def cycle(self, role: str, cycles: int) -> list[list[float]]:
        """Acquire and release, beside two bare scripts."""
        lock = self._lock(role, "cycle")

        def floor() -> None:
            self._set("bare")
            self.client.evalsha(self.delete, 1, "bare")

        return turns(floor, lambda: lock.release(lock.acquire()), cycles)

    def hold(self, role: str, name: str, lease: int = LEASE) -> float:
        """Take a lock and keep it; tells when it was had."""
        lock = self._lock(role, name, lease)
        self.held = [lock, lock.acquire()]
        return time.monotonic()

    def give(self) -> float:
        """Release what is held; tells when that began."""
        lock, held = self.held
        began = time.monotonic()
        lock.release(held)
        return began

    def take(self, role: str, name: str, lease: int = LEASE) -> float:
        """Wait for a lock; tells when it was had."""
        lock = self._lock(role, name, lease)
        held = lock.acquire()
        had = time.monotonic()
        lock.release(held)
        return had

    def push(self) -> float:
        """The floor's `give`."""
        began = time.monotonic()
        self.client.lpush(LIST, "x")
        return began

    def pop(self) -> float:
        """The floor's `take`."""
        assert self.client.blpop([LIST], timeout=4) is not None
        return time.monotonic()

    def idle(self, role: str, name: str, waiters: int) -> int:
        """Have so many threads wait, until this process is killed."""
        locks = [self._lock(role, name) for _ in range(waiters)]
        self.waiting = [threading.Thread(target=lock.acquire, daemon=True) for lock in locks]
        for thread in self.waiting:
            thread.start()
        return waiters

    def still(self) -> int:
        """How many of them still wait."""
        return sum(thread.is_alive() for thread in self.waiting)

    def first(self, role: str, cycles: int) -> list[list[float]]:
        """Work done for the first time, beside two bare scripts."""
        once = getattr(self.module, role)(self.client, self.url, lambda: RESULT)

        def floor() -> None:
            key = f"bare:{next(self.fresh)}"
            self._set(key)
            self._set(key)

        return turns(floor, lambda: once(f"key-{next(self.fresh)}"), cycles)

    def replay(self, role: str, cycles: int) -> list[list[float]]:
        """The same asked for again, beside one bare script."""
        once = getattr(self.module, role)(self.client, self.url, lambda: RESULT)
        assert once("key") == once("key") == RESULT
        return turns(lambda: self._set("bare"), lambda: once("key"), cycles)

    def hit(self, role: str, cycles: int) -> list[list[float]]:
        """A hit, beside GET and validation."""
        cache, profile = self._cache(role)
        cache.set("1", profile())
        self.client.set("bare", profile().model_dump_json())
        assert cache.get("1") == profile()
        return turns(lambda: self._bare_get("bare"), lambda: cache.get("1"), cycles)

    def write(self, role: str, cycles: int) -> list[list[float]]:
        """A write, beside SET and dump."""
        cache, profile = self._cache(role)
        value = profile()
        return turns(lambda: self._bare_set("bare", value), lambda: cache.set("1", value), cycles)

    def fill(self, role: str, cycles: int) -> list[list[float]]:
        """A miss that is filled, beside GET and SET by hand."""
        cache, profile = self._cache(role)
        value = profile()

        def floor() -> None:
            key = f"bare:{next(self.fresh)}"
            if self.client.get(key) is None:
                self._bare_set(key, value)

        def own() -> None:
            assert cache.load(f"fill-{next(self.fresh)}", lambda: value) == value

        return turns(floor, own, cycles)

    def many(self, role: str, cycles: int, count: int) -> list[list[float]]:
        """Many hits at once, beside as many GETs."""
        cache, profile = self._cache(role)
        keys = [str(number) for number in range(count)]
        for key in keys:
            cache.set(key, profile())
            self.client.set(f"bare:{key}", profile().model_dump_json())
        assert len(cache.many(keys)) == count

        def floor() -> None:
            for key in keys:
                self._bare_get(f"bare:{key}")

        return turns(floor, lambda: cache.many(keys), cycles)

    def stampede(self, role: str, callers: int) -> list[int]:
        """How often a loader runs for so many callers at once, and how many have an answer."""
        cache, profile = self._cache(role)
        calls: list[float] = []

        def load() -> Any:
            calls.append(time.monotonic())
            time.sleep(_LOADER_SECONDS)
            return profile()

        ready = threading.Barrier(callers)

        def call() -> bool:
            ready.wait()
            try:
                return bool(cache.load("stampede", load) == profile())
            except redis.RedisError:
                return False

        with ThreadPoolExecutor(callers) as pool:
            answered = [running.result() for running in [pool.submit(call) for _ in range(callers)]]
        return [len(calls), sum(answered)]

    def stale(self, role: str, races: int) -> int:
        """Stale values, of loads that read before a change and end after its invalidation."""
        cache, profile = self._cache(role)
        found = 0
        with ThreadPoolExecutor(1) as pool:
            for number in range(races):
                reading, ended = threading.Event(), threading.Event()

                def old(
                    number: int = number,
                    reading: threading.Event = reading,
                    ended: threading.Event = ended,
                ) -> Any:
                    value = profile(number)
                    reading.set()
                    ended.wait()
                    return value

                key = f"raced-{number}"
                running = pool.submit(cache.load, key, old)
                reading.wait()
                cache.forget(key)
                ended.set()
                running.result()
                found += cache.load(key, lambda: profile(1_000_000)).id == number
        return found

    def _cache(self, role: str) -> tuple[Any, Any]:
        # Not at the top: where only locks are asked there is no pydantic.
        from benchmarks.profile import Profile, profile  # noqa: PLC0415

        self.validate = Profile.model_validate_json
        return getattr(self.module, role)(self.client, self.url), profile

    def _bare_get(self, key: str) -> None:
        raw = self.client.get(key)
        assert raw is not None
        self.validate(raw)

    def _bare_set(self, key: str, value: Any) -> None:
        self.client.set(key, value.model_dump_json(), ex=600)
