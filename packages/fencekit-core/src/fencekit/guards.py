"""What both colours of idempotency guard check, ask for, and make of the answers."""

from __future__ import annotations

import inspect
import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fencekit.canonical import canonicalize
from fencekit.claim_base import BaseClaim, End, MemoPolicy
from fencekit.durations import milliseconds
from fencekit.errors import (
    FenceKitError,
    IdempotencyExhausted,
    IdempotencyFailed,
    IdempotencyNotOwned,
    IdempotencyResultMissing,
)
from fencekit.hooks import (
    ClaimBegun,
    ClaimDone,
    ClaimLost,
    ClaimOutcome,
    FenceKitHooks,
    is_async,
    with_installed,
)
from fencekit.keys import check_name, check_owner_id, check_prefix, names, names_of_a_job, utf8
from fencekit.protocol import idempotency as protocol
from fencekit.protocol.claim import (
    ANY_ATTEMPT,
    NO_ATTEMPT,
    BeginOutcome,
    Begun,
    RecordState,
    Standing,
    Terms,
)
from fencekit.protocol.memo import NONE, Memo, decode, describe_error

if TYPE_CHECKING:
    from fencekit.protocol.operation import Flow, Operation

__all__ = ["OMITTED", "BaseGuard", "check_work", "fingerprint", "finished"]

# How many attempts of step-by-step calls one execution context remembers.
_REMEMBERED: Final = 256


C = TypeVar("C", bound=BaseClaim)


# A guard is asked with the same few durations again and again.
_known_ms = lru_cache(maxsize=256)(milliseconds)


def _ms(duration: timedelta, what: str) -> int:
    try:
        return _known_ms(duration, what)
    except TypeError:  # perhaps the cache's, about a list
        return milliseconds(duration, what)


class _Omitted:
    def __repr__(self) -> str:
        return "<omitted>"


OMITTED: Final = _Omitted()

# The attempts of step-by-step calls, by guard and key, with the process that began them. Never
# changed in place: a task inherits what its parent had begun, and shares nothing with its siblings.
_attempts: ContextVar[Mapping[tuple[int, str], tuple[Begun, int]]] = ContextVar(
    "fencekit_attempts", default=MappingProxyType({})
)
_serials = itertools.count(1)


