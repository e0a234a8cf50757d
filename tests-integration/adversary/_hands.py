"""Processes that live in the world of `adversary.world`, and write down what they asked and got.

Each line of their files is JSON. One with ``began`` stands before the question, one with ``ended``
after the answer: of a process that was killed in between, the outcome is unknown.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis

from fencekit import (
    DistributedLock,
    FencedOutError,
    FenceGate,
    IdempotencyGuard,
    IdempotencyNotOwned,
    LockNotAcquired,
    LockNotOwned,
    OutcomeUnknown,
)
from fencekit.errors import FenceKitError, StoreError

LEASE = 0.8
ACCOUNTS, ENTRIES = 3, 6
# Orders are delivered to both processes, several times, for so long.
ORDER_SECONDS = 0.2
_TTL = timedelta(seconds=LEASE)


class Book:
    """What a process writes down."""

    def __init__(self, path: str, by: str) -> None:
        self._file = Path(path).open("a", buffering=1)  # noqa: SIM115 - as long as the process
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._by = by

    def asks(self, kind: str, key: str, argument: Any = None) -> int:
        """Note a question; returns its number."""
        with self._lock:
            number = next(self._numbers)
        self._write(n=number, kind=kind, key=key, argument=argument, by=self._by)
        return number

    def hears(self, number: int, answer: Any) -> None:
        """Note the answer."""
        self._write(n=number, answer=answer)

    def counts(self, what: str) -> None:
        """Note that something happened."""
        self._write(count=what)

    def _write(self, **line: Any) -> None:
        line["at"] = time.monotonic()
        with self._lock:
            self._file.write(json.dumps(line) + "\n")


def work(url: str, plain_url: str, path: str, seed: int) -> None:
    """In a child with the ledger's environment: lock, write, claim and transfer, until killed."""
    import django  # noqa: PLC0415 - the settings are in this process's environment

    django.setup()
    book = Book(path, Path(path).name)
    hands = [Hand(url, plain_url, book, random.Random(seed * 10 + n)) for n in range(3)]
    threads = [threading.Thread(target=hand.live, daemon=True) for hand in hands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Hand:
    """One thread."""

    def __init__(self, url: str, plain_url: str, book: Book, chance: random.Random) -> None:
        self._book, self._chance = book, chance
        client = redis.Redis.from_url(url, socket_timeout=2.0, socket_connect_timeout=2.0)
        self._lock, self._gate = DistributedLock(client), FenceGate(client)
        self._guard = IdempotencyGuard(client)
        self._plain: Any = redis.Redis.from_url(plain_url, decode_responses=True)

    def live(self) -> None:
        """Do one thing after the other."""
        works = [self._section, self._section, self._section, self._job, self._transfer]
        while True:
            try:
                self._chance.choice(works)()
            except FenceKitError as error:
                self._book.counts(f"error {type(error).__name__}")
                time.sleep(0.05)
            except Exception as error:  # noqa: BLE001 - e.g. the database's; looked at in the end
                self._book.counts(f"other error {type(error).__name__}: {error}"[:200])
                time.sleep(0.05)

    def _section(self) -> None:
        """Add one to a balance in both stores, under a lock."""
        from django.db import transaction  # noqa: PLC0415

        from fencekit.django import fenced_update  # noqa: PLC0415
        from ledger.accounts.models import Account, Branch  # noqa: PLC0415

        number = self._chance.randrange(ACCOUNTS) + 1
        name = f"account:{number}"
        asked = self._book.asks("acquire", name)
        try:
            handle = self._lock.acquire(name, ttl=_TTL, wait=timedelta(seconds=1))
        except OutcomeUnknown:
            return
        except (LockNotAcquired, StoreError):
            self._book.hears(asked, "refused")
            return
        token = handle.token
        self._book.hears(asked, int(token))
        # Read in both.
        plain = int(self._plain.get(name) or 0)
        rows = Account.objects.filter(pk=number)
        entered = bool(fenced_update(rows, token, updates={}, touch=True))
        balance = rows.get().balance if entered else 0
        # Sometimes for longer than the lease.
        time.sleep(self._chance.choice([0, 0, 0.005, 0.02, 0.1, 1.5 * LEASE]))
        if self._chance.random() < 0.2:
            self._renew(handle, name)
        # Write in both; what was written is counted in the same transaction.
        with self._plain.pipeline() as pipe:
            pipe.set(name, plain + 1).incr(f"{name}:writes").execute()
        if entered:
            with transaction.atomic():
                if fenced_update(rows, token, updates={"balance": balance + 1}):
                    Branch.objects.create(name=f"{name} {int(token)}")
                    self._book.counts("fenced write passed")
                else:
                    self._book.counts("fenced write refused")
        else:
            self._book.counts("fenced write refused")
        self._write(token, name)
        self._release(handle, name)

    def _renew(self, handle: Any, name: str) -> None:
        asked = self._book.asks("renew", name, int(handle.token))
        with suppress(StoreError):
            try:
                handle.extend(_TTL)
                self._book.hears(asked, "renewed")
            except LockNotOwned:
                self._book.hears(asked, "lost")

    def _write(self, token: Any, name: str) -> None:
        asked = self._book.asks("write", name, int(token))
        with suppress(StoreError):
            try:
                self._gate.set_if_fresh(token, f"{name}:status", "x", ttl=timedelta(hours=1))
                self._book.hears(asked, "passed")
            except FencedOutError:
                self._book.hears(asked, "refused")

    def _release(self, handle: Any, name: str) -> None:
        asked = self._book.asks("release", name, int(handle.token))
        with suppress(StoreError):
            try:
                handle.release()
                self._book.hears(asked, "released")
            except LockNotOwned:
                self._book.hears(asked, "lost")

    def _job(self) -> None:
        """Run a job that others run too."""
        name = f"job-{int(time.monotonic() / ORDER_SECONDS)}"
        asked = self._book.asks("begin", name)
        try:
            claim = self._guard.begin(name, ttl=timedelta(hours=1), lease=_TTL, renew=False)
        except OutcomeUnknown:
            return
        if claim.replayed:
            self._book.hears(asked, ["done", claim.result])
            return
        if not claim.started:
            self._book.hears(asked, ["busy", None])
            return
        token = int(claim.fence)
        self._book.hears(asked, ["reclaimed" if claim.reclaimed else "begun", token])
        time.sleep(self._chance.choice([0, 0.01, 0.1, 1.5 * LEASE]))
        if self._chance.random() < 0.2:
            self._end("give_back", name, token, claim.release, "given")
        else:
            result = [token, f"result of {name}"]
            self._end("complete", name, [token, result], lambda: claim.complete(result), "done")

    def _end(self, kind: str, name: str, argument: Any, end: Any, well: str) -> None:
        asked = self._book.asks(kind, name, argument)
        with suppress(StoreError):
            try:
                end()
                self._book.hears(asked, well)
            except IdempotencyNotOwned:
                self._book.hears(asked, "lost")

    def _transfer(self) -> None:
        """Carry out an order that is delivered many times."""
        from ledger.accounts import services  # noqa: PLC0415

        order = f"order-{int(time.monotonic() / ORDER_SECONDS)}"
        services.transfer(order, ACCOUNTS + 1, ACCOUNTS + 2, 5)
        self._book.counts("transfer answered")


def read(url: str, board: str, path: str, seed: int) -> None:
    """In a child: read the cache, change the source and invalidate, until killed."""
    from pydantic import BaseModel  # noqa: PLC0415

    from adversary.cache import Board  # noqa: PLC0415
    from fencekit.cache import SyncGenericCache  # noqa: PLC0415

    shared, book = Board(board), Book(path, Path(path).name)

    class Entry(BaseModel):
        version: int

    class Entries(SyncGenericCache[Entry]):
        ttl = 5
        lease = 1
        redis_client = redis.Redis.from_url(url, socket_timeout=2.0, socket_connect_timeout=2.0)

    cache = Entries()

    def ask(chance: random.Random, *, writes: bool) -> None:
        while True:
            key = chance.randrange(ENTRIES)

            def load(key: int = key) -> Entry:
                version = shared.versions(key)[0]
                time.sleep(chance.random() * 0.004)
                return Entry(version=version)

            try:
                if writes and chance.random() < 0.2:
                    # One process writes, so that a floor only rises; it may be raised only once
                    # the invalidation has returned.
                    version = shared.change(key)
                    cache.invalidate(key)
                    shared.raise_floor(key, version)
                    book.counts("invalidation")
                    continue
                floor = shared.floors(key)[0]
                entry = cache.get_or_load(key, load)
                assert entry is not None
                book.counts("read")
                if entry.version < floor:
                    book.counts("STALE")
            except FenceKitError as error:
                book.counts(f"error {type(error).__name__}")
                time.sleep(0.02)
            time.sleep(0.002)

    chances = [random.Random(seed * 10 + n) for n in range(4)]
    threads = [
        threading.Thread(target=ask, args=(one,), kwargs={"writes": seed == 0 and n == 0})
        for n, one in enumerate(chances)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
