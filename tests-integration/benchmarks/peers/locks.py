"""What is asked of locks: hand-offs, waiters, and what happens when processes are killed."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from benchmarks.figures import percentile
from benchmarks.peers.arena import Arena, Measured, ask
from benchmarks.peers.asked import HEADSTART, SPREAD
from benchmarks.peers.roster import Contender
from harness.children import Child

__all__ = [
    "dead_waiters",
    "handoff",
    "idle_commands",
    "idle_connections",
    "killed",
    "relay",
    "relay_late",
]

WAITERS: Final = 20
DEAD: Final = 5
CAP: Final = 7.0
_LEASE: Final = 2
_ROUNDS: Final = 30
_SECONDS: Final = 6.0
_WARM_UP: Final = 3
_SETTLE: Final = 1.0
# Beyond the five seconds that a command may take by redis-py's default, and what depends on them.
_WATCHED: Final = 6.0
_PATIENCE: Final = 15.0


def handoff(arena: Arena, role: str) -> dict[str, Measured]:
    """From one process to another that waits: the median, of a BLPOP hand-off."""

    def work(one: Contender) -> Measured:
        with arena.child(one, role) as holder, arena.child(one, role) as waiter:
            return _times(_handoffs(holder, waiter, role))

    return arena.each(role, work)


def _handoffs(holder: Child, waiter: Child, role: str) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    until = time.monotonic() + _SECONDS
    while len(found) < _WARM_UP + _ROUNDS and time.monotonic() < until:
        waiter.tell("pop", {})
        _let_wait()
        began = ask(holder, "push")
        least = waiter.expect("answer")[1] - began
        ask(holder, "hold", role=role, name="handoff")
        waiter.tell("take", {"role": role, "name": "handoff"})
        _let_wait()
        began = ask(holder, "give")
        found.append((least, waiter.expect("answer", _PATIENCE)[1] - began))
    return found[_WARM_UP:]


def _let_wait() -> None:
    time.sleep(HEADSTART + random.random() * SPREAD)


def relay(arena: Arena, role: str) -> dict[str, Measured]:
    """From one task to another of the same process: the median, of a BLPOP hand-off."""

    def work(one: Contender) -> Measured:
        with arena.child(one, role) as child:
            pairs = ask(child, "relay", role=role, rounds=_WARM_UP + _ROUNDS, seconds=_SECONDS)
            return _times([(least, own) for least, own in pairs[_WARM_UP:]])

    return arena.each(role, work)


def relay_late(arena: Arena, role: str) -> dict[str, Measured]:
    """The same: the 99th percentile of 300, of that of BLPOP; the median of three processes.

    Nobody polls here, so that each round may be as short as it can.
    """
    rounds = _WARM_UP + 300

    def work(one: Contender) -> Measured:
        least, own = [], []
        for _ in range(3):
            with arena.child(one, role) as child:
                pairs = ask(child, "relay", role=role, rounds=rounds, seconds=15.0, spread=0.0)
            least.append(percentile([pair[0] for pair in pairs[_WARM_UP:]], 99))
            own.append(percentile([pair[1] for pair in pairs[_WARM_UP:]], 99))
        return _times(list(zip(least, own, strict=True)))

    return arena.each(role, work)


def _times(pairs: list[tuple[float, float]]) -> Measured:
    least, own = (median(pair[which] for pair in pairs) * 1e6 for which in (0, 1))
    return Measured(own / least, f"{own:,.0f} µs of {least:,.0f}")


@dataclass
class _Idle:
    commands: float
    connections: int


def idle_commands(arena: Arena, role: str) -> dict[str, Measured]:
    """Commands a second for each of 20 that wait for a lock that is held."""
    return {
        name: Measured(seen.commands) if isinstance(seen, _Idle) else seen
        for name, seen in _idle(arena, role).items()
    }


def idle_connections(arena: Arena, role: str) -> dict[str, Measured]:
    """Connections of a process in which 20 wait."""
    return {
        name: Measured(seen.connections) if isinstance(seen, _Idle) else seen
        for name, seen in _idle(arena, role).items()
    }


def _idle(arena: Arena, role: str) -> dict[str, Any]:
    """Both figures at once; measured once for a role."""
    if role in arena.idle:
        return arena.idle[role]
    found: dict[str, Any] = {}

    def work(one: Contender) -> Measured:
        with arena.child(one, role) as holder:
            ask(holder, "hold", role=role, name="idle")
            before = arena.stand.connections()
            with arena.child(one, role) as waiting:
                ask(waiting, "idle", role=role, name="idle", waiters=WAITERS)
                time.sleep(_SETTLE)
                connections = arena.stand.connections() - before
                commands, began = _commands(arena), time.monotonic()
                time.sleep(_WATCHED)
                # Less the question that we ask to learn it.
                commands = _commands(arena) - commands - 1
                rate = commands / (time.monotonic() - began) / WAITERS
                gone = WAITERS - ask(waiting, "still")
                if gone:
                    why = f"{gone} of {WAITERS} gave up within {_SETTLE + _WATCHED:g} s"
                    return Measured(None, why)
                found[one.name] = _Idle(rate, connections)
        return Measured(rate)

    for name, measured in arena.each(role, work).items():
        found.setdefault(name, measured)
    arena.idle[role] = found
    return found


def _commands(arena: Arena) -> int:
    return int(arena.stand.server.info("stats")["total_commands_processed"])


def killed(arena: Arena, role: str) -> dict[str, Measured]:
    """The holder is killed: until the next is in, in leases of two seconds."""

    def work(one: Contender) -> Measured:
        with arena.child(one, role) as holder, arena.child(one, role) as waiter:
            ask(holder, "hold", role=role, name="killed", lease=_LEASE)
            waiter.tell("take", {"role": role, "name": "killed", "lease": _LEASE})
            time.sleep(0.4)
            holder.kill()
            return _entered(waiter, time.monotonic(), _LEASE)

    return arena.each(role, work)


def dead_waiters(arena: Arena, role: str) -> dict[str, Measured]:
    """Five queued processes are killed and the lock is released: until the next is in, seconds."""

    def work(one: Contender) -> Measured:
        options: dict[str, Any] = {"role": role, "name": "dead", "lease": _LEASE}
        with ExitStack() as stack:
            holder = stack.enter_context(arena.child(one, role))
            ask(holder, "hold", **options)
            queued = [stack.enter_context(arena.child(one, role)) for _ in range(DEAD)]
            for child in queued:
                child.tell("take", options)
            time.sleep(0.5)
            waiter = stack.enter_context(arena.child(one, role))
            waiter.tell("take", options)
            time.sleep(0.3)
            for child in queued:
                child.kill()
            return _entered(waiter, ask(holder, "give"), 1)

    return arena.each(role, work)


def _entered(waiter: Child, began: float, unit: float) -> Measured:
    try:
        took = waiter.expect("answer", CAP)[1] - began
    except TimeoutError:
        return Measured(None, f"not within {CAP:g} s")
    return Measured(took / unit, f"{took:.2f} s")
