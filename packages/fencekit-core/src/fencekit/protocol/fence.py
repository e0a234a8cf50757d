"""The gate's operations: a write that carries a fencing token is refused once a newer one is known.

Judging and writing happen in one script, so nothing can come between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from fencekit.keys import Names, names
from fencekit.protocol.operation import Arg, Operation, Reply
from fencekit.protocol.script import Script
from fencekit.protocol.token import FenceToken

__all__ = ["Passed", "Stale", "check", "current", "delete", "hset", "set_value"]

CHECK: Final = Script.load("fencekit", "fence_check")
SET: Final = Script.load("fencekit", "fence_set")
DELETE: Final = Script.load("fencekit", "fence_delete")
HSET: Final = Script.load("fencekit", "fence_hset")
CURRENT: Final = Script.load("fencekit", "fence_current")

Mode: TypeAlias = Literal["lock", "claim", "remote"]


@dataclass(frozen=True)
class Passed:
    """The token stands and the write was done.

    Attributes:
        count: keys deleted, by `delete`; else 0.
    """

    count: int = 0


@dataclass(frozen=True)
class Stale:
    """A newer token is known, or no record is: nothing was written.

    Attributes:
        current: the highest token known, or None.
    """

    current: int | None


Judgement: TypeAlias = Passed | Stale


def _judged(prefix: str, token: FenceToken, *, remote: bool) -> tuple[Names, str, Mode]:
    """The names of the token, the key of the record that judges it, and how it is judged."""
    own = names(prefix, token.resource)
    if token.record == "claim":
        return own, own.idem, "claim"
    return own, own.fence, "remote" if remote else "lock"


def _operation(
    script: Script,
    prefix: str,
    token: FenceToken,
    retention_ms: int,
    *extra: Arg,
    remote: bool,
    target: str | None = None,
) -> Operation[Judgement]:
    own, record, mode = _judged(prefix, token, remote=remote)
    keys = (record, own.lock) if target is None else (record, own.lock, target)
    return Operation(script, keys, (token.real, mode, retention_ms, *extra), _judgement)


def check(
    prefix: str, token: FenceToken, retention_ms: int, *, remote: bool, advance: bool
) -> Operation[Judgement]:
    """Judge a token without writing; with ``advance``, remember it."""
    return _operation(CHECK, prefix, token, retention_ms, int(advance), remote=remote)


def set_value(
    prefix: str,
    token: FenceToken,
    retention_ms: int,
    *,
    key: str,
    value: Arg,
    ttl_ms: int,
    remote: bool,
) -> Operation[Judgement]:
    """Set a key; ``ttl_ms`` is in milliseconds, 0 for never."""
    return _operation(SET, prefix, token, retention_ms, value, ttl_ms, remote=remote, target=key)


def delete(
    prefix: str, token: FenceToken, retention_ms: int, *, key: str, remote: bool
) -> Operation[Judgement]:
    """Delete a key."""
    return _operation(DELETE, prefix, token, retention_ms, remote=remote, target=key)


def hset(
    prefix: str,
    token: FenceToken,
    retention_ms: int,
    *,
    key: str,
    mapping: Mapping[str, Arg],
    remote: bool,
) -> Operation[Judgement]:
    """Set fields of a hash."""
    pairs: list[Arg] = [part for pair in mapping.items() for part in pair]
    return _operation(HSET, prefix, token, retention_ms, *pairs, remote=remote, target=key)


def current(prefix: str, resource: str, *, remote: bool) -> Operation[int | None]:
    """Read the highest token known for a lock's name."""
    own = names(prefix, resource)
    return Operation(CURRENT, (own.fence, own.lock), ("remote" if remote else "lock",), _maybe_int)


def _judgement(reply: Reply) -> Judgement:
    if reply[0] == 1:
        return Passed(reply[1] if len(reply) > 1 else 0)
    return Stale(_maybe_int(reply[1:]))


def _maybe_int(reply: Reply) -> int | None:
    return int(reply[0]) if reply and reply[0] is not None else None
