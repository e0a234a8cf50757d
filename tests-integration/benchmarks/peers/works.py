"""What is asked of caches: loader calls in a stampede, and stale values."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.peers.arena import Arena, Measured, ask
from benchmarks.peers.roster import Contender

__all__ = ["stale", "stampede"]


def stampede(arena: Arena, role: str, callers: int) -> dict[str, Measured]:
    """Loader calls for so many callers at once, in one process; the median of three rounds."""

    def read(answers: list[Any]) -> Measured:
        calls = median(calls for calls, _ in answers)
        answered = min(answered for _, answered in answers)
        note = "" if answered == callers else f"{callers - answered} of {callers} unanswered"
        return Measured(calls, note)

    def work(one: Contender) -> Measured:
        answers = []
        for _ in range(3):
            arena.stand.clean()
            with arena.child(one, role) as child:
                answers.append(ask(child, "stampede", role=role, callers=callers))
        return read(answers)

    return arena.each(role, work)


def stale(arena: Arena, role: str, races: int) -> dict[str, Measured]:
    """Stale values after loads that were invalidated under way."""

    def work(one: Contender) -> Measured:
        with arena.child(one, role) as child:
            return Measured(ask(child, "stale", role=role, races=races))

    return arena.each(role, work)
