"""The FIFO lock's commands: what each sends, in which order, and how its reply is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fencekit.keys import Names
from fencekit.protocol.lock import Claimant
from fencekit.protocol.operation import Operation, Reply
from fencekit.protocol.script import Script

__all__ = [
    "ACQUIRE",
    "BEAT",
    "LOOK",
    "MISSING",
    "RELEASE",
    "RENEW",
    "REVIVED",
    "STATS",
    "WITHDRAW",
    "Holder",
    "Terms",
    "Ticket",
    "acquire_operation",
    "beat_operation",
    "look_operation",
    "release_operation",
    "renew_operation",
    "stats_operation",
    "terms",
    "turn",
    "withdraw_operation",
]

LOOK: Final = Script.load("fencekit.fifo", "fifo_look")
ACQUIRE: Final = Script.load("fencekit.fifo", "fifo_acquire")
RELEASE: Final = Script.load("fencekit.fifo", "fifo_release")
WITHDRAW: Final = Script.load("fencekit.fifo", "fifo_withdraw")
RENEW: Final = Script.load("fencekit.fifo", "fifo_renew")
BEAT: Final = Script.load("fencekit.fifo", "fifo_beat")
STATS: Final = Script.load("fencekit.fifo", "fifo_stats")

# What a beat is told: the process lost its standing, or its oldest waiter its place.
REVIVED: Final = 2
MISSING: Final = 1


@dataclass(frozen=True, eq=False)
class Terms:
    """What all waiters of locks with one name and equal settings have in common.

    Made by `terms`, so that equal terms are one object, and cheap to look up by.

    Attributes:
        names: the keys of the lock.
        lease_ms: the lease, milliseconds.
        offer_ms: how long an offer stands, milliseconds.
        alive_ms: how long a process counts as alive after its last word, milliseconds.
        beat_ms: the longest pause between two beats, milliseconds.
        retention_ms: how long the fence record outlives its last use, milliseconds.
        solo: one server, where PUBLISH counts every listener; False on a cluster.
    """

    names: Names
    lease_ms: int
    offer_ms: int
    alive_ms: int
    beat_ms: int
    retention_ms: int
    solo: bool

    @property
    def offer(self) -> float:
        """How long an offer stands, seconds."""
        return self.offer_ms / 1000


@lru_cache(maxsize=4096)
def terms(
    names: Names,
    *,
    lease_ms: int,
    offer_ms: int,
    alive_ms: int,
    beat_ms: int,
    retention_ms: int,
    solo: bool,
) -> Terms:
    """Return the terms; the same object for the same arguments."""
    return Terms(names, lease_ms, offer_ms, alive_ms, beat_ms, retention_ms, solo)


@lru_cache(maxsize=4096)
def turn(terms: Terms, channel: str) -> str:
    """What a process says of itself in every command that may advance the queue."""
    solo, names = 1 if terms.solo else 0, terms.names
    return (
        f"{channel} {terms.offer_ms} {terms.lease_ms} {terms.alive_ms} {solo} "
        f"{names.wake} {names.name}"
    )


@dataclass(frozen=True)
class Ticket:
    """One waiter: who asks, in which process, on what terms.

    Attributes:
        terms: what it has in common with others.
        claimant: owner and attempt.
        channel: where its process is woken.
    """

    terms: Terms
    claimant: Claimant
    channel: str


@dataclass(slots=True)
class Holder:
    """Who holds a lock, as every reply of the queue says. Never changed once made.

    Attributes:
        owner_id: the holder; empty when the lock is free.
        attempt: which attempt of theirs.
        token: its fencing token.
        ttl_ms: milliseconds left of the lease or offer.
        now_us: the server's time, microseconds.
        own: it was granted to a waiter of the process that asked, with the whole lease.
    """

    owner_id: str
    attempt: str
    token: int
    ttl_ms: int
    now_us: int
    own: bool = False

    @classmethod
    def read(cls, pttl: int, value: bytes, now_us: bytes, own: int = 0) -> Holder:
        """Read the end of a reply."""
        owner, _, rest = value.decode(errors="replace").partition(":")
        attempt, _, token = rest.rpartition(":")
        number = int(token) if token.isdigit() else 0
        return cls(owner, attempt, number, max(int(pttl), 0), int(now_us), own == 1)


def look_operation(ticket: Ticket) -> Operation[Reply]:
    """One try at a lock that is free and has no queue; it takes no place."""
    claimant, names = ticket.claimant, ticket.terms.names
    return Operation(
        LOOK,
        (names.lock, names.fence, names.gone, names.queue),
        (claimant.owner_id, claimant.attempt, claimant.ttl_ms, claimant.retention_ms),
        _as_is,
    )


def acquire_operation(ticket: Ticket, *, queues: bool = True) -> Operation[Reply]:
    """One try at the lock; with ``queues`` it takes, or keeps, a place if it is not granted."""
    claimant, names = ticket.claimant, ticket.terms.names
    return Operation(
        ACQUIRE,
        (names.lock, names.fence, names.gone, names.queue, names.tickets, names.members),
        (
            claimant.owner_id,
            claimant.attempt,
            claimant.ttl_ms,
            claimant.retention_ms,
            turn(ticket.terms, ticket.channel),
            1 if queues else 0,
        ),
        _as_is,
    )


def withdraw_operation(ticket: Ticket, *, bury: bool) -> Operation[Reply]:
    """Give up the place, the offer or the lock; with ``bury`` late copies are refused."""
    claimant, names = ticket.claimant, ticket.terms.names
    return Operation(
        WITHDRAW,
        (names.lock, names.fence, names.gone, names.queue, names.tickets, names.members),
        (
            claimant.owner_id,
            claimant.attempt,
            claimant.retention_ms,
            turn(ticket.terms, ticket.channel),
            1 if bury else 0,
        ),
        _as_is,
        patient=False,
    )


def renew_operation(ticket: Ticket, token: int) -> Operation[int | None]:
    """Take up an offer or extend the lease; the outcome is the milliseconds left, None if lost."""
    claimant, names = ticket.claimant, ticket.terms.names
    return Operation(
        RENEW,
        (names.lock, names.fence, names.queue, names.tickets, names.members),
        (
            claimant.owner_id,
            claimant.attempt,
            token.real,
            claimant.ttl_ms,
            claimant.retention_ms,
        ),
        _left,
    )


def release_operation(ticket: Ticket, token: int, *, bury: bool) -> Operation[Reply]:
    """Give the lock back; with ``bury`` late copies of the acquire are refused."""
    claimant, names = ticket.claimant, ticket.terms.names
    return Operation(
        RELEASE,
        (names.lock, names.fence, names.gone, names.queue, names.tickets, names.members),
        (
            claimant.owner_id,
            claimant.attempt,
            token.real,
            claimant.retention_ms,
            turn(ticket.terms, ticket.channel),
            1 if bury else 0,
        ),
        _as_is,
    )


def beat_operation(terms: Terms, channel: str, oldest: Claimant | None) -> Operation[Reply]:
    """Say that a process is alive, advance a free lock, and learn who holds it."""
    names = terms.names
    return Operation(
        BEAT,
        (names.lock, names.fence, names.queue, names.tickets, names.members),
        (
            oldest.owner_id if oldest is not None else "",
            oldest.attempt if oldest is not None else "",
            terms.retention_ms,
            turn(terms, channel),
        ),
        _as_is,
    )


def stats_operation(names: Names) -> Operation[Reply]:
    """Read who holds the lock and who waits for it."""
    return Operation(STATS, (names.lock, names.fence, names.queue), (), _as_is)


def _as_is(reply: Reply) -> Reply:
    return reply


def _left(reply: Reply) -> int | None:
    return int(reply[1]) if reply[0] == 1 else None
