"""ddredis, cashews and aiocache beside ours: one process, one client library, interleaved rounds.

They live in an environment of their own, made once in the system's temporary folder, which sees
our sources; `side_by_side.py` runs there and tells its figures as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Scenario, at_least, exactly
from benchmarks.stand import Stand

__all__ = ["PEERS"]

_PINS = ("ddredis==0.3.0", "cashews[redis]==7.6.0", "aiocache[redis]==0.12.3", "redis", "hiredis")
_OURS = ("pydantic>=2.11",)
_SCRIPT = Path(__file__).with_name("side_by_side.py")
_SECONDS = 300


def _python() -> Path:
    """The interpreter of the peers' environment, which is made if it is not there."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = Path(tempfile.gettempdir()) / f"fencekit-bench-peers-{version}-{os.getuid()}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *_PINS, *_OURS],
            check=True,
            capture_output=True,
            timeout=_SECONDS,
        )
        (folder / "ready").touch()
    return python


def _measure(stand: Stand) -> Iterator[Figure]:
    try:
        python = _python()
    except (OSError, subprocess.SubprocessError) as error:
        yield Figure("peers", None, note=f"their environment could not be made: {error}")
        return
    path = os.pathsep.join(entry for entry in sys.path if "site-packages" not in entry)
    with stand.pinned():
        ran = subprocess.run(
            [python, _SCRIPT, stand.server.url],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    if ran.returncode:
        yield Figure("peers", None, note=ran.stderr.strip().splitlines()[-1])
        return
    told = json.loads(ran.stdout)
    ours = told["fencekit"]
    for name, figures in told.items():
        is_ours = name == "fencekit"
        for what in ("get", "set"):
            yield Figure(f"{name}: {what}, of the bare client", figures[what], "×")
        yield Figure(
            f"{name}: loads in a stampede of 200",
            figures["loads"],
            "",
            exactly(1) if is_ours else None,
        )
        yield Figure(
            f"{name}: stale of 50 loads invalidated under way",
            figures["stale"],
            "",
            exactly(0) if is_ours else None,
        )
    yield Figure(
        "others without a stale value",
        sum(not figures["stale"] for name, figures in told.items() if name != "fencekit"),
        "",
        exactly(0),
    )
    for what in ("get", "set"):
        best = max(figures[what] for name, figures in told.items() if name != "fencekit")
        yield Figure(f"our {what}, of the fastest peer's", ours[what] / best, "×", at_least(1))


PEERS = (Scenario("cache peers", "1 KiB of JSON, asyncio, one process and core", _measure),)
