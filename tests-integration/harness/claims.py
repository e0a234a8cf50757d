"""Drive the idempotency record's scripts by hand, whole or with one rule taken out."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from fencekit.keys import names
from fencekit.protocol.script import Script

if TYPE_CHECKING:
    from collections.abc import Callable

_Test = TypeVar("_Test", bound="Callable[..., None]")

__all__ = ["Record", "attempt", "holds_by", "without"]


def attempt(label: str) -> str:
    """Return an attempt id that a person can tell apart: the same for the same label."""
    return hashlib.md5(label.encode(), usedforsecurity=False).hexdigest()


def without(script: Script, rule: str, instead: str = "") -> Script:
    """Return the script with a part of its Lua replaced; the part must be there.

    Where the scripts are mutants (`hatch run mutate`) the rest of the test is skipped: that a part
    is not there any more, or not needed, shows nothing of what the script does.
    """
    if "FENCEKIT_MUTANT" in os.environ:
        pytest.skip("the script is changed already")
    assert rule.encode() in script.source, f"{script.name} has no {rule!r}"
    source = script.source.replace(rule.encode(), instead.encode())
    sha = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    return replace(script, source=source, sha=sha)


class Record:
    """One key's record, and the scripts that act on it.

    Attempts are named by labels; replies come back as text. `lapse` ends the lease by moving it
    into the past, so that no test has to sleep.
    """

    def __init__(
        self, client: Any, key: str = "job", changed: dict[str, Script] | None = None
    ) -> None:
        """Act on this key, with some of the scripts changed."""
        self.client = client
        self.names = names("fencekit", key)
        self._changed = changed or {}

    def without(self, script: str, rule: str, instead: str = "") -> Record:
        """Return a fresh record whose script of that name lacks a rule."""
        broken = without(Script.load("fencekit", script), rule, instead)
        return Record(self.client, f"{self.names.name}-broken", {**self._changed, script: broken})

    def begin(
        self,
        label: str,
        *,
        owner: str = "me",
        lease: int = 30_000,
        ttl: int = 60_000,
        fingerprint: str = "",
        max_attempts: int = 0,
        reclaim: str = "any",
        task_id: str = "",
    ) -> list[Any]:
        """Begin an attempt."""
        return self.call(
            "claim_begin",
            owner,
            attempt(label),
            lease,
            ttl,
            fingerprint,
            max_attempts,
            reclaim,
            task_id,
        )

    def complete(
        self,
        label: str,
        result: str | bytes = "1",
        *,
        owner: str = "me",
        ttl: int = 60_000,
        encoding: str = "json",
        published: str = "",
    ) -> list[Any]:
        """Complete an attempt."""
        return self.call("claim_complete", owner, attempt(label), ttl, encoding, result, published)

    def announce(
        self,
        label: str,
        text: str | bytes = "told",
        *,
        owner: str = "me",
        ttl: int = 60_000,
        published: str = "",
        notice_ms: int = 60_000,
        spared: str = "spared",
    ) -> list[Any]:
        """Complete an attempt with the result 1, and set the key "notice"."""
        told = (published, text, notice_ms, spared)
        script = self._script("claim_announce")
        return self._eval(
            script, (self.names.idem, "notice"), owner, attempt(label), ttl, "json", "1", *told
        )

    def fail(
        self,
        label: str,
        error: str = "Oops",
        *,
        owner: str = "me",
        ttl: int = 60_000,
        terminal: bool = False,
    ) -> list[Any]:
        """Fail an attempt."""
        return self.call("claim_fail", owner, attempt(label), ttl, error, int(terminal))

    def release(self, label: str, *, owner: str = "me", ttl: int = 60_000) -> list[Any]:
        """Give an attempt back."""
        return self.call("claim_release", owner, attempt(label), ttl)

    def withdraw(self, label: str, *, owner: str = "me") -> list[Any]:
        """Undo a begin."""
        return self.call("claim_withdraw", owner, attempt(label))

    def renew(
        self, label: str, *, owner: str = "me", lease: int = 30_000, ttl: int = 60_000
    ) -> list[Any]:
        """Extend a lease."""
        return self.call("claim_renew", owner, attempt(label), lease, ttl)

    def clear(self, last: int | None = None) -> list[Any]:
        """Forget what is recorded, as it was when its fence was this."""
        return self.call("claim_clear", self.last if last is None else last)

    def read(self) -> list[Any]:
        """Read the record."""
        return self.call("claim_read")

    def passes(self, token: int) -> bool:
        """Whether the gate lets a token of this record write."""
        reply = self.call("fence_check", token, "claim", 1000, 0, lock=True)
        return bool(reply[0] == 1)

    def call(self, name: str, *args: Any, lock: bool = False) -> list[Any]:
        """Run a script on this record."""
        keys = (self.names.idem, self.names.lock) if lock else (self.names.idem,)
        return self._eval(self._script(name), keys, *args)

    def _script(self, name: str) -> Script:
        return self._changed.get(name) or Script.load("fencekit", name)

    def _eval(self, script: Script, keys: tuple[str, ...], *args: Any) -> list[Any]:
        reply = self.client.eval(script.source, len(keys), *keys, *args)
        return [one.decode() if isinstance(one, bytes) else one for one in reply]

    @property
    def fields(self) -> dict[str, str]:
        """The hash as it is stored."""
        raw = self.client.hgetall(self.names.idem)
        return {field.decode(): value.decode(errors="replace") for field, value in raw.items()}

    @property
    def last(self) -> int:
        """The highest token on record."""
        return int(self.client.hget(self.names.idem, "last"))

    @property
    def state(self) -> str | None:
        """The state on record."""
        return self.fields.get("state")

    @property
    def pttl(self) -> int:
        """Milliseconds until the record is forgotten; -1: never, -2: there is none."""
        return int(self.client.pttl(self.names.idem))

    def lapse(self) -> None:
        """Let the lease be over."""
        self.client.hset(self.names.idem, "lease_until", "1")

    def drop(self) -> None:
        """Lose the record, as an eviction would."""
        self.client.delete(self.names.idem)


def holds_by(script: str, rule: str, instead: str = "") -> Callable[[_Test], _Test]:
    """Run a test twice: it passes as it stands, and fails when the script lacks that rule."""

    def decorate(test: _Test) -> _Test:
        @functools.wraps(test)
        def both(record: Record, **params: Any) -> None:
            test(record, **params)
            broken = record.without(script, rule, instead)
            with pytest.raises(AssertionError):
                test(broken, **params)

        return cast("_Test", both)

    return decorate
