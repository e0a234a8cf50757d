"""What each test came to, collected where xdist's workers report to, and kept as JSON."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

__all__ = ["RESULTS", "Collected", "Outcome", "Run"]

# The file to write to; nothing is written where it is not set.
RESULTS = "FENCEKIT_CONFORMANCE_JSON"


@dataclass(frozen=True)
class Outcome:
    """One test in one column.

    Attributes:
        test: `module.py::test`, without its parameters.
        column: the parameters as pytest names them; empty for a test without.
        what: passed, failed or skipped.
        reason: why it was skipped.
    """

    test: str
    column: str
    what: str
    reason: str = ""

    @property
    def module(self) -> str:
        return self.test.partition("::")[0]


@dataclass
class Run:
    """One run of pytest.

    Attributes:
        python: its version.
        redis: redis-py's.
        valkey: valkey-py's.
        seconds: how long it took.
        outcomes: of all tests.
    """

    python: str = field(default_factory=platform.python_version)
    redis: str = field(default_factory=lambda: version("redis"))
    valkey: str = field(default_factory=lambda: version("valkey"))
    seconds: int = 0
    outcomes: list[Outcome] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Run:
        """Read what `Collected` wrote."""
        found: dict[str, Any] = json.loads(path.read_text())
        outcomes = [Outcome(**each) for each in found.pop("outcomes")]
        return cls(**found, outcomes=outcomes)


class Collected:
    """A plugin of pytest's that writes a `Run` at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.monotonic()
        self._found: dict[str, Outcome] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the worst of set-up, test and tear-down; a call that passed says so."""
        if report.outcome == "passed" and report.when != "call":
            return
        before = self._found.get(report.nodeid)
        if before is not None and before.what == "failed":
            return
        place, _, column = report.nodeid.partition("[")
        module, _, test = place.rpartition("/")[2].partition("::")
        reason = ""
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        self._found[report.nodeid] = Outcome(
            f"{module}::{test}", column.removesuffix("]"), report.outcome, reason
        )

    def pytest_sessionfinish(self) -> None:
        """Write all, sorted, so that two runs can be compared."""
        outcomes = sorted(self._found.values(), key=lambda one: (one.test, one.column))
        run = Run(seconds=round(time.monotonic() - self._began), outcomes=outcomes)
        self._path.write_text(json.dumps(asdict(run), indent=1) + "\n")


def collected() -> Collected | None:
    """The plugin, where somebody wants to know."""
    path = os.environ.get(RESULTS)
    return Collected(Path(path)) if path else None
