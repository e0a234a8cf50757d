"""Ask Sentinels for the primary, with connections made for each question.

The library's connections behind Sentinels ask through the clients of the given client's pool. Those
belong to one event loop and one process, wait as long as they were told to (for ever by default),
and in redis-py 8 ask a Sentinel that is down many times. Ours stand in the pool's place and do not.
"""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["AsyncWatch", "Watch", "hang_up"]

# How long one Sentinel may take to answer where the client does not say, seconds.
_TIMEOUT = 1.0
_RETRIES = ("retry", "retry_on_error", "retry_on_timeout", "maint_notifications_pool_handler")


class _Watch:
    """What a connection behind Sentinels wants of its pool.

    Attributes:
        service_name: what the Sentinels call the primary.
        is_master: always: locks are written.
        check_connection: whether a new connection is tried with PING.
    """

    is_master = True

    def __init__(self, pool: Any) -> None:
        self.service_name = pool.service_name
        self.check_connection = pool.check_connection
        self._manager = pool.sentinel_manager
        # The one that answered last is asked first.
        self._watchers = list(self._manager.sentinels)

    def _fresh(self) -> Any:
        """A copy of the client's Sentinels, with connections of its own."""
        manager = copy.copy(self._manager)
        manager.sentinels = [_twin(watcher) for watcher in self._watchers]
        return manager

    def _heed(self, asked: list[Any], first: Any) -> None:
        """Remember who answered: the library puts that one first."""
        if first in asked and len(asked) == len(self._watchers):
            answered = self._watchers[asked.index(first)]
            self._watchers = sorted(self._watchers, key=lambda one: one is not answered)


class Watch(_Watch):
    """For sync connections."""

    def get_master_address(self) -> Any:
        """Ask the Sentinels, one after the other.

        Raises:
            MasterNotFoundError: none knows; a ConnectionError of the library.
        """
        manager = self._fresh()
        asked = list(manager.sentinels)
        try:
            address = manager.discover_master(self.service_name)
        finally:
            for watcher in asked:
                watcher.connection_pool.disconnect()
        self._heed(asked, manager.sentinels[0])
        return address


class AsyncWatch(_Watch):
    """For async connections, on whichever loop they live."""

    async def get_master_address(self) -> Any:
        """Ask the Sentinels, one after the other.

        Raises:
            MasterNotFoundError: none knows; a ConnectionError of the library.
        """
        manager = self._fresh()
        asked = list(manager.sentinels)
        try:
            address = await manager.discover_master(self.service_name)
        finally:
            # The pool itself would close them in tasks, which end unbegun if this one is cancelled.
            for pool in (watcher.connection_pool for watcher in asked):
                for one in (*pool._available_connections, *pool._in_use_connections):  # noqa: SLF001
                    await hang_up(one)
        self._heed(asked, manager.sentinels[0])
        return address


async def hang_up(connection: Any) -> None:
    """Close a connection of the library's, without a pause in which a cancellation could come.

    Without a farewell, too: TLS would wait for it to be answered, and the loop may end before.
    """
    writer = connection._writer  # noqa: SLF001 - the library has no public way to abort
    if writer is not None:
        writer.transport.abort()
    await connection.disconnect(nowait=True)


def _twin(watcher: Any) -> Any:
    """A client of one Sentinel, like the given one."""
    pool = watcher.connection_pool
    settings = {
        name: value for name, value in pool.connection_kwargs.items() if name not in _RETRIES
    }
    for name in ("socket_timeout", "socket_connect_timeout"):
        if settings.get(name) is None:
            settings[name] = _TIMEOUT
    return type(watcher)(
        connection_pool=type(pool)(connection_class=pool.connection_class, **settings)
    )
