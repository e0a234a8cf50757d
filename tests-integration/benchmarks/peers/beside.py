"""Rows of the peers as figures of a distribution's own benchmark: ours, of the best peer's."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figures import Figure, Scenario, Target, at_least, at_most
from benchmarks.peers.arena import Arena
from benchmarks.peers.roster import OURS
from benchmarks.peers.rows import ROWS, Outcome, measured
from benchmarks.peers.table import figure
from benchmarks.stand import Stand

__all__ = ["beside"]


def beside(name: str, about: str, group: str) -> Scenario:
    """A scenario of all the rows that stand under a heading.

    A peer whose environment cannot be made is a missed target: nobody is to read it as being ahead.
    """
    rows = [row for row in ROWS if row.group == group]

    def measure(stand: Stand) -> Iterator[Figure]:
        arena = Arena(stand, frozenset(row.role for row in rows))
        for absent, reason in arena.absent.items():
            yield Figure(absent, None, "×", at_least(1), f"not compared: {reason}")
        for outcome in measured(arena, rows):
            yield _figure(outcome)

    return Scenario(name, about, measure)


def _figure(outcome: Outcome) -> Figure:
    row, ours, best = outcome.row, outcome.measured[OURS].value, outcome.best
    target: Target = at_least(1) if row.better == "more" else at_most(1)
    told = f"{figure(ours)} {row.unit}".strip()
    if ours is None or best is None:
        peers = "; ".join(
            f"{name}: {one.note}" for name, one in outcome.measured.items() if name != OURS
        )
        # Nothing to divide by: the peers did not get there at all.
        return Figure(row.what, None if ours is None else 0.0, "×", target, f"{told}; {peers}")
    # Where the best is none at all, ours is level with it or behind.
    ratio = ours / best[1] if best[1] else 1.0 + float(ours > 0)
    return Figure(row.what, ratio, "×", target, f"{told}; {best[0]} {figure(best[1])}")
