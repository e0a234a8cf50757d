"""Effects that happen once, because their record is written in their own transaction.

::

    with once("transfers", str(order_id), payload=request_body) as run:
        if run.first:
            run.result = post_transfer()
    return run.result

The record (an inbox row) and the effect are committed together or not at all. So a worker that is
killed anywhere leaves either nothing, and the next one does the work, or both, and the next one
answers from the record. Redis has no part in it and may be flushed at any time.

That holds for what the database does. An external API is another store: hand it an idempotency key
of its own, e.g. ``f"{scope}:{key}"``, so that a repetition of the call after a rollback is
recognised there.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from django.db import OperationalError, connections, router, transaction
from django.utils import timezone
from fencekit.canonical import canonicalize
from fencekit.django.inbox import find, insert, settle
from fencekit.django.retrying import is_worth_retrying
from fencekit.errors import IdempotencyInProgress, IdempotencyPayloadMismatch

__all__ = ["OnceRun", "arun_once", "once", "run_once"]

T = TypeVar("T")

_SCOPE_CHARS, _KEY_CHARS = 255, 512
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


class OnceRun:
    """One run of `once`.

    Attributes:
        first: whether the effect has not happened yet, so that the block must do it.
    """

    __slots__ = ("_result", "first")

    def __init__(self, *, first: bool, result: Any = None) -> None:
        self.first = first
        self._result = result

    @property
    def result(self) -> Any:
        """What the effect's result was; JSON values, tuples as lists.

        Raises:
            RuntimeError: set by a run that is not the first: the effect was about to happen twice.
        """
        return self._result

    @result.setter
    def result(self, value: Any) -> None:
        if not self.first:
            raise RuntimeError(
                "this effect has happened before: do it only `if run.first`, otherwise return "
                "run.result"
            )
        self._result = value


@contextmanager
def once(
    scope: str, key: str, payload: Any = None, *, using: str | None = None
) -> Iterator[OnceRun]:
    """Have an effect in the database happen once, with its record, in one transaction.

    A second run with the same key waits for the first one's transaction to end, and then replays
    its result, or does the work if it was rolled back. Costs two statements beside the effect's
    own.

    Args:
        scope: what kind of effect, e.g. ``"transfers"``; at most 255 characters.
        key: which one; at most 512 characters.
        payload: what must be the same at each call with this key, see `canonicalize`. None is not
            compared.
        using: the database; where the router writes `Effect` if omitted. The effect must happen in
            the same.

    Raises:
        IdempotencyPayloadMismatch: the key was used with another payload.
        IdempotencyInProgress: this very transaction is inside the same effect already.
        CanonicalizeError: the payload has no canonical form.
        TypeError, ValueError: the scope or key is no text of that length; or the result cannot be
            written as JSON, and the effect was rolled back.
        TransactionManagementError: the transaction around it is broken.
        DatabaseError: whatever the database raises; `run_once` repeats what can be repeated.
    """
    _check_text(scope, "the scope", _SCOPE_CHARS)
    _check_text(key, "the key", _KEY_CHARS)
    fingerprint = "" if payload is None else sha256(canonicalize(payload)).hexdigest()
    from fencekit.django.models import Effect, digest_of  # noqa: PLC0415 - needs the app registry

    alias = using or router.db_for_write(Effect)
    with transaction.atomic(using=alias):
        effect = Effect(
            digest=digest_of(scope, key),
            scope=scope,
            key=key,
            fingerprint=fingerprint,
            created_at=timezone.now(),
        )
        if insert(effect, alias):
            run = OnceRun(first=True)
            yield run
            memo = json.dumps(run.result, allow_nan=False, separators=(",", ":"))
            settle(effect, memo, alias)
            # As a replay will see it, so that nobody relies on more.
            run.result = json.loads(memo)
            return
        found = find(effect, alias)
        if fingerprint and found.fingerprint and found.fingerprint != fingerprint:
            raise IdempotencyPayloadMismatch(key)
        if found.result is None:
            raise IdempotencyInProgress(key, retry_after_ms=0, owner_id="this transaction itself")
        yield OnceRun(first=False, result=json.loads(found.result))


def run_once(
    scope: str, key: str, func: Callable[..., Any], *args: Any, retries: int = 3, **kwargs: Any
) -> Any:
    """Call ``func`` in a transaction unless its effect has happened, and return its result.

    First run and replay return the same: what the result is as JSON. When the database refuses the
    transaction for the sake of another one (a serialisation failure, a deadlock, "database is
    locked"), it was rolled back and is repeated, unless it is part of a larger transaction, which
    only its owner can repeat.

    Args:
        scope: what kind of effect.
        key: which one.
        func: does the work, with ``args`` and ``kwargs``; may be called again after a rollback.
        args: for ``func``.
        retries: how often to repeat.
        kwargs: for ``func``.

    Raises:
        TypeError, ValueError: as for `once`; or ``func`` is async.
        IdempotencyInProgress, TransactionManagementError: as for `once`.
        DatabaseError: whatever the database raises, when it was not worth repeating, or the
            repetitions are used up.
    """
    if iscoroutinefunction(func):
        raise TypeError("func must not be async: it runs in the transaction's own thread")
    if not callable(func):
        raise TypeError(f"func must be callable, not {type(func).__name__}")
    if not isinstance(retries, int) or retries < 0:
        raise ValueError(f"retries must be an int, 0 or more, not {retries!r}")
    from fencekit.django.models import Effect  # noqa: PLC0415 - needs the app registry

    alias = router.db_for_write(Effect)
    # Neither in a block nor after set_autocommit(False).
    outermost = connections[alias].get_autocommit()
    for attempt in range(retries + 1):
        try:
            with once(scope, key, using=alias) as run:
                if run.first:
                    run.result = func(*args, **kwargs)
        except OperationalError as error:
            if not outermost or attempt == retries or not is_worth_retrying(error):
                raise
            pause = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
            time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - so that two do not meet again
        else:
            return run.result
    raise AssertionError("the last attempt returns or raises")


async def arun_once(
    scope: str, key: str, func: Callable[..., Any], *args: Any, retries: int = 3, **kwargs: Any
) -> Any:
    """Call ``func`` in a transaction unless its effect has happened, from async code.

    ``func`` itself is not async, see `run_once`: it runs in the thread that has the transaction.

    Raises:
        TypeError, ValueError, IdempotencyInProgress, TransactionManagementError, DatabaseError: as
            for `run_once`.
    """
    return await sync_to_async(run_once)(scope, key, func, *args, retries=retries, **kwargs)


def _check_text(text: str, what: str, limit: int) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {type(text).__name__}")
    if not text or len(text) > limit or "\0" in text:
        raise ValueError(f"{what} must have 1 to {limit} characters, none of them NUL")
