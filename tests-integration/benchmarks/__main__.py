"""Measure, print, and exit with 1 when a target is missed."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from benchmarks.figures import Figure, Scenario
from benchmarks.peers.arena import Arena
from benchmarks.peers.roster import ROSTER
from benchmarks.peers.rows import ROWS, Outcome, Row, measured
from benchmarks.peers.table import table as peers_table
from benchmarks.record import Record
from benchmarks.report import headline, number, table
from benchmarks.stand import Stand, opened_stand

GROUPS = ("core", "fifo", "cache", "django", "celery")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the groups asked for, or the peers; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--peers", action="store_true", help="other libraries beside ours")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="scenarios with one of them in the name: a,b"
    )
    parser.add_argument("--no-fail", action="store_true", help="exit with 0 whatever is missed")
    parser.add_argument(
        "--record", action="store_true", help="keep the figures, and write the page of them anew"
    )
    asked = parser.parse_args(arguments)
    for unknown in set(asked.groups) - set(GROUPS):
        parser.error(f"no group {unknown!r}; there are: {', '.join(GROUPS)}")
    if asked.peers and asked.groups:
        parser.error("the peers have no groups; `--only` takes a part of their rows")
    if asked.record:
        # Needs matplotlib: better missing now than after ten minutes.
        importlib.import_module("benchmarks.page.words")
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    began = time.monotonic()
    record = Record([one.name for _, one in _scenarios(GROUPS)], [row.name for row in ROWS])
    record.saves = asked.record
    with opened_stand() as stand:
        console.print(headline(stand))
        if asked.peers:
            missed = _peers(stand, asked.only, console, record)
        else:
            missed = _ours(stand, asked.groups or GROUPS, asked.only, console, record)
    if asked.record:
        console.print(f"written: {importlib.import_module('benchmarks.page.words').write()}")
    verdict = "missed: " + "; ".join(missed) if missed else "all targets met"
    console.print(f"{time.monotonic() - began:.0f} s, {verdict}")
    return 1 if missed and not asked.no_fail else 0


def _ours(
    stand: Stand, groups: Sequence[str], only: str, console: Console, record: Record
) -> list[str]:
    missed = []
    for group, scenario in _scenarios(groups, only):
        gc.collect()  # what the last one left would still be connected
        stand.clean()
        figures = list(scenario.measure(stand))
        console.print(table(f"{scenario.name}: {scenario.about}", figures))
        record.scenario(group, scenario, figures, stand)
        missed += [_miss(scenario, figure) for figure in figures if figure.passed is False]
    return missed


def _scenarios(groups: Sequence[str], only: str = "") -> list[tuple[str, Scenario]]:
    return [
        (group, scenario)
        for group in groups
        for scenario in importlib.import_module(f"benchmarks.{group}").SCENARIOS
        if any(word in scenario.name for word in only.split(","))
    ]


def _miss(scenario: Scenario, figure: Figure) -> str:
    return f"{scenario.name}, {figure.what}: {number(figure)}, not {figure.target}"


def _peers(stand: Stand, only: str, console: Console, record: Record) -> list[str]:
    """Print one table; what is missed is a row where a peer is ahead and nobody says why."""
    rows: list[Row] = [row for row in ROWS if any(word in row.name for word in only.split(","))]
    arena = Arena(stand, frozenset(row.role for row in rows))
    versions = {one.name: one.version for one in ROSTER if one.name in arena.pythons}
    record.peers(versions, arena.absent)
    outcomes: list[Outcome] = []
    began = time.monotonic()
    for outcome in measured(arena, rows):
        outcomes.append(outcome)
        record.row(outcome, stand)
        done = f"{len(outcomes)} of {len(rows)}, {outcome.row.name}"
        console.print(f"{time.monotonic() - began:.0f} s: {done}", style="dim")
    console.print(peers_table(outcomes, arena.absent))
    return [
        f"{outcome.row.name} ({outcome.verdict})" for outcome in outcomes if not outcome.explained
    ]


if __name__ == "__main__":
    sys.exit(main())
