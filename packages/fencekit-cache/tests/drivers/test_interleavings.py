"""The flows of two processes, step by step in any order, against a real server.

A schedule plays readers and writers one step at a time and chooses by its seed who goes next. It
loses questions and answers, delivers commands once more and late, evicts keys (which is also how
leases and tags end), cancels loads, kills processes, and lets values be fresh, early or stale.
What nobody may see is what the hammer looks for too: a value whose load began before an
invalidation that had returned when the reader asked.
"""

from __future__ import annotations

import asyncio
import os
import random
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from fencekit.cache import SyncGenericCache
from fencekit.cache.fill import Outcome
from fencekit.drivers.sync import SyncDriver
from fencekit.errors import FenceKitError, OutcomeUnknown, StoreUnavailable
from fencekit.protocol.operation import AwaitWake, Call, Flow, Now, Operation, Routes, Together
from harness.caches import tags_of
from harness.servers import Server

KEYS, GROUPS = 2, 1
ACTORS, STEPS = 8, 600
# Schedules of each kind of cache; more of them: FENCEKIT_ROUNDS.
ROUNDS = int(os.environ.get("FENCEKIT_ROUNDS", "2"))
FAR = 2**47
WRITES = ["key", "hold", "delete", "update", "prefix", "all", "tag"]


class Entry(BaseModel):
    """What is cached: the versions of the source that it was made of."""

    key: int
    version: int
    group: int


def is_there(version: int, group: int) -> bool:
    """Whether the source has a row: now and then it has none, and that is on record too."""
    return bool((version + group) % 4)


@dataclass
class Flight:
    """A load that callers of one process share."""

    landed: bool = False
    outcome: Outcome | None = None
    error: Exception | None = None


