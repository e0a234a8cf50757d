"""The methods of a cache that read, as flows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from fencekit.cache import scan
from fencekit.cache.declared import Declared
from fencekit.cache.entry import HEADER_BYTES
from fencekit.cache.policy import Subject
from fencekit.cache.protocol import Found, judge, look, look_many, moment, read_many
from fencekit.cache.spelling import Key, key_text
from fencekit.cache.watching import Observer
from fencekit.errors import StoreError
from fencekit.keys import cache_entry
from fencekit.protocol.operation import Flow

if TYPE_CHECKING:
    from fencekit.cache.access import Access

__all__ = ["Lookup", "Reading"]

T = TypeVar("T")

_body_of: Callable[[bytes], bytes] = itemgetter(slice(HEADER_BYTES, None))


@dataclass(frozen=True)
class Lookup(Generic[T]):
    """What a cache knows of a key.

    Attributes:
        state: "value"; "negative" where it is on record that there is nothing to be had; "miss".
        value: the value, or None.
    """

    state: Literal["value", "negative", "miss"]
    value: T | None = None


class Reading(Declared[T]):
    """The methods that read."""

    def _find(
        self, access: Access[Any, Any], what: str, subject: Subject
    ) -> Flow[tuple[Found, T | None]]:
        definition = self._definition
        try:
            found = yield from look(subject, definition.policy, access.clock)
        except StoreError as error:
            definition.habit.note(what, error)
            return Found(None, b"", moment(), failed=True), None
        return self._decode(found)

    def _find_many(
        self, access: Access[Any, Any], what: str, subjects: Sequence[Subject]
    ) -> Flow[list[Found]]:
        definition = self._definition
        try:
            return (
                yield from look_many(
                    subjects, definition.policy, access.clock, is_cluster=access.driver.is_cluster
                )
            )
        except StoreError as error:
            definition.habit.note(what, error)
            return [Found(None, b"", moment(), failed=True)] * len(subjects)

    def _lookup(self, access: Access[Any, Any], what: str, key: Key) -> Flow[Lookup[T]]:
        subject = self._subject(key)
        found, value = yield from self._find(access, what, subject)
        state = _state_of(found)
        if self._definition.hooks is not None:
            Observer(self._definition, what).looked(subject.key, state)
        return Lookup(state, value if state == "value" else None)

    def _get(self, access: Access[Any, Any], key: Key) -> Flow[T | None]:
        return (yield from self._lookup(access, "get", key)).value

    def _get_many(self, access: Access[Any, Any], keys: Iterable[Key]) -> Flow[dict[Key, T]]:
        definition = self._definition
        once = self._each_once(keys)
        if not definition.tagged and definition.hooks is None:
            return (yield from self._get_many_plain(access, once))
        subjects = [self._subject(key) for key in once]
        found = yield from self._find_many(access, "get_many", subjects)
        observer = Observer(definition, "get_many")
        values: dict[Key, T] = {}
        for key, subject, one in zip(once, subjects, found, strict=True):
            usable, value = self._decode(one)
            state = _state_of(usable)
            if state == "value" and value is not None:
                values[key] = value
            observer.looked(subject.key, state)
        return values

    def _get_many_plain(self, access: Access[Any, Any], keys: list[Key]) -> Flow[dict[Key, T]]:
        """Without tags or hooks: what every value that is not to be refreshed begins with is known.

        A thousand hits are a thousand comparisons then, and a thousand calls of pydantic.
        """
        definition = self._definition
        policy, read = definition.policy, definition.codec.read
        plain = policy.plain
        stem = cache_entry(policy.prefix, policy.domain, "")
        entries = [
            # The usual key is an int, which needs no encoding.
            f"{stem}{key}"
            if type(key) is int
            else cache_entry(policy.prefix, policy.domain, key_text(key))
            for key in keys
        ]
        values: dict[Key, T] = {}
        try:
            raws, _ = yield from read_many(entries, (), is_cluster=access.driver.is_cluster)
            hits = [raw for raw in raws if raw is not None]
            if len(hits) == len(keys) and all(map(bytes.startswith, hits, repeat(plain))):
                # Nothing but hits: C all through. Where one cannot be read, see below which.
                with suppress(Exception):
                    return dict(zip(keys, map(read, map(_body_of, hits)), strict=True))
            for key, raw in zip(keys, raws, strict=True):
                if raw is None:
                    continue
                if raw.startswith(plain):
                    with suppress(Exception):  # as in `_decode`: a miss
                        values[key] = read(_body_of(raw))
                    continue
                subject = policy.subject(key_text(key))
                found = yield from judge(subject, policy, access.clock, raw, tags=b"", as_of=0)
                usable, value = self._decode(found)
                if value is not None and _state_of(usable) == "value":
                    values[key] = value
        except StoreError as error:
            definition.habit.note("get_many", error)
        return values

    def _get_list(self, access: Access[Any, Any], key_prefix: Key, boundary: str) -> Flow[list[T]]:
        prefix = self._prefix(key_prefix, boundary)
        values: dict[str, T] = {}

        def read(entries: list[str]) -> Flow[None]:
            subjects = [self._subject_of(prefix.key_of(entry)) for entry in entries]
            definition = self._definition
            all_found = yield from look_many(
                subjects, definition.policy, access.clock, is_cluster=access.driver.is_cluster
            )
            for subject, found in zip(subjects, all_found, strict=True):
                usable, value = self._decode(found)
                if value is not None and usable.age != "stale":
                    values[subject.key] = value

        try:
            yield from scan.find(prefix, read)
        except StoreError as error:
            self._definition.habit.note("get_list", error)
            return []
        return [values[key] for key in sorted(values)]


def _state_of(found: Found) -> Literal["value", "negative", "miss"]:
    if found.entry is None or found.age == "stale":
        return "miss"
    return "negative" if found.entry.negative else "value"
