"""The cache, in both colours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from fencekit.cache.access import Access, AsyncSource, SyncSource
from fencekit.cache.base import BaseCache, Key, Lookup
from fencekit.cache.definition import define
from fencekit.protocol.operation import Flow

__all__ = ["GenericCache", "SyncGenericCache"]

T = TypeVar("T")
K = TypeVar("K", bound=Key)
R = TypeVar("R")
P = ParamSpec("P")


class GenericCache(BaseCache[T]):
    """A typed cache that cannot serve what was invalidated.

    ::

        class ProfileCache(GenericCache[Profile]):
            ttl = 10 * 60
            redis_client: ClassVar[Redis] = redis_client


        cache = ProfileCache()
        profile = await cache.get_or_load(1, lambda: read_profile(1))
        await cache.invalidate(1)  # after the source has changed

    What is declared, as class attributes:

    - ``redis_client``: an async client of redis-py or valkey-py, or a plain function that returns
      one, called once for each event loop and process.
    - ``ttl``: how long a value is served, seconds or a timedelta; five minutes.
    - ``name``, ``prefix``: ``{prefix}:{name}:{key}`` is an entry's key; by default the prefix is
      empty and the name that of the type.
    - ``version``: entries of another version are misses, as are those of another schema.
    - ``jitter``: the share by which ttls are spread; 0.1.
    - ``negative_ttl``: how long it is remembered that a loader returned None; not at all.
    - ``grace``: how long beyond its ttl a value is kept, to be served while one caller refreshes
      it, or where the load fails; not at all.
    - ``beta``: how eagerly a value is refreshed before its ttl is over; 1 is a good value, 0 never.
    - ``lease``: longer than the slowest load takes; 10 seconds. What takes longer is not stored.
    - ``verify``: read each value back before it is written, and refuse one that differs.
    - ``strict``: raise errors of Redis that do not pass by themselves (a wrong password, full
      memory), instead of logging them.
    - ``hooks``: a `CacheHooks`.
    - ``tags(self, key)``: a method that returns the tags of an entry.

    The simple methods and the loading ones never fail for Redis: an error reads as a miss, drops
    the write, and is logged. ``invalidate``, ``invalidate_tags`` and ``invalidate_all`` raise,
    because an invalidation that is lost is stale data. Programming errors always propagate.

    Raises:
        TypeError, ValueError: at the definition of a class that does not make sense.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._definition = define(cls, (GenericCache,), "async")

    def __init__(self) -> None:
        _check_instance(type(self), GenericCache)

    async def get(self, key: Key) -> T | None:
        """Return the value, or None: one GET, and with tags one MGET in the same pipeline.

        Raises:
            TypeError, ValueError: it cannot be a key.
            StoreError: only where ``strict``, and not for what passes by itself.
        """
        return await self._run(self._get, key)

    async def lookup(self, key: Key) -> Lookup[T]:
        """Return what is known of a key: a value, that there is none, or nothing.

        Raises:
            TypeError, ValueError, StoreError: as for `get`.
        """
        return await self._run(self._lookup, "lookup", key)

    async def create(self, key: Key, value: T) -> None:
        """Write a value, whatever is there; a load under way will not overwrite it.

        Raises:
            TypeError, ValueError: it cannot be a key, or the value cannot be written.
            StoreError: only where ``strict``, and not for what passes by itself.
        """
        await self._run(self._put, "create", key, value)

    async def update(self, key: Key, value: T) -> None:
        """Write a value, whatever is there, as `create` does.

        Raises:
            TypeError, ValueError, StoreError: as for `create`.
        """
        await self._run(self._put, "update", key, value)

    async def delete(self, key: Key) -> None:
        """Remove an entry and end a load under way; quietly, where `invalidate` raises.

        Raises:
            TypeError, ValueError, StoreError: as for `get`.
        """
        await self._run(self._delete, key)

    async def get_list(self, key_prefix: Key = "", *, boundary: str = "") -> list[T]:
        """Return all values whose keys begin with a text, in the order of their keys.

        It looks at *every* key of the database, a thousand in a step, and reads what it finds with
        one MGET for each step: seconds where there are millions. For groups that are often asked
        for keep a list of the keys, and `get_many`.

        Args:
            key_prefix: the literal beginning.
            boundary: what must follow it, unless a key ends there: with ``":"``, ``"team-1"`` does
                not mean ``"team-10:x"``.

        Raises:
            TypeError, ValueError: it cannot be the beginning of a key.
            StoreError: as for `get`; without ``strict`` the list is empty then.
        """
        return await self._run(self._get_list, key_prefix, boundary)

    async def delete_by_filters(self, key_prefix: Key = "", *, boundary: str = "") -> None:
        """Remove all entries whose keys begin with a text, and end the loads under way.

        It looks at *every* key of the database, twice. Tags do the same at the cost of one command.

        Args:
            key_prefix: the literal beginning.
            boundary: what must follow it, unless a key ends there.

        Raises:
            TypeError, ValueError, StoreError: as for `get_list`; what was not reached is left.
        """
        await self._run(self._delete_by_filters, key_prefix, boundary)

    async def get_many(self, keys: Iterable[K]) -> dict[K, T]:
        """Return the values of all keys that have one: one MGET for five hundred.

        Raises:
            TypeError, ValueError, StoreError: as for `get`.
        """
        return cast("dict[K, T]", await self._run(self._get_many, keys))

    async def set_many(self, values: Mapping[K, T]) -> None:
        """Write many values, each as `create` does, in one pipeline for each node.

        Raises:
            TypeError, ValueError, StoreError: as for `create`.
        """
        await self._run(self._set_many, cast("Mapping[Key, T]", values))

    async def get_or_load(
        self, key: Key, load: Callable[[], Awaitable[T | None] | T | None]
    ) -> T | None:
        """Return the value, loading and storing it if there is none.

        One caller in all processes loads, the others wait for its value. A value whose load began
        before an invalidation is neither stored nor given to anybody who called after it. Where
        Redis cannot be asked, each process loads for itself.

        Args:
            key: the key.
            load: returns the value, or None where there is none; sync or async.

        Raises:
            TypeError, ValueError: it cannot be a key, or what was loaded cannot be written.
            RuntimeError: the loader asks for the key that it loads, or one whose load waits for it.
            StoreError: only where ``strict``, and not for what passes by itself.
            whatever the loader raises, unless a value is kept for that case (``grace``).
        """
        return await self._run(self._get_or_load, key, load)

    async def get_or_load_many(
        self,
        keys: Iterable[K],
        load_many: Callable[[list[K]], Awaitable[Mapping[K, T]] | Mapping[K, T]],
    ) -> dict[K, T]:
        """Return the values of all keys that have one, loading what is missing with one call.

        What others are loading is waited for instead, so the loader may be called with few of the
        missing keys, or not at all, or once more if another's load came to nothing.

        Args:
            keys: the keys.
            load_many: takes a list of keys and returns a mapping; what it leaves out has no value.

        Raises:
            TypeError, ValueError, StoreError: as for `get_or_load`.
            whatever the loader raises, unless values are kept for that case (``grace``).
        """
        loader = cast("Callable[[list[Key]], Any]", load_many)
        return cast("dict[K, T]", await self._run(self._get_or_load_many, keys, loader))

    async def invalidate(self, *keys: Key, hold: timedelta = timedelta(0)) -> None:
        """Remove entries for good: no value whose load began before is stored or served after.

        Args:
            keys: the keys.
            hold: for how long no load may store: until replicas have caught up, or the transaction
                that changes the source has ended.

        Raises:
            TypeError, ValueError: one cannot be a key, or the hold makes no sense.
            StoreUnavailable, StoreRefused: at least one entry was not removed; invalidate again.
            OutcomeUnknown: no answer; invalidate again.
        """
        await self._run(self._invalidate, keys, hold)

    async def invalidate_tags(self, *tags: str) -> None:
        """Make every entry under these tags a miss, however many: one command.

        Raises:
            TypeError: the class has no tags, or one is no str.
            ValueError: one cannot be a tag.
            StoreUnavailable, StoreRefused, OutcomeUnknown: as for `invalidate`.
        """
        await self._run(self._invalidate_tags, tags)

    async def invalidate_all(self) -> None:
        """Remove every entry of this cache, and end the loads under way.

        It looks at every key of the database, twice.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: as for `invalidate`.
        """
        await self._run(self._invalidate_all)

    async def _run(
        self,
        flow: Callable[Concatenate[Access[Any, Any], P], Flow[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        access = cast("AsyncSource", self._definition.source).access()
        return await access.driver.run(flow(access, *args, **kwargs))


class SyncGenericCache(BaseCache[T]):
    """The sync twin of `GenericCache`: same declarations, same methods, same meanings.

    Its client is a sync one, its loaders are plain functions, and any thread may call it. A class
    of each colour for one type may share their entries.

    Raises:
        TypeError, ValueError: at the definition of a class that does not make sense.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._definition = define(cls, (SyncGenericCache,), "sync")

    def __init__(self) -> None:
        _check_instance(type(self), SyncGenericCache)

    def get(self, key: Key) -> T | None:
        """Return the value, or None; see `GenericCache.get`.

        Raises:
            TypeError, ValueError, StoreError: as there.
        """
        return self._run(self._get, key)

    def lookup(self, key: Key) -> Lookup[T]:
        """Return what is known of a key; see `GenericCache.lookup`.

        Raises:
            TypeError, ValueError, StoreError: as there.
        """
        return self._run(self._lookup, "lookup", key)

    def create(self, key: Key, value: T) -> None:
        """Write a value, whatever is there; see `GenericCache.create`.

        Raises:
            TypeError, ValueError, StoreError: as there.
        """
        self._run(self._put, "create", key, value)

    def update(self, key: Key, value: T) -> None:
        """Write a value, whatever is there; see `GenericCache.update`.

        Raises:
            TypeError, ValueError, StoreError: as there.
        """
        self._run(self._put, "update", key, value)

    def delete(self, key: Key) -> None:
        """Remove an entry and end a load under way, quietly; see `GenericCache.delete`.

        Raises:
            TypeError, ValueError, StoreError: as there.
        """
        self._run(self._delete, key)

    def get_list(self, key_prefix: Key = "", *, boundary: str = "") -> list[T]:
        """Return all values whose keys begin with a text; see `GenericCache.get_list`.

        It looks at every key of the database.

        Raises:
            TypeError, ValueError, StoreError: as there.
        """
        return self._run(self._get_list, key_prefix, boundary)

    def delete_by_filters(self, key_prefix: Key = "", *, boundary: str = "") -> None:
        """Remove all entries whose keys begin with a text; see `GenericCache.delete_by_filters`.

        It looks at every key of the database, twice.

        Raises:
            TypeError, ValueError, StoreError: as there.
        """
        self._run(self._delete_by_filters, key_prefix, boundary)

    def get_many(self, keys: Iterable[K]) -> dict[K, T]:
        """Return the values of all keys that have one; see `GenericCache.get_many`.

        Raises:
            TypeError, ValueError, StoreError: as there.
        """
        return cast("dict[K, T]", self._run(self._get_many, keys))

    def set_many(self, values: Mapping[K, T]) -> None:
        """Write many values; see `GenericCache.set_many`.

        Raises:
            TypeError, ValueError, StoreError: as there.
        """
        self._run(self._set_many, cast("Mapping[Key, T]", values))

    def get_or_load(self, key: Key, load: Callable[[], T | None]) -> T | None:
        """Return the value, loading and storing it if there is none; see the async twin.

        Raises:
            TypeError, ValueError, RuntimeError, StoreError: as for `GenericCache.get_or_load`.
            whatever the loader raises, unless a value is kept for that case (``grace``).
        """
        return self._run(self._get_or_load, key, load)

    def get_or_load_many(
        self, keys: Iterable[K], load_many: Callable[[list[K]], Mapping[K, T]]
    ) -> dict[K, T]:
        """Return all values, loading what is missing with one call; see the async twin.

        Raises:
            TypeError, ValueError, StoreError: as for `GenericCache.get_or_load_many`.
            whatever the loader raises, unless values are kept for that case (``grace``).
        """
        loader = cast("Callable[[list[Key]], Any]", load_many)
        return cast("dict[K, T]", self._run(self._get_or_load_many, keys, loader))

    def invalidate(self, *keys: Key, hold: timedelta = timedelta(0)) -> None:
        """Remove entries for good; see `GenericCache.invalidate`.

        Raises:
            TypeError, ValueError, StoreUnavailable, StoreRefused, OutcomeUnknown: as there.
        """
        self._run(self._invalidate, keys, hold)

    def invalidate_tags(self, *tags: str) -> None:
        """Make every entry under these tags a miss; see `GenericCache.invalidate_tags`.

        Raises:
            TypeError, ValueError, StoreUnavailable, StoreRefused, OutcomeUnknown: as there.
        """
        self._run(self._invalidate_tags, tags)

    def invalidate_all(self) -> None:
        """Remove every entry of this cache; see `GenericCache.invalidate_all`.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: as there.
        """
        self._run(self._invalidate_all)

    def _run(
        self,
        flow: Callable[Concatenate[Access[Any, Any], P], Flow[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        access = cast("SyncSource", self._definition.source).access()
        return access.driver.run(flow(access, *args, **kwargs))


def _check_instance(kind: type, root: type) -> None:
    if kind is root:
        msg = f"{root.__name__} is declared, not used itself: class YourCache({root.__name__}[…])"
        raise TypeError(msg)
