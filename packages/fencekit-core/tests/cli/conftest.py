"""The command, run in this process or on a terminal of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from fencekit.cli.app import run
from fencekit.drivers.sync import SyncDriver


@dataclass(frozen=True)
class Ran:
    """What a command did.

    Attributes:
        code: its exit code.
        out: its stdout.
        err: its stderr.
    """

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Its stdout as JSON."""
        return json.loads(self.out)

    def finding(self, check: str) -> dict[str, Any]:
        """The one finding of a check that doctor printed as JSON."""
        (found,) = (one for one in self.data["findings"] if one["check"] == check)
        finding: dict[str, Any] = found
        return finding


Fencekit = Callable[..., Ran]


@pytest.fixture
def fencekit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Fencekit:
    """Run a command in this process, on a wide screen."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FENCEKIT_REDIS_URL", raising=False)

    def fencekit(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(list(arguments))
        return Ran(int(code), *capsys.readouterr())

    return fencekit


@pytest.fixture
def redis_client(redis_client: Any) -> Iterator[Any]:
    """The stock client; what fencekit opened beside it is closed before it."""
    yield redis_client
    SyncDriver.of(redis_client).close()