class BaseGuard:
    """What both colours of guard check, ask for, and make of the answers."""

    def __init__(
        self,
        *,
        prefix: str,
        owner_id: str | None,
        begin_grace: timedelta,
        store_result: bool,
        max_result_bytes: int,
        hooks: FenceKitHooks | None,
    ) -> None:
        self.prefix = check_prefix(prefix)
        self._owner_id = None if owner_id is None else check_owner_id(owner_id)
        self._grace_ms = milliseconds(begin_grace, "begin_grace")
        if not isinstance(max_result_bytes, int) or isinstance(max_result_bytes, bool):
            msg = f"max_result_bytes must be an int, not {type(max_result_bytes).__name__}"
            raise TypeError(msg)
        if max_result_bytes < 0:
            msg = f"max_result_bytes must not be negative, and is {max_result_bytes}"
            raise ValueError(msg)
        self._hooks = with_installed(hooks)
        self._policy = MemoPolicy(
            store=bool(store_result), max_bytes=max_result_bytes, hooks=self._hooks
        )
        self._serial = next(_serials)

    @property
    def owner_id(self) -> str:
        """Who begins: as given, else the running thread or task, derived at each call."""
        raise NotImplementedError

    def _terms(
        self,
        key: str,
        *,
        ttl: timedelta,
        lease: timedelta,
        payload: Any,
        max_attempts: int | None,
        task_id: str = "",
    ) -> Terms:
        return Terms(
            names_of_a_job(self.prefix, key),
            self.owner_id,
            lease_ms=_ms(lease, "lease"),
            ttl_ms=_ms(ttl, "ttl"),
            fingerprint="" if payload is None else fingerprint(payload),
            max_attempts=0 if max_attempts is None else _check_max_attempts(max_attempts),
            reclaim=ANY_ATTEMPT,
            task_id=task_id if task_id == "" else _check_task_id(task_id),
        )

    def _many_terms(
        self,
        keys: Iterable[str],
        payloads: Sequence[Any] | None,
        *,
        ttl: timedelta,
        lease: timedelta,
        max_attempts: int | None,
    ) -> list[Terms]:
        if isinstance(keys, str):
            msg = "keys must be several, not one str"
            raise TypeError(msg)
        keys = list(keys)
        if payloads is None:
            payloads = [None] * len(keys)
        elif len(payloads) != len(keys):
            msg = f"{len(keys)} keys and {len(payloads)} payloads: there must be one for each"
            raise ValueError(msg)
        return [
            self._terms(key, ttl=ttl, lease=lease, payload=payload, max_attempts=max_attempts)
            for key, payload in zip(keys, payloads, strict=True)
        ]

    def _tell(self, key: str, found: Begun | Standing) -> None:
        hooks = self._hooks
        if hooks is None:
            return
        if isinstance(found, Begun) and hooks.on_begin is not None:
            hooks.fire(
                hooks.on_begin,
                ClaimBegun(
                    key=key,
                    attempt=found.number,
                    fence=int(found.token),
                    reclaimed=found.outcome is BeginOutcome.RECLAIMED,
                ),
            )
        if hooks.on_outcome is not None:
            hooks.fire(hooks.on_outcome, ClaimOutcome(key=key, outcome=found.outcome.value))

    @staticmethod
    def _completions(
        pairs: Iterable[tuple[C, Any]], kind: type[C]
    ) -> tuple[list[C], list[Flow[str | None]]]:
        """The claims to complete and what completes them; those that are complete stay out."""
        claims: list[C] = []
        flows: list[Flow[str | None]] = []
        for claim, result in pairs:
            if not isinstance(claim, kind):
                found = type(claim).__name__
                msg = f"expected pairs of a {kind.__name__} and its result, not of a {found}"
                raise TypeError(msg)
            flow = claim.completion(result)
            if flow is not None and claim not in claims:
                claims.append(claim)
                flows.append(flow)
        return claims, flows

    @staticmethod
    def _settle_completions(claims: Sequence[BaseClaim], outcomes: Sequence[Any]) -> None:
        """Tell each claim; then raise the first error."""
        first: FenceKitError | None = None
        for claim, outcome in zip(claims, outcomes, strict=True):
            try:
                claim.completed(outcome)
            except FenceKitError as error:
                first = first or error
        if first is not None:
            raise first

    @staticmethod
    def _releases(claims: Iterable[C]) -> dict[C, Operation[str | None]]:
        """What gives back the claims that began something; they are renewed no more."""
        releases = {}
        for claim in claims:
            if claim.started:
                with suppress(IdempotencyNotOwned):  # it was lost meanwhile
                    releases[claim] = claim._release()  # noqa: SLF001 - as the claim does by itself
        return releases

    @staticmethod
    def _settle_releases(claims: Iterable[BaseClaim], outcomes: Sequence[Any]) -> None:
        """Tell each claim that was given back; what else began ends with its lease."""
        for claim, outcome in zip(claims, outcomes, strict=True):
            if not isinstance(outcome, FenceKitError):
                with suppress(IdempotencyNotOwned):
                    claim.settle("released", outcome)

    # The step-by-step calls: the attempt is kept here, for the execution context that began it.

    def _step_terms(self, key: str, ttl: timedelta) -> Terms:
        """Protected by the grace, and taken over only where a lock says so."""
        return Terms(
            names(self.prefix, key),
            self.owner_id,
            lease_ms=self._grace_ms,
            ttl_ms=_ms(ttl, "ttl"),
            reclaim=NO_ATTEMPT,
        )

    def _step(self, key: str, found: Begun | Standing) -> BeginOutcome:
        if self._hooks is not None:
            self._tell(key, found)
        if isinstance(found, Begun):
            remembered = dict(_attempts.get())
            remembered.pop((self._serial, key), None)
            remembered[self._serial, key] = (found, os.getpid())
            if len(remembered) > _REMEMBERED:
                del remembered[next(iter(remembered))]
            _attempts.set(remembered)
        return found.outcome

    def _step_outcome(self, key: str, found: Begun | Standing) -> BeginOutcome:
        outcome = self._step(key, found)
        # Raised, because whoever tells only "done" and "in progress" from the rest would run.
        if isinstance(found, Standing):
            if outcome is BeginOutcome.FAILED:
                raise IdempotencyFailed(key, error=found.error)
            if outcome is BeginOutcome.EXHAUSTED:
                raise IdempotencyExhausted(key, attempts=found.attempts)
        return outcome

    def _stepped(self, key: str) -> Begun:
        """The attempt that this execution context began.

        Raises:
            IdempotencyNotOwned: it began none.
        """
        check_name(key, "the key")
        begun, pid = _attempts.get().get((self._serial, key), (None, 0))
        if begun is None:
            reason = "it was not begun by this guard in this thread or task"
            raise IdempotencyNotOwned(key, reason=reason)
        if pid != os.getpid():
            raise IdempotencyNotOwned(key, reason="it was begun before a fork, by the parent")
        return begun

    def _mark_done(self, key: str, result: Any, ttl: timedelta | None) -> Flow[str | None]:
        ttl_ms = None if ttl is None else milliseconds(ttl, "ttl")
        begun = self._stepped(key)
        memo = Memo(NONE, b"") if result is OMITTED else self._policy.memo(key, result)
        return protocol.complete(begun, memo, ttl_ms=ttl_ms)

    def _mark_failed(
        self, key: str, error: BaseException | str, ttl: timedelta | None, *, terminal: bool
    ) -> Operation[str | None]:
        ttl_ms = None if ttl is None else milliseconds(ttl, "ttl")
        begun = self._stepped(key)
        return protocol.fail(begun, describe_error(error), terminal=terminal, ttl_ms=ttl_ms)

    def _settle(self, key: str, how: End, lost: str | None) -> None:
        if self._hooks is not None:
            self._tell_ended(key, self._stepped(key), how, lost)
        if lost is not None:
            raise IdempotencyNotOwned(key, reason=lost)

    def _tell_ended(self, key: str, begun: Begun, how: End, lost: str | None) -> None:
        hooks = self._hooks
        if hooks is None or begun.told:  # an end may be repeated
            return
        begun.told = True
        fence, ran_ms = int(begun.token), (time.monotonic() - begun.confirmed_at) * 1000
        if lost is not None:
            if hooks.on_claim_lost is not None:
                hooks.fire(hooks.on_claim_lost, ClaimLost(key=key, fence=fence, ran_ms=ran_ms))
        elif hooks.on_done is not None:
            done = ClaimDone(key=key, fence=fence, ended=how, ran_ms=ran_ms)
            hooks.fire(hooks.on_done, done)

    def _check_pair(self, lock: Any, lock_resource: str, *, awaits: bool) -> None:
        check_name(lock_resource, "lock_resource")
        ask = getattr(lock, "inspect", None)
        if ask is None:
            msg = f"lock must be a lock that can be asked who holds it, not {type(lock).__name__}"
            raise TypeError(msg)
        if inspect.iscoroutinefunction(ask) is not awaits:
            msg = (
                f"{type(lock).__name__} is {'a sync' if awaits else 'an async'} lock, and "
                f"{type(self).__name__} needs {'an async' if awaits else 'a sync'} one"
            )
            raise TypeError(msg)

    @staticmethod
    def _lapsed(found: Begun | Standing) -> str | None:
        """The attempt whose grace is over, so that the lock decides; None where it need not."""
        if isinstance(found, Begun) or found.outcome is not BeginOutcome.IN_PROGRESS:
            return None
        return found.attempt if found.retry_after_ms <= 0 else None

    @staticmethod
    def _result(key: str, found: tuple[RecordState | None, Memo]) -> Any:
        state, memo = found
        if state is not RecordState.DONE:
            reason = "nothing is recorded of it" if state is None else f"it is {state.value}"
            raise IdempotencyResultMissing(key, reason=reason)
        return decode(key, memo.encoding, memo.data)


