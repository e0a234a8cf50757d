"""Finding entries by what their keys begin with: the one thing here that looks at every key."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fencekit.cache.policy import Policy, Subject
from fencekit.cache.protocol import invalidate, together
from fencekit.keys import cache_entry, cache_ticket
from fencekit.protocol.operation import Flow, Operation, Reply, Routes, perform
from fencekit.protocol.script import Script

__all__ = ["Prefix", "delete", "find"]

SCAN: Final = Script.load("fencekit.cache", "keys_scan")
UNLINK: Final = Script.command("UNLINK", read_only=False)

# Keys looked at in one step: a server that is asked for more keeps others waiting.
_COUNT = 1000
_GLOB = re.compile(r"[*?\[\]\\^-]")


@dataclass(frozen=True)
class Prefix:
    """The literal beginning of keys.

    Attributes:
        policy: whose keys.
        text: what they begin with; empty: all.
        boundary: what must follow, unless the key ends there; empty: anything.
    """

    policy: Policy
    text: str
    boundary: str

    @property
    def stem(self) -> str:
        """What the entries' keys begin with."""
        return cache_entry(self.policy.prefix, self.policy.domain, self.text)

    @property
    def route(self) -> str:
        """What every key of the cache begins with."""
        return cache_entry(self.policy.prefix, self.policy.domain, "")

    def matches(self, entry: str) -> bool:
        """Whether an entry's key is meant."""
        if not entry.startswith(self.stem):
            return False
        if not self.boundary or not self.text:
            return True
        rest = entry[len(self.stem) :]
        boundary = cache_entry("", "", self.boundary)[2:]  # encoded as keys are
        return not rest or rest.startswith(boundary)

    def key_of(self, entry: str) -> str:
        """The application's key of an entry's key."""
        key = entry[len(self.route) :]
        return key.replace("%7B", "{").replace("%7D", "}").replace("%25", "%")

    def subject(self, entry: str) -> Subject:
        """An entry that was found by its key, without tags."""
        return Subject(self.key_of(entry), entry, ())


Visit = Callable[[list[str]], Flow[None]]


def find(prefix: Prefix, visit: Visit) -> Flow[None]:
    """Visit the keys of all entries, page by page, each once.

    Raises:
        StoreUnavailable, StoreRefused, OutcomeUnknown: not all could be found.
    """
    yield from _scan(prefix, _escaped(prefix.stem) + "*", lambda key: key, visit, hasty=True)


def delete(prefix: Prefix, *, hasty: bool) -> Flow[int]:
    """Delete all entries, and end all fills that are under way; returns how many entries.

    The fills first, in a pass of their own: one that ends between the two passes has stored its
    entry before the second began, so that it is found there. In one pass both could be missed.

    Raises:
        StoreUnavailable, StoreRefused, OutcomeUnknown: not all could be deleted.
    """
    deleted = 0

    def end_fills(entries: list[str]) -> Flow[None]:
        nonlocal deleted
        gone = yield from together(
            [invalidate(prefix.subject(entry), 0, hasty=hasty) for entry in entries]
        )
        deleted += sum(gone)

    def unlink(entries: list[str]) -> Flow[None]:
        nonlocal deleted
        operations = [_unlink(keys, hasty=hasty) for keys in groups(entries)]
        deleted += sum((yield from together(operations)))

    routes: list[str] = yield Routes(prefix.route)
    is_cluster = len(routes) > 1

    def groups(entries: list[str]) -> list[Sequence[str]]:
        return [(entry,) for entry in entries] if is_cluster else [entries]

    left, right = cache_ticket("\0").split("\0")
    tickets = _escaped(left + prefix.stem) + "*" + _escaped(right)
    entries = _escaped(prefix.stem) + "*"
    yield from _scan(
        prefix, tickets, lambda key: key[len(left) : -len(right)], end_fills, hasty=hasty
    )
    yield from _scan(prefix, entries, lambda key: key, unlink, hasty=hasty)
    return deleted


def _scan(
    prefix: Prefix,
    pattern: str,
    entry_of: Callable[[str], str],
    visit: Visit,
    *,
    hasty: bool,
) -> Flow[None]:
    known: set[str] = set()
    routes: list[str] = yield Routes(prefix.route)
    for route in routes:
        cursor = "0"
        while True:
            operation = Operation(SCAN, (route,), (cursor, pattern, _COUNT), _page, hasty=hasty)
            cursor, keys = yield from perform(operation)
            fresh: list[str] = []
            for key in keys:
                entry = entry_of(key)
                if entry not in known and prefix.matches(entry):
                    known.add(entry)
                    fresh.append(entry)
            if fresh:
                yield from visit(fresh)
            if cursor == "0":
                break


def _unlink(keys: Sequence[str], *, hasty: bool) -> Operation[int]:
    return Operation(UNLINK, tuple(keys), (), int, hasty=hasty)


def _escaped(literal: str) -> str:
    return _GLOB.sub(lambda found: "\\" + found[0], literal)


def _page(reply: Reply) -> tuple[str, list[str]]:
    cursor, keys = reply
    # A key that is no text is none of ours.
    texts = [text for key in keys if (text := key.decode(errors="replace")).encode() == key]
    return cursor.decode(), texts
