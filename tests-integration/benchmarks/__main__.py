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
from benchmarks.report import headline, number, table
from benchmarks.stand import opened_stand

GROUPS = ("core", "cache", "fifo", "django", "celery")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the groups asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--only", default="", metavar="WORD", help="scenarios with it in the name")
    parser.add_argument("--no-fail", action="store_true", help="exit with 0 whatever is missed")
    asked = parser.parse_args(arguments)
    for unknown in set(asked.groups) - set(GROUPS):
        parser.error(f"no group {unknown!r}; there are: {', '.join(GROUPS)}")
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    began, missed = time.monotonic(), []
    with opened_stand() as stand:
        console.print(headline(stand))
        for scenario in _scenarios(asked.groups or GROUPS, asked.only):
            gc.collect()  # what the last one left would still be connected
            stand.clean()
            figures = list(scenario.measure(stand))
            console.print(table(f"{scenario.name}: {scenario.about}", figures))
            missed += [(scenario, figure) for figure in figures if figure.passed is False]
    console.print(f"{time.monotonic() - began:.0f} s, {_verdict(missed)}")
    return 1 if missed and not asked.no_fail else 0


def _scenarios(groups: Sequence[str], only: str) -> list[Scenario]:
    return [
        scenario
        for group in groups
        for scenario in importlib.import_module(f"benchmarks.{group}").SCENARIOS
        if only in scenario.name
    ]


def _verdict(missed: list[tuple[Scenario, Figure]]) -> str:
    if not missed:
        return "all targets met"
    return "missed: " + "; ".join(
        f"{scenario.name}, {figure.what}: {number(figure)}, not {figure.target}"
        for scenario, figure in missed
    )


if __name__ == "__main__":
    sys.exit(main())
