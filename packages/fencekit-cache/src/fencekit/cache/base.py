"""What both colours of cache do, as flows; the colours only run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar
from uuid import UUID

from fencekit.cache import scan
from fencekit.cache.definition import Definition, Duration
from fencekit.cache.entry import HEADER_BYTES, digest
from fencekit.cache.fill import Outcome, Terms, fill
from fencekit.cache.fill_many import fill_many
from fencekit.cache.hooks import CacheHooks
from fencekit.cache.protocol import (
    Found,
    Subject,
    bump,
    invalidate,
    judge,
    look,
    look_many,
    moment,
    read_many,
    read_nonces,
    read_tags,
    together,
    write,
)
from fencekit.cache.watching import Observer
from fencekit.durations import LONGEST_LEASE
from fencekit.errors import StoreError, StoreRefused
from fencekit.protocol.operation import Call, Flow, perform

if TYPE_CHECKING:
    from fencekit.cache.access import Access

__all__ = ["BaseCache", "Key", "Lookup"]

T = TypeVar("T")

Key: TypeAlias = str | int | UUID

_KEY_BYTES = 1024
_NO_HOLD: Final = timedelta(0)


@dataclass(frozen=True)
class Lookup(Generic[T]):
    """What a cache knows of a key.

    Attributes:
        state: "value"; "negative" where it is on record that there is nothing to be had; "miss".
        value: the value, or None.
    """

    state: Literal["value", "negative", "miss"]
    value: T | None = None


class BaseCache(Generic[T]):
    """What is declared of a cache, and what its methods do; see `GenericCache`."""

    redis_client: ClassVar[Any]
    ttl: ClassVar[Duration] = 5 * 60
    name: ClassVar[str | None] = None
    prefix: ClassVar[str] = ""
    version: ClassVar[str | int] = ""
    jitter: ClassVar[float] = 0.1
    negative_ttl: ClassVar[Duration | None] = None
    grace: ClassVar[Duration] = 0
    beta: ClassVar[float] = 0.0
    lease: ClassVar[Duration] = 10
    verify: ClassVar[bool] = False
    strict: ClassVar[bool] = False
    hooks: ClassVar[CacheHooks | None] = None

    _definition: ClassVar[Definition[Any]]

    def tags(self, key: str) -> Iterable[str]:
        """The tags of an entry, for a class that overrides this: they depend on its key only.

        Args:
            key: the key as text.
        """
        del key
        return ()

    # -- keys and bodies ---------------------------------------------------------------------------

    def _subject(self, key: Key) -> Subject:
        return self._subject_of(_key_text(key))

    def _subject_of(self, text: str) -> Subject:
        definition = self._definition
        if not definition.tagged:
            return definition.policy.subject(text)
        tags = self.tags(text)
        if isinstance(tags, str):
            msg = f"{type(self).__name__}.tags must return a list of tags, not one str"
            raise TypeError(msg)
        return definition.policy.subject(text, [_check_tag(tag) for tag in dict.fromkeys(tags)])

    def _subjects(self, keys: Iterable[Key]) -> tuple[list[Key], list[Subject]]:
        """Keys, each once, and what the scripts call their entries."""
        if isinstance(keys, str | bytes):
            msg = f"expected some keys, not one {type(keys).__name__}"
            raise TypeError(msg)
        once = list(dict.fromkeys(keys))
        return once, [self._subject(key) for key in once]

    def _encode(self, value: T) -> bytes:
        codec = self._definition.codec
        body = codec.encode(value)
        if self._definition.verify:
            codec.verify(value, body)
        return body

    def _decode(self, found: Found) -> tuple[Found, T | None]:
        """The value that was found; what cannot be read is a miss."""
        entry = found.entry
        if entry is None or entry.negative:
            return found, None
        try:
            value: T = self._definition.codec.read(entry.body)
        except Exception:  # noqa: BLE001 - a validator is a stranger's code; it reads as a miss
            return found._replace(entry=None), None
        return found, value

    def _terms(self, access: Access[Any, Any], what: str) -> Terms[T]:
        definition = self._definition
        return Terms(
            definition.policy,
            access.clock,
            self._encode,
            Observer(definition, what),
            access.driver.is_cluster,
        )

    # -- reading -----------------------------------------------------------------------------------

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
        once, subjects = self._subjects(keys)
        if not definition.tagged and definition.hooks is None:
            return (yield from self._get_many_plain(access, once, subjects))
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

    def _get_many_plain(
        self, access: Access[Any, Any], keys: list[Key], subjects: list[Subject]
    ) -> Flow[dict[Key, T]]:
        """Without tags or hooks: what every value that is not to be refreshed begins with is known.

        A thousand entries are a thousand comparisons then, and not as many objects of ours.
        """
        definition = self._definition
        policy, read = definition.policy, definition.codec.read
        plain, size = policy.plain, len(policy.plain)
        values: dict[Key, T] = {}
        try:
            raws, _ = yield from read_many(
                [subject.entry for subject in subjects], (), is_cluster=access.driver.is_cluster
            )
            for key, subject, raw in zip(keys, subjects, raws, strict=True):
                if raw is None:
                    continue
                if raw[:size] == plain:
                    with suppress(Exception):  # as in `_decode`: it reads as a miss
                        values[key] = read(raw[HEADER_BYTES:])
                    continue
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

    # -- writing -----------------------------------------------------------------------------------

    def _put(self, _: Access[Any, Any], what: str, key: Key, value: T) -> Flow[None]:
        subject, body = self._subject(key), self._encode(value)
        policy = self._definition.policy
        try:
            tags = yield from read_tags(subject, policy)
            yield from perform(write(subject, policy, body, tags))
        except StoreError as error:
            yield from self._forget((subject,), error)
            self._definition.habit.note(what, error)

    def _set_many(self, _: Access[Any, Any], values: Mapping[Key, T]) -> Flow[None]:
        if not isinstance(values, Mapping):
            msg = f"set_many takes a mapping of keys to values, not {type(values).__name__}"
            raise TypeError(msg)
        policy = self._definition.policy
        bodies = {self._subject(key): self._encode(value) for key, value in values.items()}
        try:
            names = list(dict.fromkeys(tag for subject in bodies for tag in subject.tags))
            nonces = dict(zip(names, (yield from read_nonces(names, policy)), strict=True))
            yield from together(
                [
                    write(subject, policy, body, digest([nonces[tag] for tag in subject.tags]))
                    for subject, body in bodies.items()
                ]
            )
        except StoreError as error:
            yield from self._forget(bodies, error)
            self._definition.habit.note("set_many", error)

    def _forget(self, subjects: Iterable[Subject], error: StoreError) -> Flow[None]:
        """Remove the old values where the server refused the new ones: full memory allows that."""
        if not isinstance(error, StoreRefused):
            return
        try:
            yield from together([invalidate(subject, 0, hasty=True) for subject in subjects])
        except StoreError:
            return  # the refusal itself is reported

    def _delete(self, _: Access[Any, Any], key: Key) -> Flow[None]:
        try:
            yield from perform(invalidate(self._subject(key), 0, hasty=True))
        except StoreError as error:
            self._definition.habit.note("delete", error)

    def _delete_by_filters(self, _: Access[Any, Any], key_prefix: Key, boundary: str) -> Flow[None]:
        prefix = self._prefix(key_prefix, boundary)
        try:
            yield from scan.delete(prefix, hasty=True)
        except StoreError as error:
            self._definition.habit.note("delete_by_filters", error)

    # -- invalidating ------------------------------------------------------------------------------

    def _invalidate(self, _: Access[Any, Any], keys: Sequence[Key], hold: timedelta) -> Flow[None]:
        if not isinstance(hold, timedelta):
            msg = f"hold must be a timedelta, not {type(hold).__name__}"
            raise TypeError(msg)
        if not _NO_HOLD <= hold <= LONGEST_LEASE:
            msg = f"hold must be at least zero and at most ten years, not {hold}"
            raise ValueError(msg)
        hold_ms = round(hold / timedelta(milliseconds=1))
        operations = [invalidate(self._subject(key), hold_ms, hasty=False) for key in keys]
        if operations:
            yield from together(operations)

    def _invalidate_tags(self, _: Access[Any, Any], tags: Sequence[str]) -> Flow[None]:
        if not self._definition.tagged:
            msg = f"{type(self).__name__} has no tags: define tags(self, key) first"
            raise TypeError(msg)
        checked = [_check_tag(tag) for tag in tags]
        if checked:
            yield from perform(bump(self._definition.policy, checked))

    def _invalidate_all(self, _: Access[Any, Any]) -> Flow[None]:
        yield from scan.delete(scan.Prefix(self._definition.policy, "", ""), hasty=False)

    # -- loading -----------------------------------------------------------------------------------

    def _get_or_load(
        self, access: Access[Any, Any], key: Key, load: Callable[[], Any]
    ) -> Flow[T | None]:
        if not callable(load):
            msg = f"the loader must be callable, not {type(load).__name__}"
            raise TypeError(msg)
        subject = self._subject(key)
        terms = self._terms(access, "get_or_load")
        observer = Observer(self._definition, "get_or_load")
        first = True
        while True:
            started = moment()
            found, value = yield from self._find(access, "get_or_load", subject)
            if found.entry is not None and found.age == "fresh":
                observer.looked(subject.key, "negative" if found.entry.negative else "value")
                return value
            if found.entry is not None and access.flights.busy(subject.entry):
                # Somebody here is refreshing it, and the old value may be served meanwhile.
                if found.age == "stale":
                    observer.stale(subject.key)
                else:
                    observer.looked(subject.key, "value")
                return value
            if first:
                observer.looked(subject.key, "miss")
                first = False
            make = partial(fill, subject, terms, found, load)
            shared = yield Call(partial(access.flights.share, subject.entry, make))
            if shared is None:
                continue
            outcome, begun = shared
            if outcome.as_of > started:
                return (yield from self._taken(subject, outcome, load, begun=begun))

    def _taken(
        self, subject: Subject, outcome: Outcome, load: Callable[[], Any], *, begun: bool
    ) -> Flow[T | None]:
        """The value of an outcome: an object of the caller's own."""
        if outcome.stale:
            Observer(self._definition, "get_or_load").stale(subject.key)
        if outcome.loaded and begun:
            value: T | None = outcome.value
            return value
        if outcome.body is None:
            return None
        decoded = self._definition.codec.decode(outcome.body)
        if decoded is not None:
            value = decoded.value
            return value
        # Written here, and not to be read: the application's own load is all there is.
        value = yield Call(load)
        return value

    def _get_or_load_many(
        self,
        access: Access[Any, Any],
        keys: Iterable[Key],
        load_many: Callable[[list[Key]], Any],
    ) -> Flow[dict[Key, T]]:
        if not callable(load_many):
            msg = f"the loader must be callable, not {type(load_many).__name__}"
            raise TypeError(msg)
        once, asked = self._subjects(keys)
        subjects = dict(zip(asked, once, strict=True))
        observer = Observer(self._definition, "get_or_load_many")
        found = yield from self._find_many(access, "get_or_load_many", asked)
        values: dict[Subject, T | None] = {}
        missing: dict[Subject, Found] = {}
        for subject, looked in zip(asked, found, strict=True):
            one, value = self._decode(looked)
            if one.entry is not None and one.age == "fresh":
                observer.looked(subject.key, "negative" if one.entry.negative else "value")
                values[subject] = value
            else:
                observer.looked(subject.key, "miss")
                missing[subject] = one

        def load(wanted: list[Subject]) -> Any:
            return load_many([subjects[subject] for subject in wanted])

        def pick(loaded: Any, subject: Subject) -> T | None:
            if not isinstance(loaded, Mapping):
                msg = f"the loader must return a mapping of keys, not {type(loaded).__name__}"
                raise TypeError(msg)
            picked: T | None = loaded.get(subjects[subject])
            return picked

        if missing:
            terms = self._terms(access, "get_or_load_many")
            outcomes = yield from fill_many(missing, terms, load, pick)
            for subject, outcome in outcomes.items():
                if outcome.stale:
                    observer.stale(subject.key)
                if outcome.loaded or outcome.body is None:
                    values[subject] = outcome.value
                elif (decoded := self._definition.codec.decode(outcome.body)) is not None:
                    values[subject] = decoded.value
        return {
            key: value
            for subject, key in subjects.items()
            if (value := values.get(subject)) is not None
        }

    def _prefix(self, key_prefix: Key, boundary: str) -> scan.Prefix:
        text = "" if key_prefix == "" else _key_text(key_prefix)
        if not isinstance(boundary, str):
            msg = f"boundary must be a str, not {type(boundary).__name__}"
            raise TypeError(msg)
        return scan.Prefix(self._definition.policy, text, boundary)


