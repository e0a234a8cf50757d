"""What was measured last, kept for the page of the documentation, scenario by scenario.

A whole run takes longer than a machine stays quiet; so any part of it may be run again by itself,
and replaces only what it measured.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.report import headline

if TYPE_CHECKING:
    from benchmarks.figures import Figure, Scenario
    from benchmarks.peers.rows import Outcome
    from benchmarks.stand import Stand

__all__ = ["FOLDER", "Record", "machine"]

FOLDER: Final = Path(__file__).parents[2] / "docs" / "explanation" / "benchmarks"
_FILE: Final = FOLDER / "figures.json"


def machine(stand: Stand) -> str:
    """What was measured on, in general terms: nothing that only this machine is called."""
    server = stand.server.info("server")
    version = server.get("valkey_version") or server["redis_version"]
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"{headline(stand)}; the server is {version}"
    )


class Record:
    """All that is kept: scenarios and rows by name, each with the machine it was measured on.

    Attributes:
        saves: whether each is written as soon as it is measured; a run that is cut short then has
            not been for nothing.
    """

    def __init__(self, scenarios: Sequence[str] = (), rows: Sequence[str] = ()) -> None:
        """Read what is kept.

        Args:
            scenarios: the names of all there are, in the order of the page; for saving.
            rows: those of the rows, which may be the same.
        """
        self.saves = False
        self._scenarios, self._rows = scenarios, rows
        kept: dict[str, Any] = json.loads(_FILE.read_text()) if _FILE.exists() else {}
        self.scenarios: dict[str, Any] = kept.get("scenarios", {})
        self.rows: dict[str, Any] = kept.get("rows", {})
        self.versions: dict[str, str] = kept.get("versions", {})
        self.absent: dict[str, str] = kept.get("absent", {})

    def scenario(
        self, group: str, scenario: Scenario, figures: Sequence[Figure], stand: Stand
    ) -> None:
        """Keep the figures of a scenario."""
        self.scenarios[scenario.name] = {
            "group": group,
            "about": scenario.about,
            "machine": machine(stand),
            "figures": [
                {
                    "what": figure.what,
                    "value": figure.value,
                    "unit": figure.unit,
                    "target": None if figure.target is None else asdict(figure.target),
                    "note": figure.note,
                }
                for figure in figures
            ],
        }
        self._measured()

    def row(self, outcome: Outcome, stand: Stand) -> None:
        """Keep a row of the peers."""
        row = outcome.row
        self.rows[row.name] = {
            "group": row.group,
            "what": row.what,
            "unit": row.unit,
            "better": row.better,
            "verdict": outcome.verdict,
            "machine": machine(stand),
            "measured": {
                name: {"value": one.value, "note": one.note}
                for name, one in outcome.measured.items()
            },
        }
        self._measured()

    def peers(self, versions: Mapping[str, str], absent: Mapping[str, str]) -> None:
        """Keep which versions took part, and who could not and why."""
        for name in versions:
            self.absent.pop(name, None)
        self.versions |= versions
        self.absent |= absent
        self._measured()

    def save(self) -> None:
        """Write it all; what is in no scenario or row any more is dropped."""

        def kept(found: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
            return {name: found[name] for name in order if name in found}

        FOLDER.mkdir(exist_ok=True)
        whole = {
            "scenarios": kept(self.scenarios, self._scenarios),
            "rows": kept(self.rows, self._rows),
            "versions": self.versions,
            "absent": self.absent,
        }
        _FILE.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")

    def _measured(self) -> None:
        if self.saves:
            self.save()
