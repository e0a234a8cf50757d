"""The places that `unique_task` gives out: one message of a name at a time."""

from __future__ import annotations

from typing import Final

from fencekit.keys import Names
from fencekit.protocol.operation import Operation, Reply
from fencekit.protocol.script import Script

__all__ = ["free_operation", "take_operation"]

TAKE: Final = Script.load("fencekit.celery", "unique_take")
FREE: Final = Script.load("fencekit.celery", "unique_free")


def take_operation(names: Names, task_id: str, ttl_ms: int) -> Operation[str]:
    """Take the place of a name; the outcome is the id of the message that has it then."""
    return Operation(TAKE, (names.unique,), (task_id, ttl_ms), _holder)


def free_operation(names: Names, task_id: str) -> Operation[bool]:
    """Give the place back; the outcome is whether it was this message's."""
    return Operation(FREE, (names.unique,), (task_id,), _is_one)


def _holder(reply: Reply) -> str:
    holder: bytes = reply[1]
    return holder.decode()


def _is_one(reply: Reply) -> bool:
    return bool(reply[0] == 1)
