"""Child processes run, talk, stop, continue and die when told to."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.children import Child, ChildEnded, hear, tell


def echo(greeting: str) -> None:
    tell("ready", greeting, os.getpid())
    while True:
        tell("heard", *hear())


def count() -> None:
    number = 0
    while True:
        tell("count", number)
        number += 1
        time.sleep(0.001)


def fail() -> None:
    print("a line of its own")
    raise ValueError("no good")


async def nap() -> None:
    await asyncio.sleep(0)
    tell("awake")


def idle_parent() -> None:
    grandchild = Child(echo, "hello")
    tell("grandchild", grandchild.pid)
    hear()


def drain(child: Child) -> None:
    while True:
        child.next(timeout=0.1)


def test_talks_in_both_directions() -> None:
    with Child(echo, "hello") as child:
        assert child.expect("ready") == ["ready", "hello", child.pid]
        child.tell("a", 1)
        assert child.next() == ["heard", "a", 1]


def test_runs_a_coroutine_function() -> None:
    with Child(nap) as child:
        child.expect("awake")
        assert child.wait() == 0


def test_the_time_that_it_takes_to_start_is_not_counted(tmp_path: Path) -> None:
    source = tmp_path / "slow_to_load.py"
    source.write_text(
        "import time\n"
        "from harness.children import tell\n"
        "if __name__ == '__child__':\n"
        "    time.sleep(0.5)\n"
        "def ready():\n"
        "    tell('ready')\n"
    )
    with Child(runpy.run_path(str(source))["ready"]) as child:
        child.expect("ready", timeout=0.3)


def test_stops_and_continues() -> None:
    with Child(count) as child:
        child.expect("count")
        child.pause()
        # What it told before is on its way; then nothing more comes.
        with pytest.raises(TimeoutError):
            drain(child)
        child.resume()
        child.expect("count", timeout=2)


def test_is_reaped_after_a_kill() -> None:
    child = Child(echo, "hello")
    child.expect("ready")
    child.kill()
    assert child.popen.returncode == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_an_error_in_the_child_reaches_the_test() -> None:
    with Child(fail) as child:
        with pytest.raises(ChildEnded, match="no good"):
            child.next()
        assert child.output == ["a line of its own\n"]


def test_ends_when_the_test_process_is_killed() -> None:
    with Child(idle_parent) as parent:
        pid = parent.expect("grandchild")[1]
        parent.popen.kill()
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and not _is_gone(pid):
            time.sleep(0.01)
        assert _is_gone(pid)


def test_a_server_ends_when_the_test_process_is_killed() -> None:
    story = "from harness.servers import start; print(start().pid, flush=True); input()"
    program = subprocess.Popen(
        [sys.executable, "-c", story],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert not _is_gone(pid)
        program.kill()
        program.wait()
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and not _is_gone(pid):
            time.sleep(0.01)
        assert _is_gone(pid)


def _is_gone(pid: int) -> bool:
    # An orphan that nobody has reaped yet has ended as well.
    found = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()[:1] in {"", "Z"}
