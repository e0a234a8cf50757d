"""Each satellite says which core it needs at least, and imports nothing that this core lacks.

The core of a release is known by what was frozen with it; the one that is being worked on by its
sources.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from versions.life import FROZEN, importable

ROOT = Path(__file__).parents[2] / "packages"
SATELLITES = ("fifo", "cache", "django", "celery")


def _version(dist: str) -> str:
    module = "fencekit" if dist == "core" else f"fencekit/{dist}"
    text = (ROOT / f"fencekit-{dist}/src/{module}/__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert found
    return found[1]


def _lowest_core(dist: str) -> str:
    text = (ROOT / f"fencekit-{dist}/pyproject.toml").read_text()
    found = re.search(r'"fencekit-core>=([\d.]+),<', text)
    assert found, f"fencekit-{dist} does not say which core it needs at least"
    return found[1]


def _imported(dist: str) -> set[tuple[str, str]]:
    """Module of core and name, for each import of a satellite; names are "" for the module."""
    root = ROOT / f"fencekit-{dist}/src/fencekit/{dist}"
    own = f"fencekit.{dist}"
    found: set[tuple[str, str]] = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.update((node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                found.update((alias.name, "") for alias in node.names)
    scripts = "\n".join(path.read_text() for path in root.rglob("*.lua"))
    own_includes = {path.stem for path in root.rglob("include/*.lua")}
    includes = set(re.findall(r'-- @include "([a-z_]+)"', scripts)) - own_includes
    return {("lua", name) for name in includes} | {
        (module, name)
        for module, name in found
        if module.split(".")[0] == "fencekit"
        and module != own
        and not module.startswith(own + ".")
        and (module, name) != ("fencekit", dist)
    }


def _lacking(dist: str, core: dict[str, list[str]]) -> list[str]:
    return sorted(
        f"{module}: {name}"
        for module, name in _imported(dist)
        if name not in core.get(module, ()) and f"{module}.{name}".rstrip(".") not in core
    )


@pytest.mark.parametrize("dist", SATELLITES)
def test_the_lowest_core_that_a_satellite_allows_has_what_it_imports(dist: str) -> None:
    lowest = _lowest_core(dist)
    if lowest == _version("core"):
        core = importable()
    else:
        assert lowest in FROZEN, f"core {lowest} was not frozen: python -m versions {lowest}"
        core = FROZEN[lowest]["core"]
    assert not _lacking(dist, core), f"not in core {lowest}: raise the bound of fencekit-{dist}"


def test_a_satellite_that_needs_more_is_noticed() -> None:
    core = importable()
    assert {module for module, _ in _imported("fifo")} >= {"fencekit.errors", "lua"}
    core["fencekit.keys"].remove("names")
    core["lua"].remove("fence")
    assert _lacking("fifo", core) == ["fencekit.keys: names", "lua: fence"]


def test_the_core_that_is_worked_on_has_what_was_released_or_says_that_it_breaks() -> None:
    """Within 0.1 nothing goes that the front door offers: the satellites allow every 0.1."""
    now = set(importable()["fencekit"])
    for release, frozen in FROZEN.items():
        if release.rpartition(".")[0] == _version("core").rpartition(".")[0]:
            assert set(frozen["core"]["fencekit"]) - now == set()
