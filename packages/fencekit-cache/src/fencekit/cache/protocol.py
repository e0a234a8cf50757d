"""The cache's protocol: what is asked of the server, in which order, and what is made of it.

A miss takes a *ticket*. Only a live ticket may store, and whatever changes the entry meanwhile
removes the ticket with it, so that a value loaded before an invalidation can never be stored after
it. See docs/explanation/cache-guarantee for what that promises.

Where callers share one answer, each must know whether it is fresh enough for it: *as of* which
moment of this process it holds. Moments are numbers that only count up; an answer is good for
whoever began before the question was sent that it rests on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from random import random
from typing import Any, Final, NamedTuple

from fencekit.cache.entry import SEEN_BYTES, Entry, digest, head, parse, rest
from fencekit.cache.policy import Policy, Subject
from fencekit.errors import FenceKitError
from fencekit.keys import cache_tag
from fencekit.protocol.operation import (
    Answer,
    Flow,
    Now,
    Operation,
    Reply,
    Together,
    trace,
)
from fencekit.protocol.script import Script

__all__ = ["Clock", "Found", "look", "look_many", "moment", "write"]

GET: Final = Script.command("GET", read_only=True)
MGET: Final = Script.command("MGET", read_only=True)
DEL: Final = Script.command("DEL", read_only=False)
SET_ENTRY: Final = Script.load("fencekit.cache", "entry_set")
INVALIDATE: Final = Script.load("fencekit.cache", "entry_invalidate")
BEGIN: Final = Script.load("fencekit.cache", "fill_begin")
STORE: Final = Script.load("fencekit.cache", "fill_store")
ABANDON: Final = Script.load("fencekit.cache", "fill_abandon")
READ_TAG: Final = Script.load("fencekit.cache", "tag_read")
CLOCK: Final = Script.load("fencekit.cache", "clock_read")

# How long the offset of the server's clock is believed, seconds. Only refreshing depends on it.
_CLOCK_LASTS = 60.0
# Entries asked for with one command, so that the server is not kept from others.
_CHUNK = 500
# A moment of this process; see the module.
moment: Callable[[], int] = count(1).__next__


class Found(NamedTuple):
    """What was found under a key.

    Attributes:
        entry: the entry, or None: a miss.
        seen: the first bytes that were there, to be told to `begin`.
        as_of: the moment this holds of.
        age: "fresh"; "early" where it should be refreshed though fresh; or "stale".
        failed: the server could not be asked.
    """

    entry: Entry | None
    seen: bytes
    as_of: int
    age: str = "fresh"
    failed: bool = False


class Clock:
    """The server's clock, as an offset from this process's monotonic one."""

    def __init__(self) -> None:
        self._offset_ms = 0.0
        self._read_at: float | None = None

    def now_ms(self, route: str) -> Flow[float]:
        """Milliseconds since 1970 by the server's clock; asks it once in a while.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: it could not be asked.
        """
        now: float = yield Now()
        if self._read_at is None or now - self._read_at > _CLOCK_LASTS:
            operation = Operation(CLOCK, (route,), (), int, hasty=True)
            answer = yield from trace(operation)
            self._offset_ms = operation.parse(answer.reply) - answer.sent_at * 1000
            self._read_at = answer.sent_at
            now = yield Now()
        return now * 1000 + self._offset_ms


def look(subject: Subject, policy: Policy, clock: Clock) -> Flow[Found]:
    """Read an entry: one GET, and with tags one MGET in the same pipeline.

    Raises:
        StoreUnavailable, StoreRefused, OutcomeUnknown: it could not be read.
    """
    as_of = moment()
    get = Operation(GET, (subject.entry,), (), _as_is, hasty=True)
    if not subject.tags:
        answer: Answer = yield get
        return (yield from judge(subject, policy, clock, answer.reply, tags=b"", as_of=as_of))
    mget = Operation(MGET, subject.tags, (), _as_is, hasty=True)
    raw, nonces = yield from together([get, mget])
    tags = _digest_of(nonces)
    return (yield from judge(subject, policy, clock, raw, tags=tags, as_of=as_of))


def look_many(
    subjects: Sequence[Subject], policy: Policy, clock: Clock, *, is_cluster: bool
) -> Flow[list[Found]]:
    """Read many entries, in one pipeline for each node: MGET, or GETs on a cluster.

    Raises:
        StoreUnavailable, StoreRefused, OutcomeUnknown: one could not be read.
    """
    as_of = moment()
    tags = list(dict.fromkeys(tag for subject in subjects for tag in subject.tags))
    raws, nonces = yield from read_many(
        [subject.entry for subject in subjects], tags, is_cluster=is_cluster
    )
    known = dict(zip(tags, nonces, strict=True))
    found: list[Found] = []
    for subject, raw in zip(subjects, raws, strict=True):
        expected = _digest_of([known[tag] for tag in subject.tags])
        found.append((yield from judge(subject, policy, clock, raw, tags=expected, as_of=as_of)))
    return found


def read_many(
    entries: Sequence[str], tags: Sequence[str], *, is_cluster: bool
) -> Flow[tuple[list[bytes | None], list[bytes | None]]]:
    """Read what is stored under entries and tags, in one pipeline for each node.

    Raises:
        StoreUnavailable, StoreRefused, OutcomeUnknown: one could not be read.
    """
    reads: list[Operation[Any]] = []
    if is_cluster:
        reads += [Operation(GET, (entry,), (), _as_is, hasty=True) for entry in entries]
    else:
        reads += [Operation(MGET, keys, (), _as_is, hasty=True) for keys in _chunks(entries)]
    first_of_tags = len(reads)
    reads += [Operation(MGET, keys, (), _as_is, hasty=True) for keys in _chunks(tags)]
    replies = yield from together(reads)
    raws = replies[:first_of_tags]
    if not is_cluster:
        raws = [raw for reply in raws for raw in reply]
    return raws, [nonce for reply in replies[first_of_tags:] for nonce in reply]


def judge(
    subject: Subject,
    policy: Policy,
    clock: Clock,
    raw: bytes | None,
    *,
    tags: bytes | None,
    as_of: int,
) -> Flow[Found]:
    """Make of an entry's bytes what is known of it; may ask the server's clock."""
    entry = None if tags is None else parse(raw, policy.fingerprint, tags)
    found = Found(entry, b"" if raw is None else raw[:SEEN_BYTES], as_of)
    if entry is None or not entry.soft_ms:
        return found
    return (yield from _aged(found, subject, policy, clock))


def _aged(found: Found, subject: Subject, policy: Policy, clock: Clock) -> Flow[Found]:
    now_ms = yield from clock.now_ms(subject.entry)
    if found.entry is None:
        return found
    return found._replace(age=_age(found.entry, now_ms, policy.beta))


def _age(entry: Entry, now_ms: float, beta: float) -> str:
    """Whether an entry should be refreshed, with a probability that rises towards its end.

    Source: Vattani, Chierichetti, Lowenstein, "Optimal Probabilistic Cache Stampede Prevention",
    Proceedings of the VLDB Endowment 8(8), 2015: XFetch.
    """
    if now_ms >= entry.soft_ms:
        return "stale"
    if beta and entry.cost:
        lead_ms = entry.cost * 1000 * beta * -math.log(1 - random())  # noqa: S311 - no secret
        if now_ms + lead_ms >= entry.soft_ms:
            return "early"
    return "fresh"


def read_tags(subject: Subject, policy: Policy) -> Flow[bytes]:
    """Read the nonces to store under, making those that are missing; returns their digest.

    Raises:
        StoreUnavailable, StoreRefused, OutcomeUnknown: they could not be read.
    """
    return digest((yield from read_nonces(subject.tags, policy)))


def read_nonces(tags: Sequence[str], policy: Policy) -> Flow[list[bytes]]:
    """Read the nonces of tags, making those that are missing.

    Raises:
        StoreUnavailable, StoreRefused, OutcomeUnknown: they could not be read.
    """
    if not tags:
        return []
    return (
        yield from together(
            [
                Operation(READ_TAG, (tag,), (policy.tag_ms, _random()), _as_is, hasty=True)
                for tag in tags
            ]
        )
    )


def write(
    subject: Subject, policy: Policy, body: bytes, tags: bytes, *, patient: bool = False
) -> Operation[bool]:
    """Write an entry whatever is there, and end a fill that is under way."""
    soft_ms, px_ms = policy.times(negative=False)
    return Operation(
        SET_ENTRY,
        (subject.entry, subject.ticket),
        (
            head(policy.fingerprint, negative=False, tagged=bool(tags)),
            rest(0.0, tags, body),
            soft_ms,
            px_ms,
            subject.channel,
        ),
        _is_one,
        hasty=not patient,
    )


def invalidate(subject: Subject, hold_ms: int, *, hasty: bool) -> Operation[bool]:
    """Remove an entry and end a fill that is under way; True when there was one."""
    return Operation(
        INVALIDATE,
        (subject.entry, subject.ticket),
        (hold_ms, subject.channel),
        _is_one,
        hasty=hasty,
    )


def bump(policy: Policy, tags: Sequence[str]) -> Operation[int]:
    """Make everything stored under tags a miss: a missing nonce is one, and a new one differs."""
    return Operation(
        DEL, tuple(cache_tag(policy.prefix, policy.domain, tag) for tag in tags), (), int
    )


class Ticket(NamedTuple):
    """The answer to `begin`.

    Attributes:
        state: "taken"; "lost" to another load; "changed", the entry is not what was seen; or
            "held", load but do not store.
        held: the ticket, where taken.
        left_ms: milliseconds until the other's ticket expires, where lost.
    """

    state: str
    held: bytes = b""
    left_ms: int = 0


def begin(subject: Subject, policy: Policy, attempt: bytes, seen: bytes) -> Operation[Ticket]:
    """Take the ticket to fill an entry in."""
    return Operation(
        BEGIN,
        (subject.entry, subject.ticket),
        (attempt, seen, policy.lease_ms),
        _ticket,
        hasty=True,
    )


def store(
    subject: Subject,
    policy: Policy,
    held: bytes,
    body: bytes | None,
    *,
    cost: float,
    tags: bytes,
) -> Operation[bool]:
    """Store what was loaded, None being negative; False when the ticket is not live any more."""
    soft_ms, px_ms = policy.times(negative=body is None)
    return Operation(
        STORE,
        (subject.entry, subject.ticket),
        (
            held,
            head(policy.fingerprint, negative=body is None, tagged=bool(tags)),
            rest(cost, tags, body or b""),
            soft_ms,
            px_ms,
            subject.channel,
        ),
        _is_one,
        hasty=True,
    )


def abandon(subject: Subject, attempt: bytes) -> Operation[bool]:
    """Give a ticket back; False when it was not this attempt's any more.

    ``attempt`` may be a whole ticket: then no other of the same attempt is given back.
    """
    return Operation(
        ABANDON, (subject.ticket,), (attempt, subject.channel), _is_one, patient=False, hasty=True
    )


def new_attempt() -> bytes:
    """Name an attempt to fill: 128 random bits."""
    return _random()


def together(operations: Sequence[Operation[Any]]) -> Flow[list[Any]]:
    """Perform operations in one pipeline for each node and return all outcomes.

    Raises:
        StoreUnavailable, StoreRefused, OutcomeUnknown: the first error of one.
    """
    answers: list[Answer | FenceKitError] = yield Together(operations)
    outcomes: list[Any] = []
    for operation, answer in zip(operations, answers, strict=True):
        if isinstance(answer, FenceKitError):
            raise answer
        outcomes.append(operation.parse(answer.reply))
    return outcomes


def _random() -> bytes:
    return os.urandom(16).hex().encode()


def _chunks(keys: Sequence[str]) -> Iterable[tuple[str, ...]]:
    for start in range(0, len(keys), _CHUNK):
        yield tuple(keys[start : start + _CHUNK])


def _digest_of(nonces: Sequence[bytes | None]) -> bytes | None:
    """The digest, or None where a tag is missing: nothing is stored under that."""
    if not nonces:
        return b""
    present = [nonce for nonce in nonces if nonce is not None]
    return digest(present) if len(present) == len(nonces) else None


def _as_is(reply: Reply) -> Reply:
    return reply


def _is_one(reply: Reply) -> bool:
    return bool(reply[0] == 1)


_STATES = {0: "lost", 2: "changed", 3: "held"}


def _ticket(reply: Reply) -> Ticket:
    if reply[0] == 1:
        return Ticket("taken", held=reply[1])
    return Ticket(_STATES[reply[0]], left_ms=reply[1] if reply[0] == 0 else 0)
