"""Typed caches on Redis that cannot serve what was invalidated.

A value whose load began before an invalidation is neither stored after it nor served to anybody
who asks after it. What that assumes is said in docs/explanation/cache-guarantee.
"""

from fencekit.cache.base import Key, Lookup
from fencekit.cache.caches import GenericCache, SyncGenericCache
from fencekit.cache.hooks import (
    CacheError,
    CacheFenced,
    CacheHit,
    CacheHooks,
    CacheLoaded,
    CacheMiss,
    CacheNegative,
    CacheStale,
    CacheWaited,
)
from fencekit.cache.suppression import is_transient, suppress_redis_errors

__version__ = "0.1.0"

__all__ = [
    "CacheError",
    "CacheFenced",
    "CacheHit",
    "CacheHooks",
    "CacheLoaded",
    "CacheMiss",
    "CacheNegative",
    "CacheStale",
    "CacheWaited",
    "GenericCache",
    "Key",
    "Lookup",
    "SyncGenericCache",
    "is_transient",
    "suppress_redis_errors",
]
