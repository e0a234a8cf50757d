"""Start processes that cannot outlive the test run, and stop, continue and kill them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Ends the process when our end of its stdin closes, which the kernel does however we die. A parent
# death signal fires too early: when the *thread* ends that started the process.
WATCHDOG = 'read -r _; kill -9 "$1"; [ -z "$2" ] || rm -rf -- "$2"'


class Process:
    """A child process with a watchdog that ends it when we die.

    Attributes:
        pid: Its process id.
        popen: The process as the standard library sees it.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> None:
        """Start the command; a folder given is removed by the watchdog when we die."""
        # A session of its own, so that Ctrl-C reaches the test run only, which then cleans up.
        self.popen: subprocess.Popen[str] = subprocess.Popen(
            command,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        self.pid = self.popen.pid
        self._owner = os.getpid()
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", WATCHDOG, "sh", str(self.pid), str(folder or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        """Whether it runs, be it stopped by a signal."""
        return self.popen.poll() is None

    def pause(self) -> None:
        """Stop it with SIGSTOP, and return when it has stopped."""
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to end with SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL and reap it; does nothing when it has ended already."""
        # A fork of the test process inherits this object but not the duty to end the child.
        if os.getpid() != self._owner:
            return
        # The watchdog first: afterwards the pid that it was told may be somebody else's.
        for process in (self._watchdog, self.popen):
            process.kill()
            process.wait()
        for pipe in (self._watchdog.stdin, self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def wait(self, timeout: float = 10.0) -> int:
        """Return its exit status once it has ended by itself.

        Raises:
            subprocess.TimeoutExpired: It did not end within so many seconds.
        """
        return self.popen.wait(timeout)

    def _signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)
