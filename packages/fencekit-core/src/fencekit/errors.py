"""Every exception that fencekit raises.

The tree::

    FenceKitError
    ├── StoreError                        the server could not do what was asked
    │   ├── StoreUnavailable              it could not be reached; nothing was done
    │   ├── StoreRefused                  it answered with an error; nothing was done
    │   └── OutcomeUnknown                a command left and no answer came back
    ├── LockNotAcquired                   somebody else holds it
    ├── OwnershipLost                     this worker has been replaced, or may have been
    │   ├── LockNotOwned                  the lease was lost before this call
    │   ├── FencedOutError                a newer token has been seen
    │   └── IdempotencyNotOwned           (IdempotencyError) completing what another attempt owns
    ├── ReplicationError                  too few replicas confirmed; the lock was given back
    ├── HandleForked (RuntimeError)       a handle from before a fork
    ├── IdempotencyError
    │   ├── IdempotencyInProgress         another attempt is running
    │   ├── IdempotencyExhausted          every attempt is used up
    │   ├── IdempotencyFailed             the work failed for good; no more attempts
    │   ├── IdempotencyPayloadMismatch    one key, two payloads
    │   └── IdempotencyResultMissing      done, but its result was not kept
    ├── CanonicalizeError (ValueError)    a payload without one canonical form
    └── AlreadyAcquiredError              RedisLock: the key is taken

Facts are attributes; the message is built from them. "Not acquired" may be a value or an
exception, as the method says; losing what was held is always an exception; an outcome that
cannot be known has an exception of its own.
"""

from __future__ import annotations

__all__ = [
    "AlreadyAcquiredError",
    "CanonicalizeError",
    "FenceKitError",
    "FencedOutError",
    "HandleForked",
    "IdempotencyError",
    "IdempotencyExhausted",
    "IdempotencyFailed",
    "IdempotencyInProgress",
    "IdempotencyNotOwned",
    "IdempotencyPayloadMismatch",
    "IdempotencyResultMissing",
    "LockNotAcquired",
    "LockNotOwned",
    "OutcomeUnknown",
    "OwnershipLost",
    "ReplicationError",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
]


