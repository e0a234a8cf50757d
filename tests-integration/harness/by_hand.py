"""A worker that takes one message at a time, when it is told to, whatever its ETA says."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery.app.trace import trace_task_ret
from celery.exceptions import TaskRevokedError
from celery.worker.request import Request
from celery.worker.strategy import proto1_to_proto2

__all__ = ["Hand", "meta", "queued", "send"]


class Hand:
    """Runs what is queued, in this thread.

    Attributes:
        ends: what became of each message that it took: acknowledged, rejected, requeued.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self.ends: list[str] = []

    def take(self, queue: str = "celery") -> Any:
        """Take the next message; None where there is none."""
        with self._app.connection_for_read() as connection:
            simple = connection.SimpleQueue(queue, accept=self._app.conf.accept_content)
            try:
                message = simple.get(block=False)
            except simple.Empty:
                return None
            finally:
                simple.close()
            message.ack()
        return message

    def run(self, message: Any, *, redelivered: bool = False) -> Any:
        """Run a message, any number of times; returns the request that was made of it."""
        message.delivery_info["redelivered"] = redelivered
        terms = {}
        if "task" not in message.headers:  # the older protocol
            body, headers, _, utc = proto1_to_proto2(message, message.payload)
            terms = {"body": body, "headers": headers, "decoded": True, "utc": utc}
        request: Any = Request(
            message,
            app=self._app,
            **terms,
            on_ack=lambda *_: self.ends.append("acknowledged"),
            on_reject=lambda _log, _errors, again: self.ends.append(
                "requeued" if again else "rejected"
            ),
        )
        with suppress(TaskRevokedError):  # acknowledged, and its state is written
            request.execute_using_pool(_Pool(self._app))
        return request

    def step(self, queue: str = "celery") -> Any:
        """Take the next message and run it; None where there is none."""
        message = self.take(queue)
        return None if message is None else self.run(message)


class _Pool:
    """Does at once what it is given."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def apply_async(
        self,
        _trace: Any,
        *,
        args: tuple[Any, ...],
        callback: Callable[[Any], None],
        accept_callback: Callable[[int, float], None],
        **_: Any,
    ) -> None:
        accept_callback(os.getpid(), time.monotonic())
        callback(trace_task_ret(*args, app=self._app))


def send(signature: Any, **options: Any) -> str:
    """Send a message without keeping hold of its result; returns its id."""
    return str(signature.apply_async(**options).id)


def meta(app: Any, message: str) -> dict[str, Any]:
    """What the result backend has of a message."""
    found: dict[str, Any] = app.backend.get_task_meta(message, cache=False)
    return found


def queued(client: Any) -> list[Any]:
    """The headers of the messages that wait, the next one last."""
    return [json.loads(raw)["headers"] for raw in client.lrange("celery", 0, -1)]
