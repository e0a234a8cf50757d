"""dogpile.cache on Redis, with the lock that other processes respect too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE

from benchmarks.profile import Profile


class cache:  # noqa: N801 - a role is called like a function
    def __init__(self, client: Any, url: str) -> None:
        del client
        self.region: Any = make_region().configure(
            "dogpile.cache.redis",
            arguments={
                "url": url,
                "redis_expiration_time": 600,
                "distributed_lock": True,
                "thread_local_lock": False,
            },
        )

    def get(self, key: str) -> Profile | None:
        raw = self.region.get(key)
        return None if raw is NO_VALUE else Profile.model_validate_json(raw)

    def set(self, key: str, value: Profile) -> None:
        self.region.set(key, value.model_dump_json())

    def forget(self, key: str) -> None:
        self.region.delete(key)

    def load(self, key: str, load: Callable[[], Profile]) -> Profile:
        raw = self.region.get_or_create(key, lambda: load().model_dump_json())
        return Profile.model_validate_json(raw)

    def many(self, keys: Iterable[str]) -> list[Profile]:
        return [Profile.model_validate_json(raw) for raw in self.region.get_multi(list(keys))]
