"""The methods of a cache that load what is missing, as flows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fencekit.cache.fill import Outcome, fill
from fencekit.cache.fill_many import fill_many
from fencekit.cache.policy import Subject
from fencekit.cache.protocol import Found, moment
from fencekit.cache.reading import Reading
from fencekit.cache.spelling import Key
from fencekit.cache.watching import Observer
from fencekit.protocol.operation import Call, Flow

if TYPE_CHECKING:
    from fencekit.cache.access import Access

__all__ = ["Loading"]

T = TypeVar("T")


class Loading(Reading[T]):
    """The methods that load, on top of those that read."""

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
        once = self._each_once(keys)
        asked = [self._subject(key) for key in once]
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
            picked: T | None = cast("Mapping[Key, T]", loaded).get(subjects[subject])
            return picked

        if missing:
            terms = self._terms(access, "get_or_load_many")
            outcomes = yield from fill_many(missing, terms, load, pick)
            unread: list[Subject] = []
            for subject, outcome in outcomes.items():
                if outcome.stale:
                    observer.stale(subject.key)
                if outcome.loaded or outcome.body is None:
                    values[subject] = outcome.value
                elif (decoded := self._definition.codec.decode(outcome.body)) is not None:
                    values[subject] = decoded.value
                else:
                    unread.append(subject)
            if unread:
                # Written here, and not to be read: the application's own load is all there is.
                loaded = yield Call(partial(load, unread))
                values.update((subject, pick(loaded, subject)) for subject in unread)
        return {
            key: value
            for key, subject in zip(once, asked, strict=True)
            if (value := values.get(subject)) is not None
        }
