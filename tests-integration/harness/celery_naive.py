"""The decorators that everybody writes first, and the tests see fail; a client for effects."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import redis

__all__ = ["URL", "effects", "leased", "naive", "pause_when_told", "retrying"]

URL = os.environ.get("FENCEKIT_TEST_URL", "redis://localhost:6379/0")
_clients = threading.local()


def effects() -> Any:
    """A client for what is counted."""
    client = getattr(_clients, "client", None)
    if client is None or _clients.pid != os.getpid():
        client = _clients.client = redis.Redis.from_url(URL)
        _clients.pid = os.getpid()
    return client


def pause_when_told(name: str) -> None:
    """Pause before a lock is taken, once, where a test has asked for it."""
    if effects().delete(f"pause:{name}"):
        effects().rpush(f"paused:{name}", 1)
        time.sleep(2.5)


def naive(function: Callable[..., Any]) -> Callable[..., Any]:
    """Skip what another message has taken."""

    @functools.wraps(function)
    def wrapper(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        if not effects().set(f"naive:{key}", self.request.id, nx=True, ex=60):
            return None
        return function(self, key, *args, **kwargs)

    return wrapper


def leased(function: Callable[..., Any]) -> Callable[..., Any]:
    """Look for a result, then take a lease of a second, then work, then keep the result.

    It does not look again once it has the lease, keeps its result whoever has the lease by then,
    and forgets the payload when it does.
    """

    @functools.wraps(function)
    def wrapper(self: Any, key: str, steps: Any = (), result: Any = None) -> Any:
        client, record, lease = effects(), f"record:{key}", f"lease:{key}"
        if (kept := client.get(record)) is not None:
            memo = json.loads(kept)
            assert memo.get("payload") == json.dumps(result), "another payload"
            return memo["result"]
        pause_when_told(key)
        while not client.set(lease, self.request.id, nx=True, px=1000):
            time.sleep(0.05)
        try:
            value = function(self, key, steps, result)
        except Exception:
            client.delete(record, lease)
            raise
        client.set(record, json.dumps({"result": value}))
        client.delete(lease)
        return value

    return wrapper


def retrying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have Celery retry what another message is at."""

    @functools.wraps(function)
    def wrapper(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        client = effects()
        if (kept := client.get(f"record:{key}")) is not None:
            return json.loads(kept)
        if not client.set(f"lease:{key}", self.request.id, nx=True, ex=60):
            raise self.retry(countdown=0.3, exc=AssertionError("still busy"))
        value = function(self, key, *args, **kwargs)
        client.set(f"record:{key}", json.dumps(value))
        return value

    return wrapper
