"""The rows of the table, and why we are not ahead where we are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from benchmarks.peers import locks, works
from benchmarks.peers.arena import Arena, Measured, ratio
from benchmarks.peers.roster import OURS

__all__ = ["ROWS", "Outcome", "Row", "Verdict", "measured"]

Verdict = Literal["ahead", "level", "behind"]
# Two that differ by less are level: a second run may have them the other way round.
_LEVEL: Final = 0.02


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        name: what `--only` looks for.
        what: what was measured, in a few words.
        unit: of the figures.
        role: who is asked: those that play it.
        measure: measures all of them.
        better: whether more or less of it is better.
        why: why we are level or behind, if we may be.
    """

    name: str
    what: str
    unit: str
    role: str
    measure: Callable[[Arena, str], dict[str, Measured]]
    better: Literal["more", "less"] = "less"
    why: str = ""

    @property
    def group(self) -> str:
        """What it stands under."""
        return _GROUPS[self.name.partition("-")[0]]


@dataclass(frozen=True)
class Outcome:
    """What came of a row."""

    row: Row
    measured: dict[str, Measured]

    @property
    def best(self) -> tuple[str, float] | None:
        """The peer that is best, and its figure; None where no peer has one."""
        peers = [
            (name, one.value)
            for name, one in self.measured.items()
            if name != OURS and one.value is not None
        ]
        if not peers:
            return None
        return (max if self.row.better == "more" else min)(peers, key=lambda peer: peer[1])

    @property
    def verdict(self) -> Verdict:
        """How we stand beside the best of them."""
        ours, best = self.measured[OURS].value, self.best
        if ours is None:
            return "behind"
        if best is None:
            return "ahead"
        low, high = sorted((ours, best[1]))
        if high - low <= _LEVEL * high:
            return "level"
        return "ahead" if (ours > best[1]) == (self.row.better == "more") else "behind"

    @property
    def explained(self) -> bool:
        """Whether we are ahead, or it is said why not."""
        return self.verdict == "ahead" or bool(self.row.why)


def measured(arena: Arena, rows: list[Row]) -> Iterator[Outcome]:
    """Measure the rows one by one."""
    for row in rows:
        yield Outcome(row, row.measure(arena, row.role))


def _speed(name: str, what: str, floor: str, role: str, question: str, **options: Any) -> Row:
    """A row of speeds, each as a part of its floor's."""

    def measure(arena: Arena, role: str) -> dict[str, Measured]:
        return arena.compare(role, question, ratio, **options)

    return Row(name, f"{what}: speed", f"× {floor}", role, measure, "more")


_GROUPS: Final = {
    "lock": "Locks",
    "handoff": "Locks",
    "idle": "Locks",
    "killed": "Locks",
    "fifo": "FIFO locks",
    "job": "Idempotent work",
    "cache": "Caches",
}
_ONE: Final = "no loader can run less than once"
_LEASE_ENDS: Final = "a lease that nobody renews ends when it ends: all that have one wait for it"
_SUBSCRIBED: Final = (
    f"{_LEASE_ENDS}. portalocker's lock is a subscription instead, which ends with its connection, "
    "and takes a tenth of a second to get"
)
_BLOCKED: Final = (
    "nothing is sent while nothing happens. So it is with who blocks on a connection for each, "
    "between one command of some seconds and the next"
)
_SPINS: Final = (
    "cashews asks again and again without a pause, thousands of times a second: it "
    "finds the lock free soon, and keeps a core busy for it"
)

