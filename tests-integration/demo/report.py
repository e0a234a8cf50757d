"""Tell people: progress while it runs, then a table, the timelines and the verdict."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.messages import How, Point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import TaskID

    from demo.audit import Findings
    from demo.runner import Runner
    from demo.story import Story

__all__ = ["Report"]

_LINES = 10


class Report:
    """What is shown of one run; lines instead of a bar where nobody looks at a terminal."""

    def __init__(self, total: int) -> None:
        self._console = Console(highlight=False)
        self._total = total
        self._bar: tuple[Progress, TaskID] | None = None
        self._next_line = 0
        self._started = time.monotonic()

    @contextmanager
    def running(self, title: str) -> Iterator[None]:
        """Show progress while the block runs."""
        self._started = time.monotonic()
        if not self._console.is_terminal:
            self._console.print(title)
            yield
            return
        columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as bar:
            self._bar = bar, bar.add_task("", total=self._total)
            yield
        self._bar = None

    def progress(self, acknowledged: int) -> None:
        """So many deliveries are settled."""
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, completed=acknowledged)
        elif acknowledged * _LINES >= self._next_line * self._total:
            self._next_line = acknowledged * _LINES // self._total + 1
            self.say(f"{acknowledged} of {self._total} deliveries acknowledged")

    def say(self, what: str) -> None:
        """Something happened."""
        self._console.print(f"{self._clock(time.monotonic())}  {what}", soft_wrap=True)

    def table(self, runner: Runner, findings: Findings, seconds: float) -> None:
        """Show what happened, in numbers."""
        count, ends = runner.count, runner.count.ends
        table = Table(show_header=False, title="What happened", title_justify="left")
        table.add_column()
        table.add_column(justify="right")
        kills = sum(count.kills.values())
        committed = count.kills[Point.COMMITTED]
        rows = [
            ("deliveries", self._total),
            ("  handed to workers, again included", runner.broker.handed_out),
            ("events", findings.events),
            ("runs", count.runs),
            ("effects", findings.effects),
            ("replays answered from the record", ends[How.REPLAYED]),
            ("answered from the ledger", ends[How.FOUND]),
            ("reclaims", count.reclaims),
            ("told to come back later", count.deferred),
            ("leases lost", count.lost),
            ("stale writes refused by the ledger", count.refused["ledger"]),
            ("stale writes refused by the gate", count.refused["gate"]),
            ("conflicts (IdempotencyPayloadMismatch)", ends[How.CONFLICT]),
            (f"workers killed, {committed} of them {Point.COMMITTED.value}", kills),
            ("workers frozen and woken", len(runner.stories)),
        ]
        for name, number in rows:
            table.add_row(name, f"{number:,}")
        table.add_row("seconds", f"{seconds:.1f}")
        self._console.print()
        self._console.print(table)

    def story(self, story: Story) -> None:
        """Show what happened to a frozen worker."""
        event = story.delivery.event
        self._console.print(f"\nThe story of {story.hero}, at {event.id} ({event.balance})")
        for at, who, what in story.told():
            self._console.print(f"  {self._clock(at)}  {who:<9}  {what}", soft_wrap=True)

    def verdict(self, findings: Findings, late: int) -> None:
        """Say whether every event took effect exactly once, and if not, what went wrong."""
        self._console.print()
        if findings.exactly_once:
            self._console.print(
                f"Exactly once: each of the {findings.events:,} events has one effect, every "
                "balance is the sum of them, in the ledger and in Redis, and no fence went down.",
                soft_wrap=True,
            )
            return
        self._console.print("NOT exactly once:")
        for number, what in (
            (findings.missing, "events without an effect"),
            (findings.doubled, f"events took effect again, {findings.extra:,} times in all"),
            (findings.conflicting, "effects of a payload that contradicts the first"),
            (findings.invented, "effects that follow from no delivery"),
            (findings.wrong_balances, f"balances are wrong, by {findings.drift:,} in all"),
            (findings.overwritten, "balances lost an update: not even the sum of their effects"),
            (late, "writes of a woken worker went through"),
            (findings.fences_down, "fences went down"),
            (findings.mirrors, "balances in Redis are not the ledger's"),
            (findings.answers, "events were answered differently at different times"),
        ):
            if number:
                self._console.print(f"  {number:>6,}  {what}", soft_wrap=True)

    def _clock(self, at: float) -> str:
        return f"t+{at - self._started:6.3f}"
