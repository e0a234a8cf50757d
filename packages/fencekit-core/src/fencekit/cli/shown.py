"""`fencekit show`, `idem show` and `fifo show`: all that is known of one name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from redis.exceptions import NoPermissionError

from fencekit.cli.codes import Complaint, ExitCode
from fencekit.cli.screen import seconds
from fencekit.cli.session import Session
from fencekit.idempotency import IdempotencyGuard
from fencekit.keys import check_name
from fencekit.listing import describe_queues
from fencekit.locks import DistributedLock

__all__ = ["checked", "lock_of", "look_at_lock", "look_at_queue", "look_at_record", "readable"]


def checked(name: str) -> str:
    """The name, or a complaint about it.

    Raises:
        Complaint: it cannot be a name.
    """
    try:
        check_name(name)
    except ValueError as error:
        raise Complaint(str(error), ExitCode.USAGE) from None
    return name


def lock_of(session: Session) -> DistributedLock:
    """A lock object on the server."""
    return DistributedLock(session.client, prefix=session.prefix)


def look_at_lock(session: Session, name: str) -> dict[str, Any] | None:
    """What is known of a lock; None when nothing is."""
    info = lock_of(session).inspect(name)
    if info is None:
        return None
    return {
        "name": name,
        "held": info.owner_id is not None,
        "owner": info.owner_id,
        "token": None if info.token is None else int(info.token),
        "lease_left_ms": info.ttl_ms,
        "highest_token": info.last,
        "lapsed_tokens": list(info.lapsed),
        "queued": _queue(session, name)["waiting"],
    }


def look_at_record(session: Session, key: str) -> dict[str, Any] | None:
    """What is known of an idempotency key, without its result; None when nothing is."""
    status = IdempotencyGuard(session.client, prefix=session.prefix).status(key)
    if status is None:
        return None
    return {
        "key": key,
        "state": status.state.value,
        "owner": status.owner_id or None,
        "attempts": status.attempts,
        "lease_left_ms": status.lease_ms,
        "token": int(status.fence),
        "result": status.encoding,
        "error": status.error,
        "task_id": status.task_id or None,
        "kept_for_ms": max(status.expires_ms, 0),
    }


def look_at_queue(session: Session, name: str) -> dict[str, Any] | None:
    """What is known of a FIFO lock; None when nothing is.

    Raises:
        Complaint: fencekit-fifo is not installed.
    """
    try:
        # By name: core imports no satellite.
        make: Callable[..., Any] = import_module("fencekit.fifo").SyncFifoLock
    except ImportError:
        raise Complaint(
            "FIFO queues are read by fencekit-fifo: python -m pip install fencekit-fifo",
            ExitCode.USAGE,
        ) from None
    stats = make(session.client, name, prefix=session.prefix).stats()
    if stats.holder is None and not stats.waiting and not stats.last:
        return None
    return {
        "name": name,
        "owner": stats.holder,
        "token": None if stats.fence is None else int(stats.fence),
        "lease_left_ms": stats.lease_left_ms,
        "waiting": stats.waiting,
        "oldest_wait_ms": stats.oldest_wait_ms,
        "processes": _queue(session, name)["processes"],
        "highest_token": stats.last,
    }


def _queue(session: Session, name: str) -> dict[str, Any]:
    """Who queues for a lock; not known to a user whose ACL is the smallest."""
    try:
        (queue,) = describe_queues(session.client, session.prefix, [name])
    except NoPermissionError:
        return {"waiting": None, "processes": None}
    return queue


_TITLES = {"result": "result kept as", "kept_for": "record kept for"}


def readable(facts: dict[str, Any]) -> dict[str, object]:
    """Facts as people read them: words for names, durations with units."""
    said: dict[str, object] = {}
    for field, fact in facts.items():
        name = field.removesuffix("_ms")
        value = fact
        if name != field and fact is not None:
            value = seconds(fact)
        elif isinstance(fact, bool):
            value = "yes" if fact else "no"
        elif isinstance(fact, list):
            value = ", ".join(map(str, fact)) or "none"
        said[_TITLES.get(name, name.replace("_", " "))] = value
    return said