ROWS: Final = (
    _speed("lock-sync", "acquire + release", "two scripts", "lock", "cycle", cycles=100),
    _speed("lock-async", "acquire + release, asyncio", "two scripts", "alock", "cycle", cycles=80),
    _speed("lock-tasks", "50 tasks at once", "two scripts", "alock", "crowd", cycles=10, tasks=50),
    Row("handoff-sync", "hand-off to another process", "× BLPOP", "lock", locks.handoff),
    Row("handoff-async", "hand-off, asyncio", "× BLPOP", "alock", locks.handoff, why=_SPINS),
    Row("handoff-tasks", "hand-off to another task", "× BLPOP", "alock", locks.relay, why=_SPINS),
    Row(
        "idle-threads",
        "20 threads wait: commands of each",
        "/s",
        "lock",
        locks.idle_commands,
        why=_BLOCKED,
    ),
    Row(
        "idle-threads-connections",
        "20 threads wait: connections",
        "",
        "lock",
        locks.idle_connections,
    ),
    Row(
        "idle-tasks",
        "20 tasks wait: commands of each",
        "/s",
        "alock",
        locks.idle_commands,
        why=_BLOCKED,
    ),
    Row(
        "idle-tasks-connections", "20 tasks wait: connections", "", "alock", locks.idle_connections
    ),
    Row(
        "killed-sync",
        "the holder is killed: until the next is in",
        "× lease",
        "lock",
        locks.killed,
        why=_SUBSCRIBED,
    ),
    Row(
        "killed-async",
        "the holder is killed, asyncio",
        "× lease",
        "alock",
        locks.killed,
        why=_LEASE_ENDS,
    ),
    _speed("fifo-cycle", "FIFO: acquire + release", "two scripts", "fifo", "cycle", cycles=80),
    Row("fifo-handoff", "FIFO: hand-off to another process", "× BLPOP", "fifo", locks.handoff),
    Row("fifo-handoff-tasks", "FIFO: hand-off to another task", "× BLPOP", "fifo", locks.relay),
    Row(
        "fifo-handoff-late", "FIFO: the same, 99th percentile", "× BLPOP", "fifo", locks.relay_late
    ),
    Row("fifo-idle", "FIFO: 20 tasks wait: commands of each", "/s", "fifo", locks.idle_commands),
    Row(
        "fifo-idle-connections",
        "FIFO: 20 tasks wait: connections",
        "",
        "fifo",
        locks.idle_connections,
    ),
    Row(
        "fifo-killed",
        "FIFO: the holder is killed: until the next is in",
        "× lease",
        "fifo",
        locks.killed,
    ),
    Row(
        "fifo-dead",
        "FIFO: 5 queued processes are killed: until the next is in",
        "s",
        "fifo",
        locks.dead_waiters,
    ),
    _speed("job-first-sync", "a first call", "two scripts", "jobs", "first", cycles=80),
    _speed("job-replay-sync", "a replay", "one script", "jobs", "replay", cycles=150),
    _speed("job-first-async", "a first call, asyncio", "two scripts", "ajobs", "first", cycles=60),
    _speed("job-replay-async", "a replay, asyncio", "one script", "ajobs", "replay", cycles=120),
    _speed("cache-hit-sync", "a hit", "GET", "cache", "hit", cycles=150),
    _speed("cache-hit-async", "a hit, asyncio", "GET", "acache", "hit", cycles=120),
    _speed("cache-write-sync", "a write", "SET", "cache", "write", cycles=150),
    _speed("cache-write-async", "a write, asyncio", "SET", "acache", "write", cycles=120),
    _speed("cache-fill-sync", "a miss that is filled", "GET and SET", "cache", "fill", cycles=80),
    _speed("cache-fill-async", "a fill, asyncio", "GET and SET", "acache", "fill", cycles=60),
    _speed(
        "cache-many-sync", "100 hits at once", "100 GETs", "cache", "many", cycles=10, count=100
    ),
    _speed(
        "cache-many-async",
        "100 at once, asyncio",
        "100 GETs",
        "acache",
        "many",
        cycles=10,
        count=100,
    ),
    Row(
        "cache-stampede-sync",
        "50 threads miss at once: loader calls",
        "",
        "cache",
        partial(works.stampede, callers=50),
        why=_ONE,
    ),
    Row(
        "cache-stampede-async",
        "200 tasks miss at once: loader calls",
        "",
        "acache",
        partial(works.stampede, callers=200),
        why=_ONE,
    ),
    Row(
        "cache-stale-sync",
        "50 loads invalidated under way: stale values kept",
        "",
        "cache",
        partial(works.stale, races=50),
    ),
    Row(
        "cache-stale-async",
        "50 loads invalidated, asyncio: stale values kept",
        "",
        "acache",
        partial(works.stale, races=50),
    ),
)
