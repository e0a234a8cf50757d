"""The crowd at the door: processes contend for one FIFO lock while everything goes wrong.

Who is inside is written down by the workers, each in a file of its own, with the clock that all
processes of a machine share; the library is not asked. Workers hold shortly and long, give up,
are cancelled, and release twice; commands are sent twice; workers are stopped for less and for
more than a lease, and killed; connections and doorbells are cut; the server forgets its scripts
and restarts.

Judged: nobody is inside beside somebody whose lease was not lost, tokens rise in the order of
entry, everybody who is alive gets in, nothing is left. Nor is anybody passed by one who came later,
as the stream on the server says, which is read all the while: unless its own process was stopped
for long, its subscription was just cut, or the server counted nobody who listens to its process,
when it was passed. A lock that reads its queue in one
trip and grants in the next is run first, and must be caught; and so must the record of the lock
itself with two grants exchanged.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis
from typing_extensions import Self

from fencekit.errors import FenceKitError
from fencekit.fifo import FifoLock, LeaseLost, protocol
from harness import servers
from harness.children import Child
from harness.clients import aopened
from harness.faults import Duplicate, containing
from harness.naive_fifo import NaiveFifoLock
from harness.proxy import Proxy
from harness.servers import Server
from harness.waiting import eventually

__all__ = ["run"]

LEASE_MS = 800
WORKERS, TASKS = 4, 6
NAIVE_SECONDS = 10.0
_NAIVE_TRIALS = 4
# Nobody who is alive waits longer: a few offers, a few leases, a restart.
PATIENCE = 20.0
# After that everybody is subscribed again.
_RECONNECTED = 1.0
_LOCKS: dict[str, Any] = {"fifo": FifoLock, "naive": NaiveFifoLock}


async def work(url: str, kind: str, path: str, seed: int) -> None:
    """In a child: contend until killed, and write down every entry and exit."""
    chance = random.Random(seed)
    with Path(path).open("a", buffering=1) as log:  # noqa: ASYNC230 - a line must be out at once
        async with aopened(url) as client:
            lock = _LOCKS[kind](
                client, "door", lease_ms=LEASE_MS, alive_ms=2000, max_hold_ms=60_000
            )
            await asyncio.gather(*(_contend(lock, kind, log, chance) for _ in range(TASKS)))


async def _contend(lock: Any, kind: str, log: Any, chance: random.Random) -> None:
    while True:
        began = time.monotonic()
        waiting = asyncio.create_task(lock.acquire(chance.choice([None, None, None, 0.3, 2.0])))
        if chance.random() < 0.1:
            asyncio.get_running_loop().call_later(chance.random() * 0.1, waiting.cancel)
        try:
            lease = await waiting
        except (asyncio.CancelledError, TimeoutError, asyncio.TimeoutError):
            continue
        except (FenceKitError, OSError) as error:
            log.write(f"error {type(error).__name__}\n")
            await asyncio.sleep(0.05)
            continue
        except Exception as error:  # noqa: BLE001 - the naive one has no errors of its own
            log.write(f"error {type(error).__name__}\n")
            await asyncio.sleep(0.05)
            continue
        now = time.monotonic()
        attempt = lease.ticket.claimant.attempt if kind == "fifo" else "-"
        log.write(f"enter {now!r} {int(lease.fence)} {now - began!r} {attempt}\n")
        await asyncio.sleep(chance.choice([0, 0, 0.001, 0.001, 0.01, 0.05, 1.5 * LEASE_MS / 1000]))
        lost = kind == "fifo" and lease.lost.is_set()
        log.write(f"leave {time.monotonic()!r} {int(lease.fence)} {int(lost)}\n")
        for _ in range(chance.choice([1, 1, 2])):
            try:
                await lock.release(lease)
            except LeaseLost:
                log.write(f"lost {int(lease.fence)}\n")
            except Exception as error:  # noqa: BLE001 - told to the judge, and tried no more
                log.write(f"error {type(error).__name__}\n")
        await asyncio.sleep(chance.choice([0, 0, 0.005]))


@dataclass
class Stay:
    """One stay inside.

    Attributes:
        fence: its token.
        entered: when.
        left: when, or when its worker was killed.
        waited: seconds that it waited before.
        attempt: which attempt it was, as the queue calls it.
        worker: whose.
        lost: its holder knew that the lease was lost.
        killed: it ended with its worker.
    """

    fence: int
    entered: float
    left: float
    waited: float
    attempt: str = "-"
    worker: str = ""
    lost: bool = False
    killed: bool = False


def read(path: Path, killed_at: float, counts: Counter[str]) -> list[Stay]:
    """Read what a worker wrote down."""
    stays: dict[int, Stay] = {}
    for line in path.read_text().splitlines():
        what, *rest = line.split()
        if what == "enter":
            fence = int(rest[1])
            stays[fence] = Stay(
                fence,
                float(rest[0]),
                killed_at,
                float(rest[2]),
                rest[3],
                path.name,
                killed=True,
            )
        elif what == "leave":
            stay = stays[int(rest[1])]
            stay.left, stay.lost, stay.killed = float(rest[0]), rest[2] == "1", False
        elif what == "lost":
            stays[int(rest[0])].lost = True
        else:
            counts[rest[0]] += 1
    return list(stays.values())


def judge(stays: list[Stay]) -> list[str]:
    """Say what is wrong with the stays of all workers."""
    faults = []
    last: Stay | None = None
    for stay in sorted(stays, key=lambda stay: stay.entered):
        if last is not None and stay.entered < last.left and not last.lost:
            faults.append(
                f"{stay.fence} entered {(last.left - stay.entered) * 1000:.1f} ms before "
                f"{last.fence} left, whose lease was not lost"
            )
        if last is not None and stay.fence <= last.fence:
            faults.append(f"{stay.fence} entered after {last.fence}")
        # Of two that overlap, the one that leaves last says what the next may not do.
        if last is None or stay.left > last.left or last.lost or last.killed:
            last = stay
    return faults


@dataclass(frozen=True)
class Excuse:
    """A time at which somebody who waits may be passed.

    Attributes:
        since: from when.
        until: until when.
        worker: whose waiters; empty: everybody's.
    """

    since: float
    until: float
    worker: str = ""

    def serves(self, stay: Stay, passed_at: float) -> bool:
        """Whether this waiter may have been passed at that time."""
        return self.since < passed_at < self.until and self.worker in {"", stay.worker}


def judge_order(
    stays: list[Stay],
    places: dict[str, str],
    excuses: list[Excuse],
    deaf: Callable[[str, float], bool] = lambda _attempt, _at: False,
) -> tuple[list[str], int]:
    """Say who was passed without an excuse; and how many grants nothing could have excused.

    Args:
        stays: of all workers.
        places: attempt -> entry id.
        excuses: when somebody may be passed.
        deaf: whether nobody listened to the process of an attempt at a monotonic second.
    """
    faults, judged = [], 0
    # A token is the server's time of the grant, in microseconds, and the server is on this machine.
    epoch = time.time() - time.monotonic()
    before: list[tuple[tuple[int, ...], float, Stay]] = []
    for stay in sorted(stays, key=lambda stay: stay.fence):
        if stay.attempt not in places:
            continue  # it had no place, or for too short a time to be seen
        place = tuple(int(part) for part in places[stay.attempt].split("-"))
        granted = stay.fence / 1e6 - epoch
        for later, at, passer in before:
            excused = any(excuse.serves(stay, at) for excuse in excuses)
            if later > place and not excused and not deaf(stay.attempt, at):
                faults.append(f"{stay.fence} came before {passer.fence}, and was passed by it")
        judged += not any(excuse.serves(stay, granted) for excuse in excuses)
        before.append((place, granted, stay))
    return faults, judged


class Onlooker:
    """Reads the queue on the server, over and over, and notes who had which place.

    Attributes:
        places: attempt -> entry id.
    """

    def __init__(self, server: Server) -> None:
        self.places: dict[str, str] = {}
        self._channels: dict[str, bytes] = {}
        self._looked_at: list[float] = []
        self._deaf: list[frozenset[bytes]] = []
        self._client = redis.Redis.from_url(server.url)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._over.wait(0.01):
            with contextlib.suppress(redis.RedisError):
                entries: Any = self._client.xrange("fencekit:{door}:queue")
                for entry, fields in entries:
                    attempt = fields[b"w"].decode().rpartition(":")[2]
                    self.places[attempt], self._channels[attempt] = entry.decode(), fields[b"c"]
                channels = {fields[b"c"] for _, fields in entries}
                if channels:
                    counts: Any = self._client.pubsub_numsub(*channels)
                    self._deaf.append(frozenset(channel for channel, ears in counts if not ears))
                    self._looked_at.append(time.monotonic())

    def deaf(self, attempt: str, at: float) -> bool:
        """Whether nobody listened to an attempt's process in the look before or after a time."""
        after = bisect.bisect(self._looked_at, at)
        looks = self._deaf[max(after - 1, 0) : after + 1]
        return any(self._channels.get(attempt) in deaf for deaf in looks)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()


