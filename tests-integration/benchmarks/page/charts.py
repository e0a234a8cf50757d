"""The charts: bars of the peers, and how far each of our figures is from its target.

Drawn twice, for a light page and for a dark one, on no ground of their own; text stays text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from benchmarks.peers.roster import OURS
from benchmarks.peers.table import figure

mpl.use("svg")

import matplotlib.pyplot as plt

__all__ = ["THEMES", "bars", "margins", "ranked"]

# Inches. A phone shows the whole width, so that what is narrower is read more easily.
_BARS, _MARGINS = 5.6, 7.2
_ROW, _EDGE = 0.21, 0.75
_PT: Final = 9
_HANG: Final = 140  # points that a heading stands to the left of the bars
_TEN: Final = 10  # from there on decimals say nothing


@dataclass(frozen=True)
class Theme:
    """Colours of a page."""

    name: str
    ink: str
    faint: str
    ours: str
    peers: str
    missed: str


THEMES: Final = (
    Theme("light", "#1f2328", "#d5d9de", "#1d63d1", "#a3abb5", "#b3261e"),
    Theme("dark", "#e3e6ea", "#3a3f46", "#7fb0ff", "#6c7480", "#ff8a80"),
)


@contextmanager
def _drawing(theme: Theme, width: float, rows: int, path: Path) -> Iterator[Any]:
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "fencekit",
        "font.family": "sans-serif",
        "font.size": _PT,
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
    }
    with plt.rc_context(style):
        drawing, axes = plt.subplots(figsize=(width, rows * _ROW + _EDGE), layout="constrained")
        axes.set_facecolor("none")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(theme.faint)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=theme.faint, linewidth=0.6)
        axes.set_axisbelow(True)
        yield axes
        drawing.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(drawing)


def bars(rows: Sequence[Mapping[str, Any]], path: Path, theme: Theme, *, scale: str) -> None:
    """Bars of every contender, row by row.

    Args:
        rows: as recorded.
        path: where to draw it.
        theme: its colours.
        scale: `linear`, `log`, or `symlog` where there are noughts.
    """
    lines = [line for row in rows for line in _lines(row)]
    with _drawing(theme, _BARS, len(lines), path) as axes:
        for place, (label, value, note) in enumerate(lines):
            if value is not None:
                axes.barh(
                    place, value, height=0.7, color=theme.ours if label == OURS else theme.peers
                )
            heading = value is None and not note
            _write(axes, (value or 0, place), "data", note, 4, size=_PT - 1)
            _write(
                axes,
                (0, place),
                ("axes fraction", "data"),
                label,
                -_HANG if heading else -6,
                ha="left" if heading else "right",
                weight="bold" if heading or label == OURS else "normal",
            )
        axes.set_yticks([])
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.set_xscale(scale, **({"linthresh": 0.1} if scale == "symlog" else {}))
        longest = max(value for _, value, _ in lines if value is not None)
        axes.set_xlim(0.5 if scale == "log" else 0, longest * (1.12 if scale == "linear" else 3))
        axes.xaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
        units = {row["unit"] for row in rows}
        axes.set_xlabel(units.pop() if len(units) == 1 else "× floor")


def _lines(row: Mapping[str, Any]) -> Iterator[tuple[str, float | None, str]]:
    """The heading of a row, and its contenders: label, length, and what stands at the bar's end."""
    yield row["what"], None, ""
    for name in (OURS, *ranked(row)):
        one = row["measured"][name]
        if one["value"] is None:
            yield name, None, one["note"].rpartition(": ")[2]
        else:
            yield name, one["value"], figure(one["value"])


def _write(
    axes: Any,
    at: tuple[float, float],
    coordinates: Any,
    text: str,
    right: int,
    *,
    ha: str = "left",
    weight: str = "normal",
    size: int = _PT,
) -> None:
    axes.annotate(
        text,
        at,
        xycoords=coordinates,
        xytext=(right, 0),
        textcoords="offset points",
        ha=ha,
        va="center",
        weight=weight,
        fontsize=size,
        annotation_clip=False,
    )


def ranked(row: Mapping[str, Any]) -> list[str]:
    peers = {name: one["value"] for name, one in row["measured"].items() if name != OURS}
    sign = -1 if row["better"] == "more" else 1
    return sorted(peers, key=lambda name: (peers[name] is None, sign * (peers[name] or 0)))


def margins(figures: Sequence[tuple[str, float, bool]], path: Path, theme: Theme) -> None:
    """How many times better than its target each figure is, on a line with the target at 1.

    Args:
        figures: what, how many times better, and whether the target is met.
        path: where to draw it.
        theme: its colours.
    """
    with _drawing(theme, _MARGINS, len(figures), path) as axes:
        for place, (_, margin, met) in enumerate(figures):
            colour = theme.ours if met else theme.missed
            axes.plot([1, margin], [place, place], color=colour, linewidth=2)
            axes.plot([margin], [place], "o" if met else "X", color=colour, markersize=6)
            text = f"{margin:.2f}" if margin < _TEN else f"{margin:.0f}"
            _write(axes, (max(margin, 1), place), "data", text, 7, size=_PT - 1)
        axes.axvline(1, color=theme.ink, linewidth=1)
        axes.set_xscale("log")
        most = max(margin for _, margin, _ in figures)
        axes.set_xlim(min(0.8, 0.9 * min(margin for _, margin, _ in figures)), most * 1.6)
        axes.xaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
        axes.xaxis.set_minor_formatter(mpl.ticker.NullFormatter())
        axes.set_yticks(range(len(figures)), [what for what, _, _ in figures])
        axes.set_ylim(len(figures) - 0.4, -0.6)
        axes.set_xlabel("times better than its target, which is the line at 1")
