"""Start the workers, feed them, kill and freeze them, and keep count."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final, Protocol

from demo.broker import Broker
from demo.faults import Action, Faults
from demo.hands import Hand
from demo.messages import (
    Begun,
    Entered,
    Finished,
    Halted,
    How,
    LeaseLost,
    Message,
    Point,
    Refused,
)
from demo.story import Story

if TYPE_CHECKING:
    from collections.abc import Sequence

    from demo.deliveries import Delivery
    from demo.worker import Setup

__all__ = ["Count", "Runner", "WorkerCrashed"]

# Shorter than a lease, so that the frozen worker's delivery comes back while it still has its own.
_VISIBILITY: Final = 1.0
# After how long a delivery comes again whose worker was shut out.
_SHUT_OUT_PAUSE: Final = 0.05
_FAREWELL: Final = 5.0


class WorkerCrashed(Exception):
    """A worker ended that nobody had killed."""


class Audience(Protocol):
    """Who watches the run."""

    def progress(self, acknowledged: int) -> None:
        """So many deliveries are settled."""

    def say(self, what: str) -> None:
        """Something happened."""


@dataclass
class Count:
    """What the runner was told, counted.

    Attributes:
        ends: how deliveries were settled, each counted once.
        runs: how often the work was taken up.
        kills: how many workers were killed, by the point where they were.
        reclaims: how often a worker took over from one whose lease was over.
        lost: leases that their holders noticed to be lost.
        refused: stale writes, by who refused them.
        deferred: how often a worker was told to come back later.
        late: writes of a woken worker that nobody refused.
        answers: every answer that was given for an event.
    """

    ends: Counter[How] = field(default_factory=Counter)
    runs: int = 0
    kills: Counter[Point] = field(default_factory=Counter)
    reclaims: int = 0
    lost: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    deferred: int = 0
    late: int = 0
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


class Runner:
    """One run.

    Attributes:
        count: what happened, in numbers.
        stories: what happened to each worker that was frozen.
        broker: the queue.
    """

    def __init__(self, deliveries: Sequence[Delivery], setup: Setup, audience: Audience) -> None:
        self.count = Count()
        self.stories: list[Story] = []
        self.broker = Broker(deliveries, _VISIBILITY)
        self._setup = setup
        self._audience = audience
        self._faults = Faults(len(deliveries), setup.seed)
        self._hands: list[Hand] = []
        self._hired = 0

    def run(self, workers: int) -> None:
        """Have every delivery acknowledged; no worker outlives this call, however it ends.

        Raises:
            WorkerCrashed: a worker ended by itself.
        """
        try:
            for _ in range(workers):
                self._hire()
            # Also when all is acknowledged somebody may be at a second copy of something.
            while not self.broker.done or any(h.delivery for h in self._hands):
                self._hand_out()
                self._listen()
            self._dismiss()
        finally:
            for left in self._hands:
                left.kill()

    def _hire(self) -> None:
        self._hired += 1
        self._hands.append(Hand.hire(f"worker {self._hired}", self._setup))

    def _hand_out(self) -> None:
        for idle in [h for h in self._hands if h.delivery is None]:
            delivery = self.broker.take(time.monotonic())
            self._tell_of_timeouts()
            if delivery is None:
                return
            busy = [h.fault for h in self._hands if h.delivery is not None]
            may_freeze = all(f is None or f.action is not Action.FREEZE for f in busy)
            fault = self._faults.arm(self.broker.acknowledged, may_freeze=may_freeze)
            with suppress(BrokenPipeError):  # it has crashed, as the next look at its pipe shows
                idle.give(delivery, fault)

    def _tell_of_timeouts(self) -> None:
        for number in self.broker.timed_out:
            for story in self.stories:
                if story.delivery.number == number:
                    what = f"no acknowledgement for {_VISIBILITY:g} s: delivers it again"
                    story.add(time.monotonic(), "broker", what)
        self.broker.timed_out.clear()

    def _listen(self) -> None:
        wakes_at = self.broker.wakes_at()
        timeout = None if wakes_at is None else max(wakes_at - time.monotonic(), 0)
        pipes = {h.pipe: h for h in self._hands}
        for pipe in wait(list(pipes), timeout):
            teller = pipes[pipe]  # type: ignore[index]  # typeshed: wait() may return other objects
            try:
                message: Message = teller.pipe.recv()
            except (EOFError, ConnectionResetError):
                teller.process.join()
                code = teller.process.exitcode
                raise WorkerCrashed(f"{teller.name} ended by itself, with {code}") from None
            self._hear(teller, message)

    def _hear(self, teller: Hand, message: Message) -> None:
        assert teller.delivery is not None
        story = self._story_of(teller.delivery)
        if story is not None:
            story.hear(teller.name, message)
        count = self.count
        if isinstance(message, Begun):
            count.reclaims += message.reclaimed
        elif isinstance(message, Entered):
            count.runs += 1
        elif isinstance(message, LeaseLost):
            count.lost += not any(isinstance(m, LeaseLost) for m in teller.told)
        elif isinstance(message, Refused):
            count.refused[message.by] += 1
        teller.told.append(message)
        if isinstance(message, Halted):
            self._strike(teller, teller.delivery, message)
        elif isinstance(message, Finished):
            self._finish(teller, teller.delivery, message)

    def _story_of(self, delivery: Delivery) -> Story | None:
        return next((s for s in self.stories if s.delivery is delivery), None)

    def _strike(self, victim: Hand, delivery: Delivery, halted: Halted) -> None:
        assert victim.fault is not None
        what = f"{victim.name} {halted.point.value}, at {delivery.event.id}"
        if victim.fault.action is Action.FREEZE:
            if self.broker.is_settled(delivery.number):
                # Slower than the visibility timeout, it has been replaced already: no story here.
                self._faults.disarm(victim.fault)
                victim.fault = None
                victim.go_on()
                return
            victim.freeze()
            story = Story(victim.name, delivery, victim.told)
            story.add(time.monotonic(), victim.name, f"SIGSTOP, {halted.point.value}")
            self.stories.append(story)
            self._audience.say(f"SIGSTOP  {what}")
            return
        victim.kill()
        self._hands.remove(victim)
        self.count.kills[halted.point] += 1
        self.broker.defer(delivery.number, time.monotonic())
        self._audience.say(f"SIGKILL  {what}")
        self._hire()

    def _finish(self, teller: Hand, delivery: Delivery, end: Finished) -> None:
        count, number = self.count, delivery.number
        if end.answer is not None:
            count.answers.setdefault(delivery.event.id, []).append(end.answer)
        if end.how.acknowledged:
            if self.broker.acknowledge(number):
                count.ends[end.how] += 1
                self._audience.progress(self.broker.acknowledged)
            if teller.woken and end.how is How.RAN:
                count.late += 1
            self._wake_whom_it_replaced(delivery)
        elif end.how is How.BUSY:
            count.deferred += 1
            self.broker.defer(number, end.at + end.retry_after)
        else:
            self.broker.defer(number, end.at + _SHUT_OUT_PAUSE)
        if teller.fault is not None and not any(isinstance(m, Halted) for m in teller.told):
            self._faults.disarm(teller.fault)
        teller.delivery = teller.fault = None

    def _wake_whom_it_replaced(self, delivery: Delivery) -> None:
        for sleeper in self._hands:
            if sleeper.frozen and sleeper.delivery is delivery:
                story = self._story_of(delivery)
                assert story is not None
                story.add(time.monotonic(), sleeper.name, "SIGCONT")
                sleeper.wake()
                self._audience.say(f"SIGCONT  {sleeper.name}")

    def _dismiss(self) -> None:
        for idle in self._hands:
            idle.pipe.send(None)
        for idle in self._hands:
            idle.process.join(_FAREWELL)
