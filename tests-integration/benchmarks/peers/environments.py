"""An environment for each peer, made when it is asked for and kept among hatch's own.

Where hatch keeps its data (`HATCH_DATA_DIR`, or the user's folder for it) there is then a folder
`fencekit-peers`; remove it, and they are made anew.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import platformdirs

__all__ = ["NotInstalled", "client_pins", "environment"]

_TIMEOUT: Final = 300


class NotInstalled(Exception):
    """An environment could not be made; the message is the last line of what pip said."""


def client_pins() -> list[str]:
    """The client that we measure with ourselves, which every peer then uses too."""
    pins = []
    for distribution in ("redis", "hiredis", "pydantic"):
        try:
            pins.append(f"{distribution}=={version(distribution)}")
        except PackageNotFoundError:
            continue
    return pins


def environment(name: str, pins: Sequence[str]) -> Path:
    """The interpreter of a peer's environment, which is made if it is not there.

    Args:
        name: what its folder is called.
        pins: what it needs besides the client, each with its version.

    Raises:
        NotInstalled: it could not be made.
    """
    wanted = [*pins, *client_pins()]
    mark = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:8]
    folder = _home() / f"{name.replace(' ', '-')}-{mark}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if ready.exists():
        return python
    try:
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted],
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
        )
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or str(error)).strip().splitlines()
        raise NotInstalled(lines[-1] if lines else str(error)) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(str(error)) from error
    ready.touch()
    return python


def _home() -> Path:
    given = os.environ.get("HATCH_DATA_DIR")
    data = Path(given) if given else platformdirs.user_data_path("hatch", appauthor=False)
    return data / "fencekit-peers"
