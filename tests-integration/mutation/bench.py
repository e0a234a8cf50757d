"""A copy of the sources in which one file at a time is changed, and the tests that look at it."""

from __future__ import annotations

import ast
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

__all__ = ["Bench", "Notes", "Verdict"]

ROOT = Path(__file__).parents[2]
# Of what the tests of a target take on the library as it is, so many times and so many seconds.
_PATIENCE = (4.0, 60.0)
_FIRST = 40
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Notes:
    """What is known about the tests of one target; shared by the benches.

    Attributes:
        took: seconds of each test.
        lines: by file and line, the tests that run it; "" stands for the import.
        killers: by file, the tests that noticed a mutant of it, the last one first.
    """

    took: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    killers: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def order(self, file: str) -> list[str]:
        """Those that noticed others of this file, then the quick ones before the slow."""
        rest = sorted(self.took, key=lambda name: self.took[name])
        return list(dict.fromkeys([*self.killers[file][:_FIRST], *rest]))

    def may_notice(self, file: str, line: int, text: str) -> list[str] | None:
        """The tests that run a line of Python; None: all, for it is run at the import."""
        known = self.lines.get(file)
        if known is None:
            return None
        names: set[str] = set()
        for number in _lines_around(text, line):
            names.update(known.get(str(number), ()))
        return None if "" in names else sorted(names)

    def noticed(self, file: str, by: str | None) -> None:
        """Remember who was first."""
        if by is not None:
            kept = self.killers[file]
            kept[:] = [by, *(name for name in kept if name != by)]

    @property
    def patience(self) -> float:
        """Seconds that all tests may take."""
        return sum(self.took.values()) * _PATIENCE[0] + _PATIENCE[1]


def _lines_around(text: str, line: int) -> set[int]:
    """Those of the innermost function; outside of any, of the statement's head.

    Not of the statement in a function: a generator that is resumed by an exception is not traced up
    to its next step (Python 3.11), and flows are resumed so.
    """
    around: ast.stmt | None = None
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            inside = isinstance(around, _FUNCTIONS)
            if isinstance(node, _FUNCTIONS) or not inside:
                around = node  # the walk comes to outer ones first
    if around is None:
        return {line}
    body = getattr(around, "body", None)
    if isinstance(around, _FUNCTIONS):
        # Its own line, with the defaults, is run where the module is imported.
        first = around.lineno if line < around.body[0].lineno else around.body[0].lineno
        return set(range(first, (around.end_lineno or first) + 1))
    end = body[0].lineno - 1 if body else around.end_lineno or around.lineno
    return {line, *range(around.lineno, max(end, around.lineno) + 1)}


@dataclass(frozen=True)
class Verdict:
    """How a mutant fared.

    Attributes:
        survived: no test noticed.
        by: the test that did; None where patience ended.
    """

    survived: bool
    by: str | None = None


class Bench:
    """The copy, and the process that runs the tests on it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fk-mutate-"))
        for source in ROOT.glob("packages/*/src"):
            ignored = shutil.ignore_patterns("__pycache__", ".mypy_cache")
            shutil.copytree(source, self.folder / source.relative_to(ROOT), ignore=ignored)
        # By their contents: a changed file has the time and often the size of the one before.
        compileall.compile_dir(
            str(self.folder), quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH
        )
        sources = [str(path) for path in self.folder.glob("packages/*/src")]
        self._nursery = subprocess.Popen(
            [sys.executable, "-B", "-m", "mutation.nursery"],
            cwd=ROOT,
            env={
                **os.environ,
                # What they do shall give them away, not that they lack the text of a rule.
                "FENCEKIT_MUTANT": "1",
                "PYTHONPATH": os.pathsep.join([*sources, str(ROOT / "tests-integration")]),
                "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "hypothesis"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, **asked: Any) -> dict[str, Any]:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        print(json.dumps(asked), file=self._nursery.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._nursery.stdout.readline())
        return answer

    def look(self, tests: tuple[str, ...], notes: Notes, *, lines: bool) -> str | None:
        """Run tests on the library as it is, and note them; returns the one that fails."""
        measure = str(self.folder) if lines else "/nowhere"
        answer = self._ask(tests=tests, only=None, first=[], patience=1800.0, measure=measure)
        if answer["status"] != 0:
            return str(answer["by"] or "all of them together")
        notes.took.update(answer["took"])
        for file, known in answer["lines"].items():
            kept = notes.lines.setdefault(file, {})
            for line, names in known.items():
                kept[line] = sorted({*kept.get(line, ()), *names})
        return None

    def verdict(
        self, file: str, line: int, text: str, tests: tuple[str, ...], notes: Notes
    ) -> Verdict:
        """Change one file, and see whether these tests notice."""
        path = self.folder / file
        whole = path.read_text()
        only = notes.may_notice(file, line, whole)
        if only is not None:
            folders = {name.partition("::")[0] for name in only}
            tests = tuple(sorted(one for one in folders if one.startswith(tests)))
            if not tests:
                return Verdict(survived=True)
        path.write_text(text)
        try:
            answer = self._ask(
                tests=tests, only=only, first=notes.order(file), patience=notes.patience
            )
        finally:
            path.write_text(whole)
        if answer["status"] in {0, 5}:  # all passed; there was none
            return Verdict(survived=True)
        notes.noticed(file, answer["by"])
        if answer["status"] is None:
            return Verdict(survived=False)
        return Verdict(survived=False, by=answer["by"] or "what pytest imports first")

    def close(self) -> None:
        """End the process and remove the copy."""
        assert self._nursery.stdin is not None
        self._nursery.stdin.close()
        self._nursery.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
