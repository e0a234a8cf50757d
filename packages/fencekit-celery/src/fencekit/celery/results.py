"""A result that is stored in the same step as its work is recorded as done.

Celery stores a result after the task has ended: it looks whether a success is there already, then
writes, and tells who waits. Where the results are kept in the very database of the records, all of
this goes with the completion, in one script: either both are there or neither, and a result that
was stored is known for it when its message comes again. Nobody can write between look and write.

Not where more is to be done with a result than to store it: in a chain, chord or group, or with
callbacks; nor where the task may return something else than its body does. And whatever goes wrong,
Celery stores it afterwards, as it always does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from celery import Task, states
from celery.app import autoretry
from celery.backends.redis import RedisBackend
from fencekit.celery.published import entry
from fencekit.protocol.claim import Announcement

if TYPE_CHECKING:
    from fencekit.celery.deliveries import Delivery
    from fencekit.drivers.client import Client

__all__ = ["announce_no_more", "announcement_of", "returns_as_it_is"]

_log = logging.getLogger("fencekit.celery")

# Longer ones are stored by Celery: the server would keep copies in the memory of its scripts.
_MOST_BYTES: Final = 1_048_576
# In whatever says that a task has succeeded. What it cannot be found in is encrypted or compressed.
_SUCCESS: Final = states.SUCCESS.encode()
# How long a server is not asked again that has refused: seconds. It may have been for a moment.
_REFUSED: Final = 60.0

# Where Celery's own `Task.__call__` is made: the second in a worker. Both do no more than run.
_CELERYS: Final = frozenset({"celery.app.task", "celery.app.trace"})

# What says only when it connects who the user is, or which the database.
_LATER: Final = ("credential_provider", "redis_connect_func", "valkey_connect_func")

# Whether a backend's results are in the database of a client, and not before which monotonic second
# it is to be relied on.
_shares: WeakKeyDictionary[RedisBackend, tuple[Client, bool, float]] = WeakKeyDictionary()


def announcement_of(
    delivery: Delivery, body: Callable[..., Any], client: Client, result: Any
) -> Announcement | None:
    """What stores the result of a message as its backend would; None where that is to do it.

    Never raises: the effect has happened, and whatever is wrong with its result, Celery meets it
    too, and tells.

    Args:
        delivery: the message.
        body: the function that has the result.
        client: where the records are.
        result: what it is.
    """
    try:
        if delivery.feeds_a_canvas or not delivery.stores_result:
            return None
        backend = delivery.task.backend
        if _is_in(backend, client) and returns_as_it_is(delivery.task, body):
            return _announcement(backend, delivery, result)
    except Exception:  # noqa: BLE001 - any backend or serializer may raise anything
        _log.debug("the result of %r is left to its backend", delivery.id, exc_info=True)
    return None


def _announcement(backend: RedisBackend, delivery: Delivery, result: Any) -> Announcement | None:
    meta = backend._get_result_meta(  # noqa: SLF001 - as its own `store_result`
        result=backend.encode_result(result, states.SUCCESS),
        state=states.SUCCESS,
        traceback=None,
        request=delivery.request,
    )
    meta["task_id"] = delivery.id
    text = backend.encode(meta)
    text = text.encode() if isinstance(text, str) else text
    if len(text) > _MOST_BYTES:
        return None
    key = backend.get_key_for_task(delivery.id)
    key = key.decode() if isinstance(key, bytes) else key
    ms = int(backend.expires or 0) * 1000
    # A success is not written over, as Celery does not either; a state such as STARTED is.
    spared = _SUCCESS if _SUCCESS in text else b""
    return Announcement(key, text, ms, entry(delivery.id), spared)


def announce_no_more(delivery: Delivery) -> None:
    """Have results of this backend be stored by it for a while: the server refuses it in one step.

    Each thread has a backend of its own.
    """
    backend = delivery.task.backend
    client, shared, _ = _shares[backend]
    _shares[backend] = (client, shared, time.monotonic() + _REFUSED)


def _is_in(backend: Any, client: Client) -> bool:
    """Whether results are kept where a client's records are, reached with the same rights."""
    # No subclass: it may store them in another way.
    if type(backend) is not RedisBackend:
        return False
    known, shared, since = _shares.get(backend, (None, False, 0.0))
    if known is not client:
        place = _place(client.settings)
        shared = (
            client.kind == "single" and place is not None and place == _place(backend.connparams)
        )
        _shares[backend] = (client, shared, 0.0)
    return shared and time.monotonic() >= since


def _place(settings: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The server, database and user of a connection; None where that is not known beforehand."""
    if any(settings.get(name) is not None for name in _LATER):
        return None
    path = settings.get("path")
    where = (path,) if path else (settings.get("host"), int(settings.get("port") or 6379))
    user = (settings.get("username"), settings.get("password"))
    return (*where, int(settings.get("db") or 0), *user)


def returns_as_it_is(task: Task, body: Callable[..., Any]) -> bool:
    """Whether a task returns what its body does, with nothing around it that might change it."""
    run = task.run
    if getattr(run, "__globals__", None) is vars(autoretry):
        run = getattr(task, "_orig_run", run)  # autoretry hands on what it gets
    call = type(task).__call__
    calls_run = call is Task.__call__ and call.__module__ in _CELERYS
    return calls_run and getattr(run, "__func__", run) is body