class Crowd:
    """The workers, each of which is replaced when it is killed."""

    def __init__(self, url: str, kind: str, folder: Path) -> None:
        self._url, self._kind, self._folder = url, kind, folder
        self._number = 0
        self.excuses: list[Excuse] = []
        self._ended: list[tuple[Path, float]] = []
        self._alive: dict[Child, Path] = {}
        for _ in range(WORKERS):
            self.spawn()

    @property
    def children(self) -> list[Child]:
        """Those that are alive."""
        return list(self._alive)

    def spawn(self) -> None:
        """Start one more."""
        self._number += 1
        path = self._folder / f"{self._kind}-{self._number}"
        path.touch()
        self._alive[Child(work, self._url, self._kind, str(path), self._number)] = path

    def excuse(self, since: float, lasting: float, child: Child | None = None) -> None:
        """Note that waiters, of one or of all, may be passed from then until a little from now."""
        worker = "" if child is None else self._alive[child].name
        self.excuses.append(Excuse(since, time.monotonic() + lasting, worker))

    def kill(self, child: Child) -> None:
        """Kill one."""
        child.kill()
        self._ended.append((self._alive.pop(child), time.monotonic()))

    def end(self, counts: Counter[str]) -> list[Stay]:
        """Kill all, and read what all have written down."""
        for child in self.children:
            self.kill(child)
        return [stay for path, at in self._ended for stay in read(path, at, counts)]


