"""A worker that takes one message at a time, when it is told to, whatever its ETA says."""

from __future__ import annotations

from typing import Any

from celery.worker.request import Request

__all__ = ["Hand"]


class Hand:
    """Runs what is queued, in this thread.

    Attributes:
        ends: what became of each message that it took: acknowledged, rejected, requeued.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self.ends: list[str] = []

    def take(self, queue: str = "celery", *, redelivered: bool = False) -> Any:
        """Take the next message; None where there is none."""
        with self._app.connection_for_read() as connection:
            simple = connection.SimpleQueue(queue)
            try:
                message = simple.get(block=False)
            except simple.Empty:
                return None
            finally:
                simple.close()
            message.ack()
        if redelivered:
            message.delivery_info["redelivered"] = True
        return message

    def run(self, message: Any) -> Request:
        """Run a message; returns the request that was made of it."""

        def reject(_log: Any, _errors: Any, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - Celery's
            self.ends.append("requeued" if requeue else "rejected")

        request = Request(
            message,
            app=self._app,
            on_ack=lambda *_: self.ends.append("acknowledged"),
            on_reject=reject,
        )
        request.execute()
        return request

    def step(self, queue: str = "celery", *, redelivered: bool = False) -> Request | None:
        """Take the next message and run it; None where there is none."""
        message = self.take(queue, redelivered=redelivered)
        return None if message is None else self.run(message)
