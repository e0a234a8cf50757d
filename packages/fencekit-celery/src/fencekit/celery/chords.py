"""How a chord stands whose parts Celery counts in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celery.backends.redis import RedisBackend

__all__ = ["is_full", "is_saved"]


def is_full(backend: RedisBackend, group: str) -> bool:
    """Whether all parts of a chord are counted, and nobody has gone on with it.

    Who counts the last part goes on. In Celery 5.7 nobody else may, for some seconds, also where
    that one has died meanwhile. What is counted goes when the body is sent.
    """
    parts, more, size = (backend.get_key_for_group(group, end) for end in (".j", ".t", ".s"))
    with backend.client.pipeline() as pipe:
        (pipe.zcard if backend._chord_zset else pipe.llen)(parts)  # noqa: SLF001 - how they are kept
        pipe.mget(more, size)
        count, (added, expected) = pipe.execute()
    return expected is not None and count >= int(expected) + int(added or 0)


def is_saved(backend: RedisBackend, group: str) -> bool:
    """Whether a chord's results are read from where they are stored, and not from its parts."""
    return bool(backend.client.exists(backend.get_key_for_group(group)))
