"""Start Celery workers as users start them, and count what their tasks did."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis
from kombu import pools
from kombu.connection import Connection

from harness.processes import Process
from harness.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from harness.servers import Server

__all__ = ["Effects", "Worker", "close_app", "close_backend", "copies", "fresh_key"]

# A worker of one of five pools imports a lot, on a machine that is busy.
_START_SECONDS = 60.0


class Worker:
    """A worker in a session of its own: `celery -A APP worker`.

    Attributes:
        process: the worker's main process.
    """

    def __init__(
        self,
        server: Server,
        *,
        app: str = "harness.celery_tasks",
        pool: str = "prefork",
        concurrency: int = 2,
        visibility: float = 3600,
        args: Sequence[str] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        """Start it; `ready` waits until it takes messages."""
        handle, path = tempfile.mkstemp(prefix="fk-worker-", suffix=".log")
        self._path = Path(path)
        name = f"w-{uuid.uuid4().hex[:8]}@%h"
        command = [sys.executable, "-m", "celery", "-A", app, "worker", "-P", pool, "-n", name]
        command += ["-c", str(concurrency), "-l", "INFO", "--without-gossip", "--without-mingle"]
        with os.fdopen(handle, "wb") as log:
            self.process = Process(
                [*command, "--without-heartbeat", *args],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
                    "FENCEKIT_TEST_URL": server.url,
                    "FENCEKIT_TEST_VISIBILITY": str(visibility),
                    "C_FORCE_ROOT": "1",
                    **(env or {}),
                },
                stdout=log,
                stderr=log,
            )

    def ready(self) -> Self:
        """Wait until it takes messages."""
        eventually(lambda: " ready." in self.log() or not self.process.alive, _START_SECONDS)
        assert self.process.alive, self.log()
        return self

    def log(self) -> str:
        """What it has logged."""
        return self._path.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send its main process a signal."""
        os.kill(self.process.pid, number)

    def ended(self, timeout: float = 30) -> None:
        """Wait until it has ended by itself."""
        self.process.popen.wait(timeout)

    def kill(self) -> None:
        """End it and the children of its pool, which form a group of their own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._path.unlink(missing_ok=True)


class Effects:
    """What the tasks of `harness.celery_tasks` did, by key."""

    def __init__(self, server: Server) -> None:
        self._url = server.url
        self.client: Any = redis.Redis.from_url(server.url)

    def count(self, kind: str, key: str) -> int:
        """How many runs, effects, errors or the like there are."""
        return int(self.client.llen(f"{kind}:{key}"))

    def all(self, kind: str, key: str) -> list[str]:
        """What there is, as text."""
        return [one.decode() for one in self.client.lrange(f"{kind}:{key}", 0, -1)]

    def most(self, key: str) -> int:
        """How many ran at once at most."""
        return int(self.client.get(f"most:{key}") or 0)

    def wait(self, kind: str, key: str, count: int = 1, timeout: float = 30) -> None:
        """Wait until there are that many."""
        eventually(
            lambda: self.count(kind, key) >= count,
            timeout,
            interval=0.02,
            why=f"{count} {kind} of {key}",
        )

    def redeliver(self) -> int:
        """Have the broker deliver again what was taken and is not acknowledged; returns how many.

        As the end of the visibility timeout would, without waiting for it, and without a worker
        of a pool that looks for such messages.
        """
        tags = self.client.zrange("unacked_index", 0, -1)
        for tag in tags:
            self.client.zadd("unacked_index", {tag: time.time() - 1_000_000})
        connect: Any = Connection
        with connect(self._url) as connection, connection.channel() as channel:
            channel.qos.restore_visible(num=len(tags))
        return len(tags)

    def forget_messages(self) -> None:
        """Have the broker forget what is queued, and what was taken and is not acknowledged."""
        self.client.delete("celery", "unacked", "unacked_index")

    def close(self) -> None:
        """Close the connection."""
        self.client.close()


def fresh_key(word: str = "job") -> str:
    """A key that no other test uses."""
    return f"{word}-{uuid.uuid4().hex[:12]}"


def close_app(app: Any) -> None:
    """Close the connections of an app, which `app.close` leaves to the garbage collector."""
    app.close()
    reset: Any = pools.reset
    reset()  # the pools are the process's, whichever app filled them
    close_backend(app.backend)


def close_backend(backend: Any) -> None:
    """Close the connections of a result backend."""
    consumer = getattr(backend, "result_consumer", None)
    if consumer is not None:
        consumer.stop()
        # Else a result that goes later unsubscribes, and connects once more for that.
        consumer._pubsub = None
    client: Any = getattr(backend, "client", None)
    if hasattr(client, "connection_pool"):
        client.connection_pool.disconnect()


def copies(task: Any, key: str, count: int, **kwargs: Any) -> list[Any]:
    """Send the same message several times, as a broker may: one id."""
    task_id = str(uuid.uuid4())
    return [task.apply_async((key,), kwargs, task_id=task_id) for _ in range(count)]
