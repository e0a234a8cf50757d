"""The setting FENCEKIT, and the client and lock made of it.

::

    FENCEKIT = {"REDIS_URL": "redis://localhost:6379/0", "PREFIX": "shop"}
    FENCEKIT = {"CLIENT": "shop.redis.client"}  # a client, or a function that makes one
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string
from fencekit.keys import DEFAULT_PREFIX, check_prefix
from fencekit.locks import DistributedLock

__all__ = ["FencekitSettings", "get_client", "get_lock", "load"]

_KEYS = ("CLIENT", "PREFIX", "REDIS_URL")


@dataclass(frozen=True)
class FencekitSettings:
    """The setting FENCEKIT, read and checked.

    Attributes:
        redis_url: where Redis is, or None.
        client: the dotted path of a client or of a function that makes one, or None.
        prefix: the beginning of every key.
    """

    redis_url: str | None
    client: str | None
    prefix: str


def load() -> FencekitSettings:
    """Read the setting.

    Raises:
        ImproperlyConfigured: it is no dict, has a key that is not known, says twice where Redis is,
            or a value is not of its type.
    """
    found = getattr(settings, "FENCEKIT", {})
    if not isinstance(found, Mapping):
        raise ImproperlyConfigured(f"FENCEKIT must be a dict, not {type(found).__name__}")
    if unknown := sorted(str(key) for key in found if key not in _KEYS):
        raise ImproperlyConfigured(
            f"FENCEKIT has unknown keys: {', '.join(unknown)}; known are {', '.join(_KEYS)}"
        )
    for key, value in found.items():
        if value is not None and not isinstance(value, str):
            raise ImproperlyConfigured(
                f"FENCEKIT[{key!r}] must be a str, not {type(value).__name__}"
            )
    if found.get("REDIS_URL") and found.get("CLIENT"):
        raise ImproperlyConfigured("FENCEKIT: give REDIS_URL or CLIENT, not both")
    try:
        prefix = check_prefix(found.get("PREFIX") or DEFAULT_PREFIX)
    except ValueError as error:
        raise ImproperlyConfigured(f"FENCEKIT['PREFIX']: {error}") from error
    return FencekitSettings(found.get("REDIS_URL") or None, found.get("CLIENT") or None, prefix)


@lru_cache(maxsize=1)
def get_client() -> Any:
    """The sync client that FENCEKIT names, made at the first call.

    Raises:
        ImproperlyConfigured: FENCEKIT names none, or the dotted path cannot be imported.
    """
    chosen = load()
    if chosen.client is not None:
        try:
            client = import_string(chosen.client)
        except ImportError as error:
            raise ImproperlyConfigured(f"FENCEKIT['CLIENT']: {error}") from error
        return client() if not hasattr(client, "execute_command") else client
    if chosen.redis_url is None:
        raise ImproperlyConfigured(
            "FENCEKIT does not say where Redis is: set REDIS_URL, or CLIENT to a dotted path"
        )
    from redis import Redis  # noqa: PLC0415 - only a project without a client of its own needs it

    return Redis.from_url(chosen.redis_url)


@lru_cache(maxsize=1)
def get_lock() -> DistributedLock:
    """A lock on that client, with the prefix of FENCEKIT, made at the first call.

    Raises:
        ImproperlyConfigured: FENCEKIT names no client.
        TypeError: CLIENT is no sync client.
    """
    return DistributedLock(get_client(), prefix=load().prefix)


def _forget(*, setting: str, **_: object) -> None:
    if setting == "FENCEKIT":
        get_client.cache_clear()
        get_lock.cache_clear()


setting_changed.connect(_forget, dispatch_uid="fencekit")
