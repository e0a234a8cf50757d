"""The table of a run."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from benchmarks.stand import Stand

__all__ = ["headline", "number", "table"]

_HUNDRED = 100
_VERDICTS = {None: "", True: "[green]pass[/]", False: "[bold red]MISS[/]"}


def headline(stand: Stand) -> str:
    """What was measured with what: ratios depend on it."""
    hiredis = _version("hiredis")
    reader = f"hiredis {hiredis}" if hiredis else "no hiredis"
    return (
        f"{stand.server.kind}, redis-py {_version('redis')} ({reader}), "
        f"Python {platform.python_version()}"
    )


def table(title: str, figures: Sequence[Figure]) -> Table:
    """The figures of one scenario."""
    made = Table(title=title, title_justify="left", title_style="bold", expand=False)
    made.add_column("measured")
    made.add_column("value", justify="right")
    made.add_column("target")
    made.add_column("")
    made.add_column("note", style="dim")
    for figure in figures:
        made.add_row(
            figure.what,
            number(figure),
            "" if figure.target is None else str(figure.target),
            _VERDICTS[figure.passed],
            figure.note,
        )
    return made


def number(figure: Figure) -> str:
    """A value as people read it."""
    if figure.value is None:
        return "–"
    # Beside a hundred of anything, and for a count, decimals say nothing.
    whole = abs(figure.value) >= _HUNDRED or (figure.value == int(figure.value) and not figure.unit)
    text = f"{figure.value:,.0f}" if whole else f"{figure.value:.2f}"
    return f"{text} {figure.unit}".rstrip()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
