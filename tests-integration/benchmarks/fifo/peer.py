"""Side by side with redis-fifo-lock 0.3.2, which is asked the same in an environment of its own.

The environment is made once, in the folder for temporary files; where it cannot be made, nothing is
compared, the note says why, and that is a failure: nobody is to read it as being ahead.
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
from statistics import median
from typing import Final

from benchmarks.figures import Figure, Scenario, at_least, at_most
from benchmarks.stand import Stand

__all__ = ["PEER"]

_PEER: Final = "redis-fifo-lock==0.3.2"
_CONTENDER: Final = Path(__file__).with_name("contender.py")
_ROUNDS: Final = 3
_TIMEOUT: Final = 120


def _environment() -> Path:
    """The interpreter of the peer's environment; made if it is not there."""
    folder = Path(tempfile.gettempdir()) / f"fencekit-bench-{_PEER.replace('==', '-')}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", _PEER, "redis>=8", "hiredis"]
        subprocess.run(command, check=True, timeout=_TIMEOUT, capture_output=True)
        ready.touch()
    return python


def _ask(stand: Stand, library: str, python: Path, question: str) -> dict[str, float]:
    stand.server.clean()
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path) if library == "fencekit" else "")
    done = subprocess.run(
        [python, _CONTENDER, library, stand.server.url, question],
        check=True,
        timeout=_TIMEOUT,
        capture_output=True,
        text=True,
        env=env,
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _compare(stand: Stand) -> Iterator[Figure]:
    try:
        theirs = _environment()
    except (OSError, subprocess.SubprocessError) as error:
        yield Figure(_PEER, None, "×", at_least(1.0), f"not compared: {error}")
        return
    pythons = {"fencekit": Path(sys.executable), "redis-fifo-lock": theirs}

    def both(question: str, rounds: int = _ROUNDS) -> dict[str, dict[str, float]]:
        answers: dict[str, list[dict[str, float]]] = {library: [] for library in pythons}
        for _ in range(rounds):
            for library, python in pythons.items():
                answers[library].append(_ask(stand, library, python, question))
        return {
            library: {key: median(one[key] for one in many) for key in many[0]}
            for library, many in answers.items()
        }

    def figure(what: str, answers: dict[str, dict[str, float]], key: str, unit: str) -> Figure:
        ours, peer = answers["fencekit"][key], answers["redis-fifo-lock"][key]
        higher = key == "speed"
        ratio = ours / peer if peer else float(ours > 0)
        target = at_least(1.0) if higher else at_most(1.0)
        return Figure(what, ratio, "×", target, f"{ours:,.3g} {unit}, peer {peer:,.3g} {unit}")

    cycles, handoffs = both("cycle"), both("handoff")
    yield figure("uncontended cycle, speed", cycles, "speed", "× floor")
    yield figure("hand-off, median", handoffs, "p50", "µs")
    yield figure("hand-off, 99th percentile", handoffs, "p99", "µs")
    idle = both("idle", 1)
    yield figure("connections of 90 waiters", idle, "connections", "")
    yield figure("commands while 90 wait", idle, "commands", "/s")
    dead = both("dead", 1)
    yield figure("recovery from 5 dead waiters (cap 8 s)", dead, "seconds", "s")


PEER = (Scenario("fifo-peer", f"of {_PEER}'s, each in its own environment", _compare),)
