"""What can go wrong in a task.

Celery's result backends keep an error as its class and its ``args``, and make it anew from them for
who asks for the result. The errors of core are made from keywords, so a task that ends with one
raises a subclass of it that survives the way: `told` makes it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fencekit.errors import (
    FenceKitError,
    IdempotencyExhausted,
    IdempotencyFailed,
    IdempotencyInProgress,
    IdempotencyNotOwned,
    IdempotencyPayloadMismatch,
    IdempotencyResultMissing,
    LockNotAcquired,
    StoreRefused,
)

__all__ = [
    "AlreadyQueued",
    "NotConfigured",
    "StillBusy",
    "TaskExhausted",
    "TaskFailed",
    "TaskInProgress",
    "TaskLockNotAcquired",
    "TaskPayloadMismatch",
    "TaskReplaced",
    "TaskResultMissing",
    "TaskStoreRefused",
    "told",
]


class _Told(FenceKitError):
    """Made from a message and facts that JSON can carry; only the message is shown."""

    def __init__(self, message: str, facts: dict[str, Any]) -> None:
        Exception.__init__(self, message, facts)
        self.__dict__.update(facts)

    def __str__(self) -> str:
        return str(self.args[0])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.args[0]!r})"


class AlreadyQueued(_Told):
    """A message with this key is on its way or running, so that none was sent.

    Attributes:
        name: the key, as it is kept.
        task_id: the message that is there.
    """

    name: str
    task_id: str

    @classmethod
    def of(cls, name: str, task_id: str) -> AlreadyQueued:
        """The error of a key."""
        message = f"{name!r} is on its way or running already, as {task_id}"
        return cls(message, {"name": name, "task_id": task_id})


class NotConfigured(_Told):
    """Nothing says where the records of a task are kept.

    Attributes:
        task: the name of the task.
    """

    task: str

    @classmethod
    def of(cls, task: str) -> NotConfigured:
        """The error of a task."""
        message = (
            f"where {task!r} keeps its records is not known: set app.conf.fencekit_redis_url, "
            "call fencekit.celery.configure(app, redis=...), or hand idempotent_task a guard"
        )
        return cls(message, {"task": task})


class StillBusy(_Told):
    """A message has waited for its key, or for its lock, as long as ``busy_timeout`` allows.

    Attributes:
        name: the key, or the resource of the lock, that was taken all the while.
        waited_ms: how long the message was put off in all, milliseconds.
    """

    name: str
    waited_ms: int

    @classmethod
    def of(cls, name: str, waited: timedelta) -> StillBusy:
        """The error of a name that was taken all the while."""
        message = f"{name!r} was still taken after {waited.total_seconds():g} s (busy_timeout)"
        return cls(message, {"name": name, "waited_ms": round(waited.total_seconds() * 1000)})


class TaskExhausted(_Told, IdempotencyExhausted):
    """Every attempt that ``max_attempts`` allows was begun, and none completed."""


class TaskFailed(_Told, IdempotencyFailed):
    """The work failed for good, with one of ``terminal_for``, and is not tried again."""


class TaskInProgress(_Told, IdempotencyInProgress):
    """The work is being done by another; told to a direct or eager call, which cannot wait."""


class TaskLockNotAcquired(_Told, LockNotAcquired):
    """The lock of the work is taken; told to a direct or eager call, which cannot wait."""


class TaskPayloadMismatch(_Told, IdempotencyPayloadMismatch):
    """The key was used with other arguments before; the work was neither run nor replayed."""


class TaskResultMissing(_Told, IdempotencyResultMissing):
    """The work is done, but its result is not kept: it could not be written, or was too large."""


class TaskReplaced(_Told, IdempotencyNotOwned):
    """The record of the attempt was lost while it ran, so nobody can tell who else has run."""


class TaskStoreRefused(_Told, StoreRefused):
    """Redis answers with an error, and did so for as long as ``busy_timeout`` allows."""


def told(error: FenceKitError) -> FenceKitError:
    """The same error, as one that a result backend can make anew."""
    for kind in (
        TaskExhausted,
        TaskFailed,
        TaskInProgress,
        TaskLockNotAcquired,
        TaskPayloadMismatch,
        TaskResultMissing,
        TaskReplaced,
        TaskStoreRefused,
    ):
        if type(error) is kind.__bases__[1]:
            return kind(str(error), dict(error.__dict__))
    return error