@contextlib.contextmanager
def _twice(proxy: Proxy) -> Iterator[None]:
    storm = proxy.add(Duplicate(containing(protocol.ACQUIRE.sha, protocol.LOOK.sha)))
    try:
        yield
    finally:
        proxy.remove(storm)


# What goes wrong in the world. The naive lock survives no lost connection, and is caught by less.
_GENTLE = ("stop shortly", "stop long")
_ALL = (*_GENTLE, "kill", "cut", "doorbells", "scripts", "twice", "restart")


def _disturb(what: str, crowd: Crowd, proxy: Proxy, server: Server, chance: random.Random) -> str:
    """Do one thing that goes wrong; returns its name."""
    lease = LEASE_MS / 1000
    victim = chance.choice(crowd.children)
    began = time.monotonic()
    if what in {"stop shortly", "stop long"}:
        victim.pause()
        time.sleep(lease * (0.4 if what == "stop shortly" else 2.0))
        victim.resume()
    elif what == "kill":
        crowd.kill(victim)
        crowd.spawn()
    elif what == "cut":
        proxy.cut(chance.choice([0.0, 0.1]))
    elif what == "doorbells":
        server.call("CLIENT", "KILL", "TYPE", "pubsub")
    elif what == "scripts":
        server.call("SCRIPT", "FLUSH")
    elif what == "twice":
        with _twice(proxy):
            time.sleep(0.5)
    else:
        # Nothing may reach the server between its snapshot and its end: what was answered and is
        # not in the snapshot is lost, which no lock survives.
        proxy.freeze()
        time.sleep(0.1)
        server.restart(keep_data=True)
        proxy.thaw()
    if what in {"cut", "doorbells", "restart"}:
        crowd.excuse(began, _RECONNECTED)
    elif what == "stop long":
        crowd.excuse(began, _RECONNECTED, victim)
    return what


