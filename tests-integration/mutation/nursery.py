"""A process that has imported what tests import, and forks one child for each run of pytest.

It reads one JSON object a line: which folders to collect, which tests to keep, in which order, and
how long to wait::

    {"tests": ["packages/…/tests/lua"], "only": null, "first": ["…::test_x"], "patience": 60.0}

and answers with one: the exit status (null when patience ended), and the test that failed. Given
`measure`, the sources' folder, it also answers how long each test took and which lines of which
file it ran. fencekit itself is never imported here: each child does it, from the changed sources.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["main"]

_OPTIONS = (
    *("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not full"),
    # What fails beside others on a busy machine is no proof: a test that notices does so twice.
    *("--reruns", "1", "--timeout", "20"),
    # Plugins are imported before pytest would rewrite their asserts.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_IMPORTED = (
    *("hypothesis", "hypothesis.stateful", "pytest_asyncio.plugin", "pytest_rerunfailures"),
    *("redis", "redis.asyncio", "redis.cluster", "redis.asyncio.cluster", "redis.sentinel"),
    *("valkey", "valkey.asyncio", "valkey.cluster", "valkey.asyncio.cluster", "valkey.sentinel"),
    *("asyncio", "multiprocessing", "unittest.mock", "concurrent.futures", "statistics"),
)


class Watch:
    """A plugin that keeps to the tests asked for and sees which one fails.

    Attributes:
        failed: the first test that did.
        took: seconds of each test that ran.
    """

    def __init__(self, only: list[str] | None, first: list[str], coverage: Any) -> None:
        self._only = None if only is None else set(only)
        self._rank = {name: rank for rank, name in enumerate(first)}
        self._coverage = coverage
        self.failed: str | None = None
        self.took: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what cannot notice, and begin with what noticed others."""
        if self._only is not None:
            items[:] = [item for item in items if item.nodeid in self._only]
        items.sort(key=lambda item: self._rank.get(item.nodeid, len(self._rank)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, bool, bool]:
        """Take the time, and say whose lines are run."""
        if self._coverage is not None:
            self._coverage.switch_context(item.nodeid)
        began = time.monotonic()
        done = yield
        self.took[item.nodeid] = round(time.monotonic() - began, 4)
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember who failed."""
        if report.outcome == "failed" and self.failed is None:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot even be imported has noticed, too."""
        if report.outcome == "failed" and self.failed is None:
            self.failed = report.nodeid


def _child(asked: dict[str, Any]) -> dict[str, Any]:
    measure: str | None = asked.get("measure")
    coverage = None
    if measure:
        from coverage import Coverage  # noqa: PLC0415 - the first run of a target only

        coverage = Coverage(data_file=None, include=[f"{measure}/*"], config_file=False)
        coverage.start()
    watch = Watch(asked["only"], asked["first"], coverage)
    status = int(pytest.main([*_OPTIONS, *asked["tests"]], plugins=[watch]))
    answer: dict[str, Any] = {"status": status, "by": watch.failed}
    if coverage is not None and measure is not None:
        coverage.stop()
        data = coverage.get_data()
        answer["took"] = watch.took
        answer["lines"] = {
            str(Path(file).relative_to(measure)): data.contexts_by_lineno(file)
            for file in data.measured_files()
        }
    return answer


def _run(asked: dict[str, Any]) -> dict[str, Any]:
    """Fork, wait, and end what has not ended."""
    theirs, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.close(theirs)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(null, stream)
            text = json.dumps(_child(asked))
            with os.fdopen(ours, "w") as pipe:
                pipe.write(text)
        finally:
            os._exit(0)  # the servers of a child end with it
    os.close(ours)
    deadline, parts = time.monotonic() + asked["patience"], list[bytes]()
    while True:
        ready, _, _ = select.select([theirs], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(theirs, 1 << 16) if ready else b""
        if not part:
            break
        parts.append(part)
    os.close(theirs)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        answer: dict[str, Any] = json.loads(b"".join(parts))
    except ValueError:
        answer = {"status": None, "by": None}
    return answer


def main() -> None:
    """Answer until nobody asks any more."""
    for name in _IMPORTED:
        importlib.import_module(name)
    assert "fencekit" not in sys.modules
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
