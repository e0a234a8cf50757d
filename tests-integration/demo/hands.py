"""A worker, as the runner sees it: hired, given jobs, frozen, woken, killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from demo import worker
from demo.messages import Job, Message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from demo.deliveries import Delivery
    from demo.faults import Fault

__all__ = ["Hand"]


class Hand:
    """A worker process and our end of its pipe.

    Attributes:
        name: which one.
        process: the process.
        pipe: what it tells comes from here.
        delivery: what it is at; None when it is idle.
        fault: what shall happen to it meanwhile.
        told: what it has told of this job.
        frozen: whether it is stopped.
        woken: whether it was, in this job.
    """

    def __init__(self, name: str, process: SpawnProcess, pipe: Connection) -> None:
        self.name = name
        self.process = process
        self.pipe = pipe
        self.delivery: Delivery | None = None
        self.fault: Fault | None = None
        self.told: list[Message] = []
        self.frozen = False
        self.woken = False

    @classmethod
    def hire(cls, name: str, setup: worker.Setup) -> Hand:
        """Start a worker."""
        # Not forked: it shares nothing with us but its end of the pipe, so that either side notices
        # when the other is gone.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=worker.main, args=(theirs, setup), name=name, daemon=True)
        with _no_ctrl_c():
            process.start()
        theirs.close()
        return cls(name, process, ours)

    def give(self, delivery: Delivery, fault: Fault | None) -> None:
        """Hand over a job."""
        self.delivery, self.fault, self.told, self.woken = delivery, fault, [], False
        self.pipe.send(Job(delivery, None if fault is None else fault.point))

    def go_on(self) -> None:
        """End its halt."""
        self.pipe.send(None)

    def freeze(self) -> None:
        """Stop it with SIGSTOP, and return when it has stopped."""
        pid = self._pid()
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        self.frozen = True
        self.go_on()  # which it hears when it wakes up

    def wake(self) -> None:
        """Let it go on, as if nothing had been."""
        os.kill(self._pid(), signal.SIGCONT)
        self.frozen, self.woken = False, True

    def kill(self) -> None:
        """End it with SIGKILL, even if it is stopped."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid


@contextmanager
def _no_ctrl_c() -> Iterator[None]:
    """Start a process that never sees Ctrl-C: it is for us, and we end the process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