def _trial(kind: str, seconds: float, seed: int) -> bool:
    chance = random.Random(seed)
    disturbances: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.start() as server,
        Proxy.before(server) as proxy,
        Onlooker(server) as onlooker,
    ):
        crowd = Crowd(proxy.url, kind, Path(folder))
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                time.sleep(chance.random() * 0.6)
                what = chance.choice(_GENTLE if kind == "naive" else _ALL)
                disturbances[_disturb(what, crowd, proxy, server, chance)] += 1
            time.sleep(1.0)
        finally:
            stays = crowd.end(errors)
        faults = judge(stays)
        longest = max((stay.waited for stay in stays), default=0.0)
        print(
            f"{kind}: {len(stays)} stays, {sum(stay.lost for stay in stays)} lost, longest wait "
            f"{longest:.1f} s; {dict(disturbances)}; errors {dict(errors)}"
        )
        if kind == "naive":
            print(f"naive: caught {len(faults)} times; once at least it must be")
            return bool(faults)
        passed, judged = judge_order(stays, onlooker.places, crowd.excuses, onlooker.deaf)
        print(
            f"order: {len(onlooker.places)} places seen, {judged} grants at a time without excuse"
        )
        faults += passed
        if not _order_bites(stays, onlooker.places):
            faults.append("two places exchanged were not noticed")
        for fault in faults[:10]:
            print(f"FAULT {fault}")
        if not stays or longest > PATIENCE:
            print(f"FAULT somebody waited {longest:.1f} s")
            return False
        return not faults and _nothing_left(server)


def _order_bites(stays: list[Stay], places: dict[str, str]) -> bool:
    """Whether the judge notices two neighbours whose grants are exchanged."""
    seen = sorted((stay for stay in stays if stay.attempt in places), key=lambda stay: stay.fence)
    if len(seen) < 2:
        return False
    one, two = seen[0], seen[1]
    exchanged = [replace(one, fence=two.fence), replace(two, fence=one.fence)]
    return bool(judge_order(exchanged, places, [])[0]) != bool(
        judge_order([one, two], places, [])[0]
    )


def _nothing_left(server: Server) -> bool:
    """Whether the queue of the dead is gone when their time is up."""
    try:
        eventually(lambda: server.call("EXISTS", "fencekit:{door}:lock") == 0, 10.0)
        eventually(lambda: server.call("EXISTS", "fencekit:{door}:queue") == 0, 10.0)
    except AssertionError as error:
        print(f"FAULT something is left: {error}")
        return False
    return True


def run(minutes: float) -> bool:
    """Contend for so long; returns whether everything held, and the naive one was caught."""
    seed = random.getrandbits(31)
    print(f"seed {seed}")
    naive_seconds = min(NAIVE_SECONDS, minutes * 30)
    # On a machine that is busy with something else there may be few stays in one trial.
    bites = any(_trial("naive", naive_seconds, seed + again) for again in range(_NAIVE_TRIALS))
    return _trial("fifo", max(minutes * 60 - NAIVE_SECONDS, 5.0), seed) and bites
