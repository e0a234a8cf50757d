"""`idempotent_task`: a task whose work takes effect once, however often it is delivered."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Literal, ParamSpec, TypeVar

from celery import Task
from celery.local import Proxy
from fencekit.celery.arguments import Parameters, Pick
from fencekit.celery.durations import Duration
from fencekit.celery.execution import Execution, execution_in
from fencekit.celery.terms import make_terms
from fencekit.idempotency import IdempotencyGuard
from fencekit.locks import DistributedLock

__all__ = ["check_function", "idempotent_task"]

P = ParamSpec("P")
R = TypeVar("R")


def idempotent_task(
    guard: IdempotencyGuard | None = None,
    lock: DistributedLock | None = None,
    *,
    key: Pick,
    lock_resource: Pick | None = None,
    fingerprint: Pick | None = "args",
    ttl: Duration | None = None,
    idempotency_ttl: Duration | None = None,
    lease: Duration | None = None,
    lock_ttl: Duration | None = None,
    max_attempts: int | None = None,
    on_busy: Literal["defer", "drop"] | None = None,
    retry_on_in_progress: bool | None = None,
    busy_timeout: Duration = "1h",
    on_done: Literal["replay", "ignore"] = "replay",
    terminal_for: Iterable[type[BaseException]] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function, below ``@shared_task`` or ``@app.task``, take effect once for each key.

    The first message runs; what it returns is kept. Another message with the same key, or the
    same message once more, is answered with that, or comes back later while the first one runs.
    Where the worker dies, the redelivered message runs again when the lease is over.

    Args:
        guard: keeps the records; by default on the server that the app names.
        lock: a lock that each run holds besides; by default on the same server, if
            ``lock_resource`` is given.
        key: what the work is: a parameter's name, several names, or a function of parameters (of
            the same names) that returns a str.
        lock_resource: the name of the lock, given as the key is.
        fingerprint: what must be the same at each call with this key: ``"args"`` for all
            arguments that are not as by default, names, or a function; None compares nothing.
        ttl: how long the record is kept, counted from completion. (A lock's ``ttl`` is its lease.)
        idempotency_ttl: the same as ``ttl``.
        lease: how long a run, and its lock, are protected without a renewal; renewed at a third.
        lock_ttl: the same as ``lease``.
        max_attempts: runs to begin in all, those that died or failed; None: no limit.
        on_busy: ``"defer"`` (the default) has a message come back while another one runs;
            ``"drop"`` drops it, unless a chain, chord, group or callback waits for its result.
        retry_on_in_progress: True for ``on_busy="defer"``, False for ``"drop"``.
        busy_timeout: how long a message comes back in all before it fails with `StillBusy`.
        on_done: ``"replay"`` answers a further message with the result; ``"ignore"`` drops it
            under the same condition as above.
        terminal_for: exceptions after which no further run is made for this key.

    Raises:
        TypeError: an argument of another type, one thing said twice, an ``async def`` or a
            generator, or a task or its class in place of a function.
        ValueError: a name that is no parameter, or a duration, number or word that makes no sense.
    """
    if lock is not None and lock_resource is None:
        raise TypeError("lock needs lock_resource=, which names what is locked")
    _expect(guard, IdempotencyGuard, "guard")
    _expect(lock, DistributedLock, "lock")
    terms = make_terms(
        ttl=ttl,
        idempotency_ttl=idempotency_ttl,
        lease=lease,
        lock_ttl=lock_ttl,
        busy_timeout=busy_timeout,
        max_attempts=max_attempts,
        on_busy=on_busy,
        retry_on_in_progress=retry_on_in_progress,
        on_done=on_done,
        terminal_for=terminal_for,
    )

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        check_function(function, "idempotent_task")
        if execution_in(function) is not None:
            raise TypeError(f"{function.__qualname__} is an idempotent_task already")
        parameters = Parameters(function)
        execution = Execution(
            function,
            terms,
            parameters,
            guard=guard,
            lock=lock,
            key_of=parameters.picker(key, "key"),
            resource_of=None
            if lock_resource is None
            else parameters.picker(lock_resource, "lock_resource"),
            payload_of=_payload(parameters, fingerprint),
        )

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = execution.run(args, kwargs)
            return result

        # Celery checks calls against the signature, and looks no further than this function.
        wrapper.__signature__ = parameters.signature  # type: ignore[attr-defined]
        execution.adopt(wrapper)
        return wrapper

    return decorate


def _payload(parameters: Parameters, fingerprint: Pick | None) -> Any:
    if fingerprint is None:
        return None
    if isinstance(fingerprint, str) and fingerprint == "args":
        return parameters.said
    return parameters.picker(fingerprint, "fingerprint")


def _expect(value: object, kind: type, what: str) -> None:
    if value is not None and not isinstance(value, kind):
        found = type(value).__name__
        raise TypeError(f"{what} must be a {kind.__name__}, or left out, not a {found}")


def check_function(function: Any, decorator: str) -> None:
    """Refuse what Celery would not run as a plain function.

    Raises:
        TypeError: a task or its class, an ``async def``, a generator, or no function.
    """
    # Not isinstance, which would evaluate the proxy, and with it finalise the app.
    if issubclass(type(function), (Task, Proxy)):
        raise TypeError(f"put @{decorator} below @shared_task or @app.task, not above it")
    if inspect.isclass(function):
        raise TypeError(f"put @{decorator} on the run method of {function.__qualname__}")
    # A partial object, for one, can be called, and Celery has no name for it.
    if not callable(function) or not hasattr(function, "__qualname__"):
        raise TypeError(f"expected a function, not {type(function).__name__}")
    name = function.__qualname__
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{name} is async, and Celery does not await it: make it a plain function, which may "
            "call asyncio.run"
        )
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"{name} is a generator: its body would run after the claim has ended")
