"""The hammer: nobody who asks after an invalidation sees what was loaded before it.

Readers in several processes call ``get_or_load`` on few keys; a writer changes the source and
invalidates by key and by tag. The source is memory that all processes share. When an invalidation
has returned, the writer raises the *floor* of what it invalidated to the version that was in the
source then. A reader notes the floors before it asks: an answer below them is stale.

Calls are cancelled, readers are killed and replaced, and the server forgets its scripts meanwhile.
Plain cache-aside under the same hammer must be caught, or the hammer does not bite.
"""

from __future__ import annotations

import asyncio
import mmap
import random
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from pydantic import BaseModel

from fencekit.cache import GenericCache, SyncGenericCache
from fencekit.drivers.sync import SyncDriver
from harness import servers
from harness.children import Child
from harness.servers import Server

__all__ = ["run"]

READS, INVALIDATIONS, STALE_OF_PLAIN = 200_000, 2_000, 1_000

KEYS = 12
GROUPS = 3
READERS = 3
TASKS = 24
# Seconds: a reader that is replaced takes one of them to start.
KILL_EVERY = 3.0
_CELLS = 4 * (KEYS + GROUPS) + 64


class Entry(BaseModel):
    """What is cached: which versions of the source it was made of."""

    key: int
    version: int
    group: int


