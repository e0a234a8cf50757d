"""Who holds a lock when the caller does not say: host, process, thread and task.

Derived at call time, never at import: prefork children, threads, greenlets and tasks that share
one lock object are different owners.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import socket
import threading
from functools import lru_cache
from weakref import WeakKeyDictionary

__all__ = ["current_owner_id", "current_task_owner_id"]

_tasks: WeakKeyDictionary[asyncio.Task[object], int] = WeakKeyDictionary()
_numbers = itertools.count(1)


def _name_process() -> str:
    # The random part tells containers apart that share a host name and a process id.
    host = re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname())[:48] or "host"
    return f"{host}-{os.getpid()}-{os.urandom(4).hex()}"


_process = _name_process()


def current_owner_id() -> str:
    """The owner id of the running thread or greenlet."""
    return _name_thread(threading.get_ident())


@lru_cache(maxsize=1024)
def _name_thread(ident: int) -> str:
    return f"{_process}-{ident:x}"


def current_task_owner_id() -> str:
    """The owner id of the running task, or of the thread where there is none."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        return current_owner_id()
    number = _tasks.get(task)
    if number is None:
        number = _tasks[task] = next(_numbers)
    return f"{current_owner_id()}-{number}"


def _after_fork() -> None:
    global _process  # noqa: PLW0603 - a child is another process, with another name
    _process = _name_process()
    _name_thread.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
