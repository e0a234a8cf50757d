"""The table of the peers, on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.table import Table

from benchmarks.peers.arena import Measured
from benchmarks.peers.roster import OURS
from benchmarks.peers.rows import Outcome

__all__ = ["figure", "ranked", "table"]

_STYLES: Final = {"ahead": "[green]ahead[/]", "level": "level", "behind": "[yellow]behind[/]"}
_HUNDRED: Final = 100
_HUNDREDTH: Final = 0.01


def figure(value: float | None) -> str:
    """A value as people read it."""
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= _HUNDRED:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= _HUNDREDTH else f"{value:.1g}"


def ranked(outcome: Outcome) -> list[tuple[str, Measured]]:
    """The peers of a row, the best first, and at the end those without a figure."""
    peers = [(name, one) for name, one in outcome.measured.items() if name != OURS]

    def place(peer: tuple[str, Measured]) -> tuple[bool, float]:
        value = peer[1].value
        return (
            value is None,
            0 if value is None else value * (-1 if outcome.row.better == "more" else 1),
        )

    return sorted(peers, key=place)


def table(outcomes: Sequence[Outcome], absent: Mapping[str, str]) -> Table:
    """All rows; each says whether we are ahead, and if not, why."""
    made = Table(title="peers", title_justify="left", title_style="bold", show_lines=True)
    made.add_column("measured")
    made.add_column("fencekit", justify="right", style="bold")
    made.add_column("peers, the best first")
    made.add_column("we are")
    for outcome in outcomes:
        row, ours = outcome.row, outcome.measured[OURS]
        peers = "\n".join(_peer(name, one) for name, one in ranked(outcome))
        why = f"\n{row.why}" if outcome.verdict != "ahead" and row.why else ""
        made.add_row(
            f"{row.what}\n[dim]{row.name}, {row.better} is better[/]",
            f"{figure(ours.value)} {row.unit}\n[dim]{ours.note}[/]",
            peers,
            f"{_STYLES[outcome.verdict]}{why}",
        )
    for name, reason in absent.items():
        made.add_row(name, "", f"not installed: {reason}", "")
    return made


def _peer(name: str, one: Measured) -> str:
    note = f" [dim]{one.note}[/]" if one.note else ""
    return f"{figure(one.value)} {name}{note}"
