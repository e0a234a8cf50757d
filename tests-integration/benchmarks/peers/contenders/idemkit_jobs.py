"""idemkit's decorators on its Redis backend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from idemkit import MethodConfig, RedisBackend, idempotent, idempotent_sync


def jobs(client: Any, url: str, work: Callable[[], Any]) -> Callable[[str], Any]:
    del client
    config = MethodConfig(key_fields=["key"], expires_after_seconds=300)

    @idempotent_sync(backend=RedisBackend.from_url(url), config=config)  # type: ignore[untyped-decorator]
    def once(key: str) -> Any:
        del key
        return work()

    return once  # type: ignore[no-any-return]


def ajobs(client: Any, url: str, work: Callable[[], Any]) -> Callable[[str], Awaitable[Any]]:
    del client
    config = MethodConfig(key_fields=["key"], expires_after_seconds=300)

    @idempotent(backend=RedisBackend.from_url(url), config=config)  # type: ignore[untyped-decorator]
    async def once(key: str) -> Any:
        del key
        return work()

    return once  # type: ignore[no-any-return]
