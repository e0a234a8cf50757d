"""What the benchmarks make of measurements: a verdict, a table, a record; nothing is measured here.

Seen failing: with a verdict that takes more for better in every row, with an absent peer left out,
and with a record that keeps what nobody measures any more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from benchmarks import record
from benchmarks.peers.arena import Measured, ratio
from benchmarks.peers.environments import NotInstalled, environment
from benchmarks.peers.roster import OURS, ROSTER
from benchmarks.peers.rows import ROWS, Outcome, Row
from benchmarks.peers.table import table

if TYPE_CHECKING:
    from pathlib import Path


def outcome(name: str, ours: float | None, *peers: float | None) -> Outcome:
    """What would come of a row."""
    (row,) = (row for row in ROWS if row.name == name)
    found = {OURS: Measured(ours)}
    return Outcome(row, found | {f"peer {n}": Measured(value) for n, value in enumerate(peers)})


def text(*outcomes: Outcome, absent: dict[str, str]) -> str:
    """The table as it is printed."""
    console = Console(width=200, record=True, file=sys.stderr)
    console.print(table(outcomes, absent))
    return console.export_text()


@pytest.mark.parametrize(
    ("name", "ours", "peers", "verdict"),
    [
        ("lock-sync", 0.9, (0.7, 0.8), "ahead"),
        ("lock-sync", 0.9, (0.7, 1.0), "behind"),
        ("lock-sync", 0.9, (0.899,), "level"),
        ("handoff-sync", 1.5, (1.7, 60.0), "ahead"),
        ("handoff-sync", 1.5, (1.4, 60.0), "behind"),
        ("cache-stampede-async", 1, (1, 200), "level"),
        ("cache-stale-async", 0, (50, 50), "ahead"),
        ("fifo-killed", 0.8, (None,), "ahead"),
        ("lock-sync", None, (0.1,), "behind"),
    ],
)
def test_the_verdict_is_that_of_the_best_peer(
    name: str, ours: float | None, peers: tuple[float | None, ...], verdict: str
) -> None:
    assert outcome(name, ours, *peers).verdict == verdict


def test_behind_without_a_reason_is_not_explained() -> None:
    assert not outcome("lock-sync", 0.5, 0.9).explained
    assert outcome("killed-sync", 0.8, 0.04).explained


def test_a_row_that_is_not_ahead_prints_why() -> None:
    printed = text(outcome("cache-stampede-async", 1, 1), absent={})
    assert "no loader can run less than once" in printed
    assert "no loader" not in text(outcome("cache-stampede-async", 1, 2), absent={})


def test_a_peer_that_could_not_be_installed_is_a_line_with_the_reason() -> None:
    printed = text(outcome("lock-sync", 0.9, 0.8), absent={"pottery": "no such version"})
    assert "not installed: no such version" in printed


def test_an_environment_that_cannot_be_made_says_what_pip_said_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "pip", stderr="much\nERROR: no such version\n")

    monkeypatch.setenv("HATCH_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(NotInstalled, match=r"\AERROR: no such version\Z"):
        environment("nobody", ["nobody==1"])


def test_a_ratio_is_the_median_of_the_turns() -> None:
    measured = ratio([[[2.0, 4.0], [3.0, 4.0]], [[4.0, 4.0]]])
    assert measured.value == 0.75


def test_each_contender_is_pinned_and_every_role_of_a_row_is_played_by_a_peer() -> None:
    assert all("==" in one.pins[0] for one in ROSTER if one.pins)
    peers = {role for one in ROSTER if one.name != OURS for role in one.roles}
    assert {row.role for row in ROWS} <= peers


def test_rows_have_different_names() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(isinstance(row, Row) and row.group for row in ROWS)


def test_what_is_measured_anew_replaces_only_itself_and_what_is_gone_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(record, "_FILE", tmp_path / "figures.json")
    kept = record.Record(["b", "a"], ["a", "b"])
    kept.rows = {"b": {"old": 1}, "gone": {}, "a": {"old": 2}}
    kept.scenarios = {"a": {"same name": 4}}
    kept.save()
    again = record.Record(["b", "a"], ["a", "b"])
    again.rows["b"] = {"new": 3}
    again.save()
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["scenarios"] == {"a": {"same name": 4}}
    rows = written["rows"]
    assert rows == {"a": {"old": 2}, "b": {"new": 3}}
    assert list(rows) == ["a", "b"]
