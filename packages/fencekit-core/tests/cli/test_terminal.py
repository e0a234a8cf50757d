"""On a terminal: a bar where it takes long, a watch in place, and no trace of either elsewhere.

Shown to fail: with a bar that is always disabled, and with a watch that prints each look below the
last one.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from fencekit import DistributedLock
from harness.servers import Server

LEASE = timedelta(seconds=30)
UP = "\x1b[1A"


class Terminal:
    """A command on a terminal of its own.

    Attributes:
        process: the command.
        text: what it has printed so far.
    """

    def __init__(self, screen: int, process: subprocess.Popen[bytes]) -> None:
        self._screen = screen
        self.process = process
        self.text = ""

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._screen, keys.encode())

    def read_until(self, found: Callable[[str], Any], seconds: float = 20.0) -> str:
        """Read until the text has something, or the command has ended."""
        deadline = time.monotonic() + seconds
        while not found(self.text) and time.monotonic() < deadline:
            if select.select([self._screen], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._screen, 65536).decode()
                except OSError:  # Linux says so that nobody is there any more
                    break
        return self.text


@contextmanager
def terminal(url: str, *arguments: str) -> Iterator[Terminal]:
    screen, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fencekit.cli", *arguments],
        env=os.environ | {"FENCEKIT_REDIS_URL": url, "TERM": "xterm", "COLUMNS": "100"},
        stdin=end,
        stdout=end,
        stderr=end,
    )
    os.close(end)
    try:
        yield Terminal(screen, process)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def test_ls_shows_a_bar_while_it_looks_and_takes_it_away(server: Server, redis_client: Any) -> None:
    DistributedLock(redis_client).acquire("invoices", ttl=LEASE)
    for start in range(0, 100_000, 10_000):
        redis_client.mset({f"app:{number}": 1 for number in range(start, start + 10_000)})
    with terminal(server.url, "ls") as on_screen:
        text = on_screen.read_until(lambda text: "invoices" in text)
    assert re.search(r"looking through the keys.* \d+%", text)
    after = text[text.rindex("looking through") :]
    assert "\x1b[2K" in after  # the line was wiped
    assert after.index("\x1b[2K") < after.index("invoices")
    elsewhere = subprocess.run(
        [sys.executable, "-m", "fencekit.cli", "ls", "-u", server.url],
        capture_output=True,
        text=True,
        check=True,
    )
    assert elsewhere.stderr == ""
    assert "\x1b" not in elsewhere.stdout


def test_watch_updates_in_place(server: Server, redis_client: Any) -> None:
    lock = DistributedLock(redis_client)
    handle = lock.acquire("invoices", ttl=LEASE, owner_id="worker-1")
    with terminal(server.url, "watch", "invoices", "-i", "0.05") as on_screen:
        on_screen.read_until(lambda text: "held by worker-1" in text)
        lock.release(handle)
        text = on_screen.read_until(lambda text: "free" in text)
        on_screen.process.send_signal(signal.SIGINT)
        assert on_screen.process.wait(timeout=20) == 0
    first = text.index("worker-1")
    assert UP in text[first : text.index("free")]


@pytest.mark.parametrize(("answer", "code"), [("y\r", 0), (None, 130)], ids=["yes", "ctrl-c"])
def test_release_asks_on_the_terminal(
    server: Server, redis_client: Any, answer: str | None, code: int
) -> None:
    DistributedLock(redis_client).acquire("invoices", ttl=LEASE, owner_id="worker-1")
    with terminal(server.url, "release", "invoices", "--force") as on_screen:
        on_screen.read_until(lambda text: "[y/N]" in text)
        if answer is None:
            on_screen.process.send_signal(signal.SIGINT)
        else:
            on_screen.type(answer)
        text = on_screen.read_until(lambda _: False)
        assert on_screen.process.wait(timeout=20) == code, text
    assert "Traceback" not in text
    held = DistributedLock(redis_client).inspect("invoices")
    assert held is not None
    assert (held.owner_id is None) is (code == 0)
