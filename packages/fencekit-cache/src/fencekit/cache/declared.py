"""What is declared of a cache, and what follows from it for keys and values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from fencekit.cache import scan
from fencekit.cache.definition import Definition, Duration
from fencekit.cache.fill import Terms
from fencekit.cache.hooks import CacheHooks
from fencekit.cache.policy import Subject
from fencekit.cache.protocol import Found
from fencekit.cache.spelling import Key, check_tag, key_text
from fencekit.cache.watching import Observer

if TYPE_CHECKING:
    from fencekit.cache.access import Access

__all__ = ["Declared"]

T = TypeVar("T")


class Declared(Generic[T]):
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

    def _subject(self, key: Key) -> Subject:
        return self._subject_of(key_text(key))

    def _subject_of(self, text: str) -> Subject:
        definition = self._definition
        if not definition.tagged:
            return definition.policy.subject(text)
        tags = self.tags(text)
        if isinstance(tags, str):
            msg = f"{type(self).__name__}.tags must return a list of tags, not one str"
            raise TypeError(msg)
        # In one order everywhere: two processes iterate over one set differently, and what the one
        # stores would be a miss for the other.
        return definition.policy.subject(text, sorted({check_tag(tag) for tag in tags}))

    def _each_once(self, keys: Iterable[Key]) -> list[Key]:
        if isinstance(keys, str | bytes):
            msg = f"expected some keys, not one {type(keys).__name__}"
            raise TypeError(msg)
        return list(dict.fromkeys(keys))

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

    def _prefix(self, key_prefix: Key, boundary: str) -> scan.Prefix:
        text = "" if key_prefix == "" else key_text(key_prefix)
        if not isinstance(boundary, str):
            msg = f"boundary must be a str, not {type(boundary).__name__}"
            raise TypeError(msg)
        return scan.Prefix(self._definition.policy, text, boundary)
