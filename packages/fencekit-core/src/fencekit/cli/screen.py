"""What a command prints: tables for people, JSON for programs, and nothing that moves a cursor.

A name or an owner is somebody else's text, and is shown as text: no markup, no escape sequence.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

__all__ = ["Screen", "facts_table", "plain", "seconds"]


def plain(value: object, style: str = "") -> Text:
    """Somebody else's text, with what is not printable written as an escape."""
    text = "–" if value is None or value == "" else str(value)
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    return Text(shown, style=style, overflow="fold")


def seconds(milliseconds: float) -> str:
    """A duration as people say it: ``0.3 s``, ``4 min 10 s``, ``2 h 5 min``, ``29 d 23 h``."""
    if milliseconds < 60_000:  # noqa: PLR2004 - a minute
        return f"{milliseconds / 1000:.1f} s"
    left = round(milliseconds / 1000)
    for size, unit, smaller, name in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if left >= size:
            rest = left % size // smaller
            return f"{left // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{left} s"


class Screen:
    """Where a command prints: results to stdout, everything else to stderr.

    Attributes:
        json: print results as JSON.
        out: for results.
        err: for everything else.
    """

    def __init__(self, *, json: bool) -> None:
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a letter of a name is no reason to fail.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        self.json = json
        self.out = Console(highlight=False)
        self.err = Console(stderr=True, highlight=False)

    def show(self, data: Any, view: RenderableType) -> None:
        """Print a result: the data as JSON, or the view of it."""
        if self.json:
            self.print_json(data)
        else:
            self.out.print(view)

    def print_json(self, data: Any, *, indent: int | None = 2) -> None:
        """Print data as JSON, unwrapped and uncoloured."""
        self.out.file.write(json.dumps(data, indent=indent) + "\n")
        self.out.file.flush()

    def note(self, text: str, style: str = "") -> None:
        """Say something beside the result."""
        self.err.print(Text(text, style=style), soft_wrap=True)

    def progress(self) -> Progress:
        """A bar for what takes long: on stderr, gone when it is done, only on a terminal."""
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            # A quiet one elsewhere: rich before 14.2 ends even a disabled bar with an empty line.
            console=self.err if self.err.is_terminal else Console(quiet=True),
            transient=True,
            disable=not self.err.is_terminal,
        )

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: set[str]
    ) -> Table:
        """A table of somebody else's text; what is no text of theirs is never broken."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for title in columns:
            table.add_column(
                title,
                justify="right" if title in numbers else "left",
                no_wrap=title in numbers,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else plain(cell) for cell in row))
        return table


def facts_table(facts: Mapping[str, object]) -> Table:
    """Names of facts and what they are, one below the other."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    for name, fact in facts.items():
        table.add_row(name, fact if isinstance(fact, Text) else plain(fact))
    return table