class Board:
    """Counters in memory that all processes share, eight bytes each.

    Attributes:
        cells: all of them.
    """

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _CELLS * 8)
        self.cells = memoryview(self._map).cast("q")

    # Versions and floors, of keys and of groups; then what each process counts.
    def versions(self, key: int) -> tuple[int, int]:
        """What the source holds for a key now: its version, and its group's."""
        return self.cells[key], self.cells[KEYS + key % GROUPS]

    def floors(self, key: int) -> tuple[int, int]:
        """What whoever asks for a key from now on must see at least."""
        base = KEYS + GROUPS
        return self.cells[base + key], self.cells[base + KEYS + key % GROUPS]

    def change(self, cell: int) -> int:
        """Change the source; returns the new version."""
        self.cells[cell] += 1
        return self.cells[cell]

    def raise_floor(self, cell: int, version: int) -> None:
        """An invalidation has returned."""
        self.cells[KEYS + GROUPS + cell] = version

    def tally(self, slot: int) -> Tally:
        """What one process counts."""
        return Tally(self.cells, 2 * (KEYS + GROUPS) + 4 * slot)

    @property
    def tallies(self) -> list[Tally]:
        """What all processes count."""
        return [self.tally(slot) for slot in range((_CELLS - 2 * (KEYS + GROUPS)) // 4)]


class Tally:
    """Reads, stale reads, loads and invalidations of one process."""

    def __init__(self, cells: memoryview, at: int) -> None:
        self._cells, self._at = cells, at

    def add(self, what: int, amount: int = 1) -> None:
        """Count."""
        self._cells[self._at + what] += amount

    def __getitem__(self, what: int) -> int:
        return int(self._cells[self._at + what])


READ, STALE, LOAD, INVALIDATION = range(4)


class PlainCache:
    """Plain cache-aside under the names of `GenericCache`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def get_or_load(self, key: int, load: Any) -> Entry:
        """Read, or load and store."""
        raw = await self._client.get(f"plain:{key}")
        if raw is not None:
            return Entry.model_validate_json(raw)
        entry: Entry = await load()
        await self._client.set(f"plain:{key}", entry.model_dump_json(), ex=60)
        return entry

    async def invalidate(self, *keys: int) -> None:
        """Delete."""
        await self._client.delete(*(f"plain:{key}" for key in keys))

    async def invalidate_tags(self, group: str) -> None:
        """Delete all that belong to a group."""
        await self.invalidate(*range(int(group), KEYS, GROUPS))


def _group_of(key: str) -> str:
    return str(int(key) % GROUPS)


def _async_cache(url: str, *, plain: bool) -> Any:
    client = redis.asyncio.Redis.from_url(url)
    if plain:
        return PlainCache(client)

    class Entries(GenericCache[Entry]):
        ttl = 0.5
        lease = 1
        grace = 1
        redis_client = client

        def tags(self, key: str) -> list[str]:
            return [_group_of(key)]

    return Entries()


async def read(url: str, path: str, slot: int, plain: bool) -> None:  # noqa: FBT001 - JSON
    """Be a process of readers."""
    board, cache = Board(path), _async_cache(url, plain=plain)
    tally = board.tally(slot)

    async def ask() -> None:
        while True:
            key = random.randrange(KEYS)

            async def load(key: int = key) -> Entry:
                version, group = board.versions(key)
                tally.add(LOAD)
                await asyncio.sleep(random.random() * 0.004)
                return Entry(key=key, version=version, group=group)

            floors = board.floors(key)
            call = cache.get_or_load(key, load)
            if random.random() < 0.02:
                task = asyncio.ensure_future(call)
                await asyncio.sleep(random.random() * 0.003)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                continue
            entry = await call
            tally.add(READ)
            if entry.version < floors[0] or entry.group < floors[1]:
                tally.add(STALE)
            await asyncio.sleep(0)

    await asyncio.gather(*(ask() for _ in range(TASKS)))


def read_in_threads(url: str, path: str, slot: int) -> None:
    """Be a process of sync readers."""
    board = Board(path)

    class Entries(SyncGenericCache[Entry]):
        ttl = 0.5
        lease = 1
        redis_client = redis.Redis.from_url(url)

        def tags(self, key: str) -> list[str]:
            return [_group_of(key)]

    cache = Entries()
    lock = threading.Lock()
    tally = board.tally(slot)

    def ask() -> None:
        while True:
            key = random.randrange(KEYS)

            def load(key: int = key) -> Entry:
                version, group = board.versions(key)
                time.sleep(random.random() * 0.004)
                return Entry(key=key, version=version, group=group)

            floors = board.floors(key)
            entry = cache.get_or_load(key, load)
            assert entry is not None
            with lock:
                tally.add(READ)
                if entry.version < floors[0] or entry.group < floors[1]:
                    tally.add(STALE)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    SyncDriver.of(Entries.redis_client).close()


async def write(url: str, path: str, slot: int, plain: bool) -> None:  # noqa: FBT001 - JSON
    """Be the writer: every cell has one writer only, so that floors only rise."""
    board, cache = Board(path), _async_cache(url, plain=plain)
    tally = board.tally(slot)

    async def change(first: int) -> None:
        while True:
            cell = random.choice(range(first, KEYS + GROUPS, 4))
            version = board.change(cell)
            if cell < KEYS:
                await cache.invalidate(cell)
            else:
                await cache.invalidate_tags(str(cell - KEYS))
            board.raise_floor(cell, version)
            tally.add(INVALIDATION)
            await asyncio.sleep(random.random() * 0.02)

    await asyncio.gather(*(change(first) for first in range(4)))


def _hammer(server: Server, minutes: float, *, plain: bool) -> tuple[int, int, int, int]:
    """Hammer until enough was read; returns reads, stale reads, loads and invalidations."""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(_CELLS * 8)
        board = Board(file.name)
        everybody = [(write, 0), *((read, slot) for slot in range(1, READERS + 1))]
        children = [Child(kind, server.url, file.name, slot, plain) for kind, slot in everybody]
        if not plain:
            children.append(Child(read_in_threads, server.url, file.name, READERS + 1))
        began = time.monotonic()
        deadline = began + minutes * 60
        kills = 0
        try:
            while time.monotonic() < deadline:
                time.sleep(0.5)
                totals = _totals(board)
                if plain and totals[STALE] >= STALE_OF_PLAIN:
                    break
                if totals[READ] >= READS and totals[INVALIDATION] >= INVALIDATIONS:
                    break
                for child in children:
                    assert child.alive, child.errors
                if kills < (time.monotonic() - began) / KILL_EVERY:
                    kills += 1
                    slot = 1 + kills % READERS
                    children[slot].kill()
                    children[slot] = Child(read, server.url, file.name, slot, plain)
                    server.call("SCRIPT", "FLUSH")
        finally:
            for child in children:
                child.kill()
        print(
            f"{'plain cache-aside' if plain else 'fencekit-cache'}: "
            f"{_totals(board)[READ]:,} reads, {_totals(board)[STALE]:,} stale, "
            f"{_totals(board)[LOAD]:,} loads, {_totals(board)[INVALIDATION]:,} invalidations, "
            f"{kills} readers killed"
        )
        return _totals(board)


def _totals(board: Board) -> tuple[int, int, int, int]:
    tallies = board.tallies
    read, stale, load, invalidation = (sum(tally[what] for tally in tallies) for what in range(4))
    return read, stale, load, invalidation


def run(minutes: float) -> bool:
    """Hammer plain cache-aside, which must be caught, and then ours, which must not."""
    with servers.start() as server:
        plain = _hammer(server, minutes / 3, plain=True)
        ours = _hammer(server, minutes * 2 / 3, plain=False)
    bites = plain[STALE] >= STALE_OF_PLAIN
    enough = ours[READ] >= READS and ours[INVALIDATION] >= INVALIDATIONS
    if not bites:
        print("the hammer does not bite: plain cache-aside was not caught often enough")
    if not enough:
        print("too little was read or invalidated in the time", file=sys.stderr)
    return bites and enough and ours[STALE] == 0
