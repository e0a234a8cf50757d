"""Every public name and every argument is in the reference.

Shown failing on names and arguments that are not there.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import fencekit
import fencekit.cache
import fencekit.celery
import fencekit.fifo
from docs_tests.pages import ROOT

REFERENCE = ROOT / "docs/reference"
SETTINGS = (REFERENCE / "settings.md").read_text()
_DIRECTIVE = re.compile(r"\.\. (?:auto|py:)(\w+):: (\S+)")
_ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)


def source(module: str) -> ast.Module:
    """A module as text: Django's models cannot be imported without settings."""
    path = module.replace(".", "/")
    for found in (f"{path}.py", f"{path}/__init__.py"):
        for file in ROOT.glob(f"packages/*/src/{found}"):
            return ast.parse(file.read_text())
    raise AssertionError(module)


def public(module: str) -> list[str]:
    """What a module has in ``__all__``."""
    for statement in source(module).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    return []


def documented(text: str) -> set[str]:
    """The names for which a page has a directive of its own, or one for their module."""
    found = {name.rpartition(".")[2] for _, name in _DIRECTIVE.findall(text)}
    for kind, module in _DIRECTIVE.findall(text):
        if kind == "module":
            found |= set(public(module))
    return found


PAGES = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))


@pytest.mark.parametrize(
    "package",
    ["fencekit", "fencekit.fifo", "fencekit.cache", "fencekit.django", "fencekit.celery"],
)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    names = public(package)
    assert names
    assert sorted(set(names) - documented(PAGES)) == []


def test_a_name_that_is_not_there_is_noticed() -> None:
    without = PAGES.replace(".. autoclass:: fencekit.AsyncClaim\n", "")
    assert without != PAGES
    assert "AsyncClaim" not in documented(without)


CALLED: dict[str, Callable[..., Any]] = {
    "DistributedLock": fencekit.DistributedLock,
    "AsyncDistributedLock": fencekit.AsyncDistributedLock,
    "FenceGate": fencekit.FenceGate,
    "AsyncFenceGate": fencekit.AsyncFenceGate,
    "IdempotencyGuard": fencekit.IdempotencyGuard,
    "AsyncIdempotencyGuard": fencekit.AsyncIdempotencyGuard,
    "RedisLock": fencekit.RedisLock,
    "FifoLock": fencekit.fifo.FifoLock,
    "SyncFifoLock": fencekit.fifo.SyncFifoLock,
    "idempotent_task": fencekit.celery.idempotent_task,
    "unique_task": fencekit.celery.unique_task,
    "configure": fencekit.celery.configure,
}


def rows(text: str) -> dict[str, dict[str, str]]:
    """Of each section that names calls: the arguments of its table with their defaults."""
    found: dict[str, dict[str, str]] = {}
    for section in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        arguments = {name: default.strip(" `") for name, default in _ROW.findall(body)}
        found |= dict.fromkeys(re.findall(r"`(\w+)`", title), arguments)
    return found


def spelled(value: object) -> str:
    """A default as the page writes it."""
    if value is inspect.Parameter.empty:
        return "needed"
    if isinstance(value, timedelta):
        return f"{value.days} days" if value.days else f"{value.total_seconds():g} s"
    if isinstance(value, bool | str) or value in (None, ()):
        return repr(value).replace("'", '"')
    return f"{value:,}"


def told_of(call: Callable[..., Any]) -> dict[str, str]:
    return {
        name: spelled(parameter.default)
        for name, parameter in inspect.signature(call).parameters.items()
    }


@pytest.mark.parametrize("name", CALLED)
def test_every_argument_is_in_the_settings_with_its_default(name: str) -> None:
    assert rows(SETTINGS)[name] == told_of(CALLED[name])


def test_every_declaration_of_a_cache_is_in_the_settings() -> None:
    declared = fencekit.cache.GenericCache.__mro__[2]
    told = {name for name in rows(SETTINGS)["GenericCache"] if name != "tags"}
    names = {
        name
        for kind in declared.__mro__
        for name, annotation in getattr(kind, "__annotations__", {}).items()
        if "ClassVar" in str(annotation) and not name.startswith("_")
    }
    assert told == names


def test_every_variable_of_the_environment_is_in_the_settings() -> None:
    read = {
        name
        for file in ROOT.glob("packages/*/src/**/*.py")
        for name in re.findall(r"FENCEKIT_[A-Z_]+", file.read_text())
    }
    assert read == set(re.findall(r"`(FENCEKIT_[A-Z_]+)`", SETTINGS))


def test_an_argument_that_changed_is_noticed() -> None:
    changed = SETTINGS.replace("| `lease_ms` | `60,000` |", "| `lease_ms` | `30,000` |")
    assert rows(changed)["FifoLock"] != told_of(fencekit.fifo.FifoLock)
