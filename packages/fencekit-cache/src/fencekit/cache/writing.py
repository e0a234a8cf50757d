"""The methods of a cache that write and invalidate, as flows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fencekit.cache import scan
from fencekit.cache.declared import Declared
from fencekit.cache.entry import digest
from fencekit.cache.policy import Subject
from fencekit.cache.protocol import bump, invalidate, read_nonces, read_tags, together, write
from fencekit.cache.spelling import Key, check_tag
from fencekit.durations import LONGEST_LEASE
from fencekit.errors import StoreError, StoreRefused
from fencekit.protocol.operation import Flow, perform

if TYPE_CHECKING:
    from fencekit.cache.access import Access

__all__ = ["Writing"]

T = TypeVar("T")

_NO_HOLD: Final = timedelta(0)


class Writing(Declared[T]):
    """The methods that write, quietly, and those that invalidate, and say so where they cannot."""

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

    def _invalidate(self, _: Access[Any, Any], keys: Sequence[Key], hold: timedelta) -> Flow[None]:
        if not isinstance(hold, timedelta):
            msg = f"hold must be a timedelta, not {type(hold).__name__}"
            raise TypeError(msg)
        if not _NO_HOLD <= hold <= LONGEST_LEASE:
            msg = f"hold must be at least zero and at most ten years, not {hold}"
            raise ValueError(msg)
        hold_ms = -(-hold // timedelta(milliseconds=1))  # no shorter than was asked for
        operations = [invalidate(self._subject(key), hold_ms, hasty=False) for key in keys]
        if operations:
            yield from together(operations)

    def _invalidate_tags(self, _: Access[Any, Any], tags: Sequence[str]) -> Flow[None]:
        if not self._definition.tagged:
            msg = f"{type(self).__name__} has no tags: define tags(self, key) first"
            raise TypeError(msg)
        checked = [check_tag(tag) for tag in tags]
        if checked:
            yield from perform(bump(self._definition.policy, checked))

    def _invalidate_all(self, _: Access[Any, Any]) -> Flow[None]:
        yield from scan.delete(scan.Prefix(self._definition.policy, "", ""), hasty=False)
