"""How one class of cache stores, and what its scripts call an entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import uniform
from typing import NamedTuple

from fencekit.cache.entry import head
from fencekit.keys import cache_channel, cache_entry, cache_tag, cache_ticket

__all__ = ["Policy", "Subject"]

# Tags outlive what is stored under them by this much, milliseconds.
_TAG_SLACK_MS = 60_000


@dataclass(frozen=True)
class Policy:
    """How one class of cache stores.

    Attributes:
        prefix: first part of every key.
        domain: second part of every key.
        fingerprint: of schema and version.
        ttl_ms: how long a value is fresh, milliseconds.
        negative_ms: how long a negative entry lives, milliseconds; 0: there are none.
        grace_ms: how long a value is kept beyond that, milliseconds, to be served stale.
        lease_ms: how long a load may take, milliseconds.
        jitter: share by which times to live are spread.
        beta: how eagerly entries are refreshed early; 0: not at all.
    """

    prefix: str
    domain: str
    fingerprint: bytes
    ttl_ms: float
    negative_ms: float
    grace_ms: float
    lease_ms: int
    jitter: float
    beta: float

    def subject(self, key: str, tags: Sequence[str] = ()) -> Subject:
        """What the scripts call an entry."""
        entry = cache_entry(self.prefix, self.domain, key)
        if not tags:
            return Subject(key, entry, ())
        return Subject(key, entry, tuple(cache_tag(self.prefix, self.domain, tag) for tag in tags))

    def times(self, *, negative: bool) -> tuple[int, int]:
        """Milliseconds until an entry written now should be refreshed (0: never) and expires."""
        ttl_ms = self.negative_ms if negative else self.ttl_ms
        spread = uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - no secret
        fresh = max(1, round(ttl_ms * spread))
        if negative or not (self.grace_ms or self.beta):
            return 0, fresh
        return fresh, fresh + round(self.grace_ms)

    @cached_property
    def plain(self) -> bytes:
        """What a value without tags begins with that is not to be refreshed before it ends."""
        return head(self.fingerprint, negative=False, tagged=False) + bytes(6)

    @property
    def tag_ms(self) -> int:
        """Milliseconds that a tag must live to outlive what is stored under it."""
        longest = max(self.ttl_ms, self.negative_ms) * (1 + self.jitter) + self.grace_ms
        return round(longest) + self.lease_ms + _TAG_SLACK_MS


class Subject(NamedTuple):
    """One entry as the scripts know it.

    Attributes:
        key: the application's key, as text.
        entry: the entry's key.
        tags: the keys of its tags.
    """

    key: str
    entry: str
    tags: tuple[str, ...]

    @property
    def ticket(self) -> str:
        """The key of its fill ticket."""
        return cache_ticket(self.entry)

    @property
    def channel(self) -> str:
        """Where those are woken who wait for a fill."""
        return cache_channel(self.entry)
