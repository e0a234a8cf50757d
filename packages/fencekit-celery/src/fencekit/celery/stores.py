"""Where an app keeps its records: never the broker by itself."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from redis import Redis

from celery import Celery
from fencekit.celery.errors import NotConfigured
from fencekit.idempotency import IdempotencyGuard
from fencekit.keys import DEFAULT_PREFIX
from fencekit.locks import DistributedLock

__all__ = ["Store", "configure", "store_of"]

SETTING = "fencekit_redis_url"


class Store:
    """A guard and a lock on one server, for the tasks that bring none of their own."""

    def __init__(self, client: Any, prefix: str) -> None:
        self.guard = IdempotencyGuard(client, prefix=prefix)
        self.lock = DistributedLock(client, prefix=prefix)


_stores: WeakKeyDictionary[Celery, Store] = WeakKeyDictionary()
_making = threading.Lock()


def configure(app: Celery, *, redis: Any, prefix: str = DEFAULT_PREFIX) -> None:
    """Say where the records of an app's tasks are kept; a later call replaces an earlier one.

    Args:
        app: the Celery app.
        redis: a sync client of redis-py or valkey-py, or a URL.
        prefix: the beginning of every key.

    Raises:
        TypeError: not an app; an async client, or no client.
        ValueError: not a URL of a server, or not a prefix.
    """
    if not isinstance(app, Celery):
        raise TypeError(f"app must be a Celery app, not {type(app).__name__}")
    client = Redis.from_url(redis) if isinstance(redis, str) else redis
    _stores[_real(app)] = Store(client, prefix)


def store_of(app: Celery, task: str) -> Store:
    """The store of an app, by `configure` or by its setting ``fencekit_redis_url``.

    Raises:
        NotConfigured: neither is there.
        TypeError, ValueError: the setting is no URL of a server.
    """
    app = _real(app)
    store = _stores.get(app)
    if store is None:
        # Settings of Django without a namespace are in capitals, as Celery's own once were.
        url = app.conf.get(SETTING) or app.conf.get(SETTING.upper())
        if not url:
            raise NotConfigured.of(task)
        with _making:
            store = _stores.get(app)
            if store is None:
                configure(app, redis=url)
                store = _stores[app]
    return store


def _real(app: Celery) -> Celery:
    """The app behind a proxy such as ``current_app``."""
    find = getattr(app, "_get_current_object", None)
    real: Celery = app if find is None else find()
    return real