class Flights:
    """The loads of one process; each is an actor of its own."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._flights: dict[str, Flight] = {}

    def busy(self, entry: str) -> bool:
        """Whether an entry is being loaded here."""
        return entry in self._flights

    def share(self, entry: str, make: Callable[[], Flow[Outcome]]) -> Waiting:
        """Join the load of an entry, or begin it."""
        flight = self._flights.get(entry)
        if flight is not None:
            return Waiting(flight, begun=False)
        flight = self._flights[entry] = Flight()

        def land(actor: Actor) -> None:
            del self._flights[entry]
            flight.outcome, flight.landed = actor.result, True
            flight.error = actor.error if isinstance(actor.error, Exception) else None

        self._schedule.add(make(), land, mortal=True)
        return Waiting(flight, begun=True)


@dataclass
class Waiting:
    """What a caller has of a flight."""

    flight: Flight
    begun: bool


@dataclass
class Loading:
    """A load: it reads the source when it begins, and returns some turns later."""

    value: Any


@dataclass(eq=False)
class Actor:
    """A flow under way, and what it waits for."""

    flow: Flow[Any]
    ended: Callable[[Actor], None]
    mortal: bool
    step: Any = None
    queue: list[Operation[Any]] = field(default_factory=list[Operation[Any]])
    answers: list[Any] = field(default_factory=list[Any])
    waits_for: Waiting | Loading | None = None
    result: Any = None
    error: BaseException | None = None
    met_trouble: bool = False

    @property
    def is_able(self) -> bool:
        """Whether it waits for nobody."""
        return not isinstance(self.waits_for, Waiting) or self.waits_for.flight.landed


class Schedule:
    """One run of some processes against one server."""

    def __init__(self, server: Server, cache: Any, driver: SyncDriver, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.server = server
        self.cache = cache
        self.driver = driver
        self.actors: list[Actor] = []
        self.late: list[Operation[Any]] = []
        self.versions = [0] * (KEYS + GROUPS)
        self.floors = [0] * (KEYS + GROUPS)
        self.being_changed: set[int] = set()
        self.seconds = 0.0
        self.values = 0
        # Not everything happens in every run, or what needs many of one kind never comes about.
        self.writes = self.random.choice([["key"], ["tag"], self.random.sample(WRITES, 3)])
        self.trouble = self.random.choice([0.0, 0.03])
        self.lateness = self.random.choice([0.0, 0.03, 0.3])
        self.failures = self.random.choice([0.0, 0.1, 0.5])
        self.slowness = self.random.choice([0.0, 0.5, 0.9])
        driver_of_one = SimpleNamespace(is_cluster=False)
        self.processes: list[Any] = [
            SimpleNamespace(clock=self, flights=Flights(self), driver=driver_of_one)
            for _ in range(2)
        ]

    def now_ms(self, _: str) -> Flow[float]:
        """The server's clock, by which a value is fresh, near its end, or past it."""
        yield Now()
        real = int(self.server.call("TIME")[0]) * 1000.0
        return self.random.choice([0.0, real + 59_000, FAR, FAR])

    def play(self) -> None:
        """Let everybody have turns."""
        for _ in range(STEPS):
            chance = self.random.random()
            while len(self.actors) < ACTORS:
                self.begin()
            if chance < self.trouble:
                self.evict(lambda _: True)
            elif chance < self.trouble + self.lateness / 3 and self.late:
                self.driver.trace_many([self.late.pop(self.random.randrange(len(self.late)))])
            else:
                able = [actor for actor in self.actors if actor.is_able]
                actor = self.random.choice(able)
                if chance > 1 - self.trouble / 3:
                    self.kill(actor)
                elif (
                    not isinstance(actor.waits_for, Loading) or self.random.random() > self.slowness
                ):
                    self.turn(actor)

    def evict(self, which: Callable[[bytes], bool]) -> None:
        """Remove some key, as a server that is full does, or as its end comes."""
        keys = sorted(filter(which, self.server.call("KEYS", "*")))
        if keys:
            self.server.call("DEL", self.random.choice(keys))

    # Who takes part.

    def begin(self) -> None:
        """Let somebody begin: mostly readers."""
        access = self.random.choice(self.processes)
        if self.random.random() < 0.3:
            self.begin_to_write(access)
        else:
            self.begin_to_read(access)

    def begin_to_read(self, access: Any) -> None:
        """Read in one of all ways; what comes back must not be older than the floors are now."""
        cache, floors = self.cache, list(self.floors)
        key = self.random.randrange(KEYS)
        keys = self.random.sample(range(KEYS), KEYS)
        ways: list[tuple[Flow[Any], bool]] = [
            (cache._get_or_load(access, key, partial(self.load, key)), True),
            (cache._get_or_load_many(access, keys, self.load_many), True),
            (cache._get(access, key), False),
            (cache._get_many(access, keys), False),
            (cache._get_list(access, "", ""), False),
        ]
        flow, loads = self.random.choice(ways) if self.random.random() < 0.4 else ways[0]

        def check(actor: Actor) -> None:
            if actor.error is not None:
                assert isinstance(actor.error, OSError | asyncio.CancelledError), actor.error
                return
            found = actor.result
            if isinstance(found, dict):
                found = list(found.values())
            for entry in found if isinstance(found, list) else [found]:
                if entry is not None:
                    self.check(entry, floors)
                elif loads:
                    self.check_absence(key, floors)

        self.add(flow, check, mortal=True)

    def check(self, entry: Entry, floors: list[int]) -> None:
        """What was there is not older than what was invalidated before the reader asked."""
        self.values += 1
        assert entry.version >= floors[entry.key], (self.seed, entry, floors)
        if self.cache._definition.tagged:
            group = KEYS + entry.key % GROUPS
            assert entry.group >= floors[group], (self.seed, entry, floors)

    def check_absence(self, key: int, floors: list[int]) -> None:
        """Nothing was there: at some time since the reader asked that was so."""
        group = KEYS + key % GROUPS
        tagged = self.cache._definition.tagged
        assert not all(
            is_there(version, other)
            for version in range(floors[key], self.versions[key] + 1)
            for other in range(floors[group] if tagged else 0, self.versions[group] + 1)
        )

    def begin_to_write(self, access: Any) -> None:
        """Change the source, then tell the cache; each version has one writer at a time."""
        cache = self.cache
        key, group = self.random.randrange(KEYS), KEYS + self.random.randrange(GROUPS)
        way = self.random.choice(self.writes)
        cells = {"all": list(range(KEYS)), "tag": [group], "update": [key, KEYS + key % GROUPS]}
        changed = cells.get(way, [key])
        if (way == "tag" and not cache._definition.tagged) or self.being_changed & set(changed):
            return
        self.being_changed |= set(changed)
        for cell in changed:
            self.versions[cell] += cell < KEYS or way == "tag"
        versions = list(self.versions)
        entry = Entry(key=key, version=versions[key], group=versions[KEYS + key % GROUPS])
        hold = timedelta(milliseconds=self.random.choice([1, 60_000]))
        flows: dict[str, Callable[[], Flow[Any]]] = {
            "key": lambda: cache._invalidate(access, [key], timedelta(0)),
            "hold": lambda: cache._invalidate(access, [key], hold),
            "delete": lambda: cache._delete(access, key),
            "update": lambda: cache._put(access, "update", key, entry),
            "prefix": lambda: cache._delete_by_filters(access, key, ""),
            "all": lambda: cache._invalidate_all(access),
            "tag": lambda: cache._invalidate_tags(access, [str(group - KEYS)]),
        }

        def raise_floors(actor: Actor) -> None:
            self.being_changed -= set(changed)
            # The quiet ones say nothing of trouble, and promise nothing then.
            if actor.error is None and not actor.met_trouble:
                for cell in changed:
                    if cell < KEYS or way == "tag":
                        self.floors[cell] = versions[cell]

        self.add(flows[way](), raise_floors, mortal=False)

    def load(self, key: int) -> Loading:
        """Read the source."""
        version, group = self.versions[key], self.versions[KEYS + key % GROUPS]
        if self.random.random() < self.failures:
            return Loading(OSError("the database is away"))
        if not is_there(version, group):
            return Loading(None)
        return Loading(Entry(key=key, version=version, group=group))

    def load_many(self, keys: list[int]) -> Loading:
        """Read several rows of the source."""
        rows = {key: self.load(key).value for key in keys}
        broken = [row for row in rows.values() if isinstance(row, OSError)]
        return Loading(broken[0] if broken else rows)

    # How they have their turns.

    def add(self, flow: Flow[Any], ended: Callable[[Actor], None], *, mortal: bool) -> None:
        """Let a flow take part."""
        actor = Actor(flow, ended, mortal)
        self.actors.append(actor)
        self.resume(actor, lambda: next(flow))

    def kill(self, actor: Actor) -> None:
        """End a process in which somebody reads, or cancel the reader, who tidies up."""
        if not actor.mortal or isinstance(actor.waits_for, Waiting):
            return
        if self.random.random() < 0.5:
            actor.error = asyncio.CancelledError()
            self.finish(actor)
        else:
            actor.mortal = False
            actor.queue, actor.answers, actor.waits_for = [], [], None
            self.resume(actor, lambda: actor.flow.throw(asyncio.CancelledError()))

    def resume(self, actor: Actor, go: Callable[[], Any]) -> None:
        """Take a flow to its next step."""
        try:
            actor.step = go()
            while isinstance(actor.step, Now | Routes):  # nobody can come between
                actor.step = actor.flow.send(self.told(actor.step))
        except StopIteration as stop:
            actor.result = stop.value
            self.finish(actor)
        except (OSError, FenceKitError, asyncio.CancelledError) as error:
            actor.error = error
            self.finish(actor)
        else:
            if isinstance(actor.step, Together):
                actor.queue = list(actor.step.operations)

    def finish(self, actor: Actor) -> None:
        """Somebody is done."""
        self.actors.remove(actor)
        actor.ended(actor)

    def turn(self, actor: Actor) -> None:
        """Do one step for somebody, or leave him waiting."""
        step, waits_for = actor.step, actor.waits_for
        if isinstance(waits_for, Loading):
            value, actor.waits_for = waits_for.value, None
            self.answer(actor, value)
        elif isinstance(waits_for, Waiting):
            flight, actor.waits_for = waits_for.flight, None
            shared = (flight.outcome, waits_for.begun) if flight.outcome else None
            self.answer(actor, shared if flight.error is None else flight.error)
        elif isinstance(step, Operation):
            self.answer(actor, self.deliver(actor, step))
        elif isinstance(step, Together):
            if actor.queue:
                actor.answers.append(self.deliver(actor, actor.queue.pop(0)))
            if not actor.queue:
                answers, actor.answers = actor.answers, []
                self.answer(actor, answers)
        elif isinstance(step, Call):
            found = step.function()
            assert isinstance(found, Loading | Waiting)
            actor.waits_for = found
        elif isinstance(step, AwaitWake):
            if self.random.random() < 0.3:  # the other's lease is over
                self.evict(lambda key: key.endswith(b":fill"))
            self.answer(actor, answer=False)
        else:
            self.answer(actor, None)

    def told(self, step: Now | Routes) -> Any:
        """What a question is answered with that nobody else has to do with."""
        if isinstance(step, Routes):
            return [step.stem]
        self.seconds += 0.5
        return self.seconds

    def answer(self, actor: Actor, answer: Any) -> None:
        """Send an answer into a flow, or throw it."""
        if isinstance(answer, Exception):
            self.resume(actor, lambda: actor.flow.throw(answer))
        else:
            self.resume(actor, lambda: actor.flow.send(answer))

    def deliver(self, actor: Actor, operation: Operation[Any]) -> Any:
        """Bring a command to the server, or not, or twice, and its answer back, or not."""
        chance = self.random.random()
        again = operation.script.retry_safe
        if chance < self.trouble:
            actor.met_trouble = True
            return StoreUnavailable("nothing was sent")
        if again and self.random.random() < self.lateness:
            self.late.append(operation)
        (answer,) = self.driver.trace_many([operation])
        if chance > 1 - self.trouble:
            actor.met_trouble = True
            return OutcomeUnknown("no answer", sends=1)
        if again and chance > 0.9:
            (answer,) = self.driver.trace_many([operation])
        return answer


# What may be said of a cache, in every combination.
SAID: dict[str, Any] = {
    "tags": tags_of(lambda key: [str(int(key) % GROUPS)]),
    "grace": 60,
    "negative_ttl": 60,
    "beta": 2,
}
CHOSEN = [
    [name for name, is_said in zip(SAID, pattern, strict=True) if is_said]
    for pattern in product([False, True], repeat=len(SAID))
]


@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda names: "-".join(names) or "plain")
def test_in_no_order_is_served_what_was_invalidated(
    server: Server, store: Any, chosen: list[str]
) -> None:
    said = {"redis_client": store, "ttl": 60, **{name: SAID[name] for name in chosen}}
    cls = types.new_class(
        "Entries", (SyncGenericCache[Entry],), exec_body=lambda space: space.update(said)
    )
    found = 0
    for seed in range(ROUNDS):
        server.clean()
        schedule = Schedule(server, cls(), SyncDriver.of(store), seed)
        schedule.play()
        found += schedule.values
    assert found > 5 * ROUNDS, "hardly anything was found"
