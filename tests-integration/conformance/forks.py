"""Run a body in a forked child of the test, as prefork servers do to what was made before."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["in_a_fork"]

_PATIENCE = 20.0  # seconds


def in_a_fork(work: Callable[[], Any]) -> None:
    """Run a function in a forked child, and fail where it fails."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - a child of a test must end here
            traceback.print_exc()
        finally:
            os._exit(status)
    deadline = time.monotonic() + _PATIENCE
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, f"the child ended with {status}"
            return
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.005)
