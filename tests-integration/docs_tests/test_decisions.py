"""The pages for those who build the house: decisions are indexed, commands exist.

Shown failing with a page left out of the index, a number taken twice, a command that no
environment has, and a script of hatch.toml that CONTRIBUTING did not name.
"""

from __future__ import annotations

import re

from docs_tests.pages import ROOT

DECISIONS = ROOT / "docs" / "decisions"
CONTRIBUTING = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
HATCH = (ROOT / "hatch.toml").read_text()
# What others call, or a habit of one's own: nobody starts with these.
UNTOLD = {"again", "slow", "demo"}


def scripts_of(environment: str) -> set[str]:
    """The names that `hatch run` knows in an environment."""
    _, _, rest = HATCH.partition(f"\n[envs.{environment}.scripts]\n")
    section = re.split(r"^\[", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return set(re.findall(r"^([\w-]+) = ", section, re.MULTILINE))


def test_every_decision_is_in_the_index_in_its_order() -> None:
    pages = sorted(path.name for path in DECISIONS.glob("0*.md"))
    index = (DECISIONS / "index.md").read_text()
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| \S.*\. \|$", index, re.MULTILINE)
    assert [page for _, page in rows] == pages
    assert [number for number, _ in rows] == [f"{n:04}" for n in range(1, len(pages) + 1)]


def test_a_decision_begins_with_its_number() -> None:
    for path in DECISIONS.glob("0*.md"):
        assert path.read_text().startswith(f"# {path.name[:4]}: "), path.name


def test_every_command_of_contributing_exists() -> None:
    for said in re.findall(r"hatch run ([\w:-]+)", CONTRIBUTING):
        environment, _, script = said.rpartition(":")
        assert script in scripts_of(environment or "default"), said


def test_every_command_of_the_default_environment_is_told() -> None:
    assert {s for s in scripts_of("default") - UNTOLD if f"`hatch run {s}" not in CONTRIBUTING} == (
        set()
    )