def _state_of(found: Found) -> Literal["value", "negative", "miss"]:
    if found.entry is None or found.age == "stale":
        return "miss"
    return "negative" if found.entry.negative else "value"


def _key_text(key: Key) -> str:
    """Spell a key.

    Raises:
        TypeError: not a str, an int or a UUID.
        ValueError: empty, too long, or not UTF-8.
    """
    if type(key) is int:  # the usual key, and no bool
        return str(key)
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        text = str.__str__(key)
    elif isinstance(key, int) and not isinstance(key, bool):
        return int.__repr__(key)
    elif isinstance(key, UUID):
        return str(key)
    else:
        msg = f"a key must be a str, an int or a UUID, not {type(key).__name__}"
        raise TypeError(msg)
    if not text:
        msg = "the key is empty"
        raise ValueError(msg)
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        msg = f"the key {text!r} cannot be written as UTF-8"
        raise ValueError(msg) from None
    if size > _KEY_BYTES:
        msg = f"the key has {size} bytes of UTF-8; at most {_KEY_BYTES} are allowed"
        raise ValueError(msg)
    return text


def _check_tag(tag: str) -> str:
    if not isinstance(tag, str):
        msg = f"a tag must be a str, not {type(tag).__name__}"
        raise TypeError(msg)
    if not tag or not tag.isprintable() or set(tag) & set(" :{}"):
        msg = (
            f"the tag {tag!r} is not allowed: it must not be empty, nor have spaces, control "
            "characters, braces or ':', which separates the parts of its key"
        )
        raise ValueError(msg)
    return str.__str__(tag)
