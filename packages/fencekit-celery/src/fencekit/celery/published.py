"""Which messages have had their result published, kept in the record of their key."""

from __future__ import annotations

from typing import Final

from fencekit.keys import Names
from fencekit.protocol.operation import Operation, Reply
from fencekit.protocol.script import Script

__all__ = ["entry", "is_published", "publish_operation"]

PUBLISHED: Final = Script.load("fencekit.celery", "task_published")

# Ids of 36 characters: as many copies of one piece of work with different ids are told apart.
_MOST_BYTES: Final = 64 * 37


def publish_operation(names: Names, task_id: str) -> Operation[bool]:
    """Put a message on record; the outcome is whether the record is still that of done work."""
    return Operation(PUBLISHED, (names.idem,), (_word(task_id), _MOST_BYTES), _is_one)


def entry(task_id: str) -> bytes:
    """How a record names a message whose result was published."""
    return f"{_word(task_id)} ".encode()


def is_published(published: bytes, task_id: str) -> bool:
    """Whether a message is on record."""
    return _word(task_id).encode() in published.split(b" ")


def _word(task_id: str) -> str:
    """An id as one word: those that users make may be several."""
    return task_id.replace(" ", "\t")


def _is_one(reply: Reply) -> bool:
    return bool(reply[0] == 1)
