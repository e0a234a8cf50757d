"""A test that forgets a connection is told so itself.

Red before: the collector came round in a later test, which failed for it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFIG = Path(__file__).parents[2] / ".pytest.toml"
FORGETFUL = """
import asyncio, gc

async def test_that_forgets():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await reader.read()
    writer.itself = writer
    server.close()

def test_that_does_not():
    gc.collect()
"""


def test_a_forgotten_connection_fails_the_test_that_forgot_it(tmp_path: Path) -> None:
    (tmp_path / "test_pair.py").write_text(FORGETFUL)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", CONFIG, "--rootdir", tmp_path, "-rA", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    last = run.stdout.rpartition("short test summary")[2]
    assert "ERROR test_pair.py::test_that_forgets" in last
    assert "PASSED test_pair.py::test_that_does_not" in last