class FenceKitError(Exception):
    """The base of every error of this library."""

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes with all facts (Celery and multiprocessing pickle errors)."""
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(
    kind: type[FenceKitError], args: tuple[object, ...], facts: dict[str, object]
) -> FenceKitError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class StoreError(FenceKitError):
    """The server could not do what was asked. The redis error is its ``__cause__``.

    Attributes:
        sends: how many copies of the command had left when it was given up.
    """

    sends: int = 0


class StoreUnavailable(StoreError):
    """The server could not be reached, and nothing was sent: nothing was done."""


class StoreRefused(StoreError):
    """The server answered with an error instead of doing the work.

    Attributes:
        code: the first word of the server's answer, e.g. ``OOM``, ``NOPERM``, ``READONLY``.
    """

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"the server refused: {detail}{_CURES.get(code, '')}")


_CURES = {
    "OOM": " (raise maxmemory or free memory; locks cannot be taken until then)",
    "NOPERM": " (the ACL user lacks a command, key or channel: see the documented smallest ACL)",
    "READONLY": " (this server is a replica: connect to the primary)",
    "MISCONF": " (the server cannot persist and refuses writes: look at its disk)",
    "WRONGTYPE": " (a key that is in use here holds something else: choose another key, or another "
    "prefix where it is one of ours)",
    "NOAUTH": " (the client has no or the wrong password)",
}


class OutcomeUnknown(StoreError):
    """A command was sent and no answer came back, not even to its copies.

    It may or may not have been carried out. Never read this as "not acquired".

    Attributes:
        sends: how many copies were sent.
    """

    def __init__(self, detail: str, *, sends: int = 1) -> None:
        self.sends = sends
        super().__init__(detail)


class LockNotAcquired(FenceKitError):
    """Somebody else holds the lock.

    Attributes:
        resource: the lock's name.
        retry_after_ms: milliseconds until the holder's lease is over, unless it is renewed.
        holder: the holder's owner id.
    """

    def __init__(self, resource: str, *, retry_after_ms: int, holder: str) -> None:
        self.resource = resource
        self.retry_after_ms = retry_after_ms
        self.holder = holder
        super().__init__(
            f"{resource!r} is held by {holder}; its lease ends in {retry_after_ms} ms, "
            "unless it is renewed"
        )


class OwnershipLost(FenceKitError):
    """This worker has been replaced, or may have been: whatever it was doing is not its to finish.

    The common base for a handler that only wants to stop.
    """


class LockNotOwned(OwnershipLost):
    """The lease was lost before this call: another holder may have run, or may be running.

    Attributes:
        resource: the lock's name.
        token: the fencing token of the lost lease, or None for a lock without one.
    """

    def __init__(self, resource: str, *, token: int | None = None) -> None:
        self.resource = resource
        self.token = token
        held = "held" if token is None else f"held with token {int(token)}"
        super().__init__(
            f"{resource!r} is no longer {held}: the lease ended, was forced open, or its key was "
            "lost"
        )


class ReplicationError(FenceKitError):
    """Too few replicas confirmed the grant in time, so the lock was given back.

    Attributes:
        resource: the lock's name.
        wanted: ``min_replicas``.
        confirmed: how many replicas answered in time.
    """

    def __init__(self, resource: str, *, wanted: int, confirmed: int) -> None:
        self.resource = resource
        self.wanted = wanted
        self.confirmed = confirmed
        super().__init__(
            f"{resource!r}: {confirmed} of {wanted} replicas confirmed in time; the lock was "
            "given back"
        )


class HandleForked(FenceKitError, RuntimeError):
    """A handle from before a fork was used in the child; the parent still holds it.

    Attributes:
        resource: the lock's name.
    """

    def __init__(self, resource: str) -> None:
        self.resource = resource
        super().__init__(
            f"the handle of {resource!r} was made before a fork and belongs to the parent process; "
            "acquire the lock again in this process"
        )


class FencedOutError(OwnershipLost):
    """A newer token has been seen: this writer has been replaced, and nothing was written.

    Attributes:
        resource: the name that the token belongs to.
        token: the token shown.
        current: the highest token known, or None where no record exists.
    """

    def __init__(self, resource: str, *, token: int, current: int | None) -> None:
        self.resource = resource
        self.token = token
        self.current = current
        known = "no grant is on record" if current is None else f"{current} is the current one"
        super().__init__(f"token {int(token)} of {resource!r} was refused: {known}")


class IdempotencyError(FenceKitError):
    """The base of the errors of the idempotency guard.

    Attributes:
        key: the idempotency key.
    """

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


class IdempotencyInProgress(IdempotencyError):
    """Another attempt is running this key now.

    Attributes:
        retry_after_ms: milliseconds until its lease is over, unless renewed.
        owner_id: who runs it.
    """

    def __init__(self, key: str, *, retry_after_ms: int, owner_id: str) -> None:
        self.retry_after_ms = retry_after_ms
        self.owner_id = owner_id
        super().__init__(
            key, f"{key!r} is being run by {owner_id}; its lease ends in {retry_after_ms} ms"
        )


class IdempotencyExhausted(IdempotencyError):
    """Every attempt that ``max_attempts`` allows was begun, and none completed.

    Attributes:
        attempts: how many attempts were begun.
    """

    def __init__(self, key: str, *, attempts: int) -> None:
        self.attempts = attempts
        super().__init__(key, f"{key!r} used up its {attempts} attempts without completing")


class IdempotencyFailed(IdempotencyError):
    """The work failed for good (``terminal``) and is not tried again.

    Attributes:
        error: the stored error, its class name and at most 500 characters.
    """

    def __init__(self, key: str, *, error: str) -> None:
        self.error = error
        # The stored error stays out of the message: messages end up in logs.
        super().__init__(key, f"{key!r} failed for good; see .error, or clear the key to run again")


class IdempotencyPayloadMismatch(IdempotencyError):
    """One key was used with two payloads; the work was neither run nor replayed."""

    def __init__(self, key: str) -> None:
        super().__init__(
            key, f"{key!r} was used before with another payload; use a key for each payload"
        )


class IdempotencyResultMissing(IdempotencyError):
    """The work is done, but no result is kept for it: the work is never repeated for its memo."""

    def __init__(self, key: str, *, reason: str) -> None:
        self.reason = reason
        super().__init__(key, f"{key!r} has no stored result: {reason}")


class IdempotencyNotOwned(IdempotencyError, OwnershipLost):
    """This attempt does not own the record: it was reclaimed, cleared, or never begun here."""

    def __init__(self, key: str, *, reason: str = "another attempt owns it") -> None:
        self.reason = reason
        super().__init__(key, f"{key!r} is not owned by this attempt: {reason}")


class CanonicalizeError(FenceKitError, ValueError):
    """A payload has no canonical form.

    Attributes:
        path: where, e.g. ``$.items[3].price``.
        reason: why.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class AlreadyAcquiredError(FenceKitError):
    """The key of a `RedisLock` is held by somebody else.

    Attributes:
        key: the key, as given.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"{key!r} is already acquired")
