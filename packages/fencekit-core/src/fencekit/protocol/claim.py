"""The nouns of `idempotency`: what begins, what stands, and what is known of a record."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from fencekit.keys import Names
from fencekit.protocol.memo import Memo
from fencekit.protocol.token import FenceToken

__all__ = [
    "ANY_ATTEMPT",
    "NO_ATTEMPT",
    "Announcement",
    "BeginOutcome",
    "Begun",
    "RecordState",
    "RecordStatus",
    "Standing",
    "Terms",
]

# Whose running attempt a begin may take over once its lease is over: anybody's or nobody's.
ANY_ATTEMPT: Final = "any"
NO_ATTEMPT: Final = "none"

# LATE_MS of include/claim.lua: a record whose begin left a copy behind lives at least this long.
_LATE_MS: Final = 120_000


class BeginOutcome(Enum):
    """What a begin was answered."""

    BEGUN = "begun"
    RECLAIMED = "reclaimed"
    IN_PROGRESS = "in_progress"
    ALREADY_DONE = "already_done"
    FAILED = "failed"
    EXHAUSTED = "exhausted"
    MISMATCH = "mismatch"

    @property
    def started(self) -> bool:
        """Whether the caller is to do the work."""
        return self is BeginOutcome.BEGUN or self is BeginOutcome.RECLAIMED


class RecordState(str, Enum):
    """The states of a record."""

    RUNNING = "running"
    RETRYABLE = "retryable"
    DONE = "done"
    FAILED = "failed"
    EXHAUSTED = "exhausted"


class Terms:
    """Who begins which key, and on what terms.

    Attributes:
        names: the keys of the record.
        owner_id: who.
        lease_ms: how long an attempt is protected without a renewal, milliseconds.
        ttl_ms: how long the record lives at least, and the memo is kept, milliseconds.
        fingerprint: digest of the payload; empty: not compared.
        max_attempts: attempts allowed in all; 0: no limit.
        reclaim: whose attempt may be taken over: `ANY_ATTEMPT`, `NO_ATTEMPT`, or the one seen.
        task_id: the message that carries the work; may be empty.
    """

    __slots__ = (
        "fingerprint",
        "lease_ms",
        "max_attempts",
        "names",
        "owner_id",
        "reclaim",
        "task_id",
        "ttl_ms",
    )

    def __init__(
        self,
        names: Names,
        owner_id: str,
        *,
        lease_ms: int,
        ttl_ms: int,
        fingerprint: str = "",
        max_attempts: int = 0,
        reclaim: str = ANY_ATTEMPT,
        task_id: str = "",
    ) -> None:
        self.names = names
        self.owner_id = owner_id
        self.lease_ms = lease_ms
        self.ttl_ms = ttl_ms
        self.fingerprint = fingerprint
        self.max_attempts = max_attempts
        self.reclaim = reclaim
        self.task_id = task_id

    def reclaiming(self, attempt: str) -> Terms:
        """The same terms, where only this one attempt may be taken over."""
        return Terms(
            self.names,
            self.owner_id,
            lease_ms=self.lease_ms,
            ttl_ms=self.ttl_ms,
            fingerprint=self.fingerprint,
            max_attempts=self.max_attempts,
            reclaim=attempt,
            task_id=self.task_id,
        )


@dataclass(frozen=True)
class Announcement:
    """What is told together with the end of an attempt, in the same step as it is recorded.

    Attributes:
        key: set to the text, on the server and in the database of the record, which is no cluster;
            also the channel where the text is told.
        text: what is announced.
        ms: how long it can be read, milliseconds; 0: for ever.
        published: what is noted in the record once it is announced; may be empty.
        spared: what stands at the key and has this in it is left alone, and nothing is announced;
            empty: whatever stands there.
    """

    key: str
    text: str | bytes
    ms: int
    published: bytes = b""
    spared: bytes = b""


class Begun:
    """An attempt that began here.

    Attributes:
        terms: on what terms.
        attempt: its id.
        outcome: BEGUN or RECLAIMED.
        token: the fencing token minted for it.
        number: which attempt at its key it is, counted from 1.
        lease_ms: its lease, milliseconds: the terms', or the one it was last renewed with.
        confirmed_at: monotonic seconds of the send that was confirmed last.
        deadline: monotonic seconds until which nobody else can have begun.
        resent: the begin was sent more than once, so a copy may still arrive.
        told: its end was told to hooks, so that a repeated one is not.
        announced: whether the announcement that was to go with its end did: True, or False where
            the server refused it; None: there was none, something was spared, or it is not known.
    """

    __slots__ = (
        "announced",
        "attempt",
        "confirmed_at",
        "deadline",
        "lease_ms",
        "number",
        "outcome",
        "resent",
        "terms",
        "token",
        "told",
    )

    def __init__(
        self,
        terms: Terms,
        attempt: str,
        outcome: BeginOutcome,
        *,
        token: FenceToken,
        number: int,
        sent_at: float,
        resent: bool,
    ) -> None:
        self.terms = terms
        self.attempt = attempt
        self.outcome = outcome
        self.token = token
        self.number = number
        self.lease_ms = terms.lease_ms
        self.confirmed_at = sent_at
        self.deadline = sent_at + terms.lease_ms / 1000
        self.resent = resent
        self.told = False
        self.announced: bool | None = None

    def renewed(self, sent_at: float, lease_ms: int) -> None:
        """Take note of a renewal that was confirmed."""
        self.lease_ms = lease_ms
        self.confirmed_at = sent_at
        self.deadline = max(self.deadline, sent_at + lease_ms / 1000)

    def kept_ms(self, ttl_ms: int | None = None) -> int:
        """How long the record must live after the attempt has ended, milliseconds."""
        ttl_ms = self.terms.ttl_ms if ttl_ms is None else ttl_ms
        return max(ttl_ms, _LATE_MS) if self.resent else ttl_ms


class Standing:
    """How a record stands that did not let an attempt begin.

    Attributes:
        outcome: neither BEGUN nor RECLAIMED.
        retry_after_ms: IN_PROGRESS: milliseconds left of the lease, 0 when it is over but was not
            to be reclaimed.
        owner_id: IN_PROGRESS: who runs it.
        attempt: IN_PROGRESS: the attempt that runs, for a compare-and-set.
        memo: ALREADY_DONE: what is kept of the result.
        error: FAILED, EXHAUSTED: what is kept of the last error.
        attempts: FAILED, EXHAUSTED: how many were begun.
        published: ALREADY_DONE: what was published with the memo.
        task_id: IN_PROGRESS, ALREADY_DONE: the message that carries or carried the work.
    """

    __slots__ = (
        "attempt",
        "attempts",
        "error",
        "memo",
        "outcome",
        "owner_id",
        "published",
        "retry_after_ms",
        "task_id",
    )

    def __init__(
        self,
        outcome: BeginOutcome,
        *,
        retry_after_ms: int = 0,
        owner_id: str = "",
        attempt: str = "",
        memo: Memo | None = None,
        error: str = "",
        attempts: int = 0,
        published: bytes = b"",
        task_id: str = "",
    ) -> None:
        self.outcome = outcome
        self.retry_after_ms = retry_after_ms
        self.owner_id = owner_id
        self.attempt = attempt
        self.memo = memo
        self.error = error
        self.attempts = attempts
        self.published = published
        self.task_id = task_id


@dataclass(frozen=True)
class RecordStatus:
    """What the server knows of a key.

    Attributes:
        key: the idempotency key.
        state: running, retryable, done, failed or exhausted.
        owner_id: who runs it, or ran it last.
        attempts: attempts that were begun and not given back.
        lease_ms: milliseconds left of the lease; 0 unless it is running.
        fence: the highest token on record.
        encoding: how the result is stored, or the marker in its place; None unless it is done.
        error: what is kept of the last error, or None.
        task_id: the message that carries or carried the work; may be empty.
        published: what was published with the memo; may be empty.
        expires_ms: milliseconds until the record is forgotten.
    """

    key: str
    state: RecordState
    owner_id: str
    attempts: int
    lease_ms: int
    fence: FenceToken
    encoding: str | None
    error: str | None
    task_id: str
    published: bytes
    expires_ms: int