def fingerprint(payload: Any) -> str:
    """The digest of a payload by which a record tells it from another.

    Raises:
        CanonicalizeError: the payload has no canonical form.
    """
    return sha256(canonicalize(payload)).hexdigest()


def check_work(func: Callable[[], Any], *, awaited: bool) -> None:
    """Refuse what cannot be run, before an attempt is spent on it.

    Raises:
        TypeError: not a callable, or one whose result nobody would await: the work would be
            recorded as done, and never be done.
    """
    if not callable(func):
        msg = f"func must be callable, not {type(func).__name__}"
        raise TypeError(msg)
    if not awaited and is_async(func):
        msg = (
            "func must be a plain function: nothing here awaits what an async one returns; use "
            "AsyncIdempotencyGuard"
        )
        raise TypeError(msg)


def finished(result: Any) -> Any:
    """Return what a plain function returned, unless the work is yet to be done.

    Raises:
        TypeError: it is something to be awaited.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that it was never awaited, long after
        msg = (
            "func returned something to be awaited, and nothing here awaits it: its work is not "
            "done; use AsyncIdempotencyGuard"
        )
        raise TypeError(msg)
    return result


def _check_task_id(task_id: str) -> str:
    if not isinstance(task_id, str):
        msg = f"task_id must be a str, not {type(task_id).__name__}"
        raise TypeError(msg)
    utf8(task_id, "task_id")
    return task_id


def _check_max_attempts(max_attempts: int) -> int:
    if not isinstance(max_attempts, int) or isinstance(max_attempts, bool):
        msg = f"max_attempts must be an int or None, not {type(max_attempts).__name__}"
        raise TypeError(msg)
    if max_attempts < 1:
        msg = f"max_attempts must be at least 1, and is {max_attempts}"
        raise ValueError(msg)
    return max_attempts
