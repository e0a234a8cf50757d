"""What can go wrong beyond the errors of core; each is a `fencekit.FenceKitError`."""

from __future__ import annotations

from datetime import timedelta

from fencekit.errors import FenceKitError

__all__ = ["NotConfigured", "StillBusy"]


class NotConfigured(FenceKitError):
    """Nothing says where the records of a task are kept.

    Attributes:
        task: the name of the task.
    """

    def __init__(self, task: str) -> None:
        self.task = task
        super().__init__(
            f"where {task!r} keeps its records is not known: set app.conf.fencekit_redis_url, "
            "call fencekit.celery.configure(app, redis=...), or hand idempotent_task a guard"
        )


class StillBusy(FenceKitError):
    """A message has waited for its key, or for its lock, as long as ``busy_timeout`` allows.

    Attributes:
        name: the key, or the resource of the lock, that was taken all the while.
        waited: how long the message was put off in all.
    """

    def __init__(self, name: str, *, waited: timedelta) -> None:
        self.name = name
        self.waited = waited
        super().__init__(
            f"{name!r} was still taken after {waited.total_seconds():g} s (busy_timeout)"
        )
