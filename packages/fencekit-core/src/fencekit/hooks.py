"""Callbacks for what locks, gates and claims do: to count it, time it or trace it.

::

    hooks = FenceKitHooks(on_waited=lambda event: histogram.observe(event.waited_ms))
    lock = DistributedLock(redis, hooks=hooks)

`install_hooks` tells them of every object, and ``hooks.also(others)`` makes one of two.
`fencekit.otel` and `fencekit.event_log` bring hooks for telemetry and for logs.

Events tell names, tokens, times and verdicts. They never carry a payload, a result or the text of
an error, so a callback may write them anywhere. Times are floats, in milliseconds of this
process's monotonic clock.

A callback runs where the thing happened, on the way back to the caller: keep it short. The async
twins call it in the event loop, which it must not block; a lost lease may be reported from the
thread or task that renews leases. It may hand over to a queue, a thread or a task.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "ClaimBegun",
    "ClaimDone",
    "ClaimLost",
    "ClaimOutcome",
    "FenceAdvanced",
    "FenceKitHooks",
    "FenceRejected",
    "Hooks",
    "LockAcquired",
    "LockFailed",
    "LockLost",
    "LockReleased",
    "LockWaited",
    "install_hooks",
]

_log = logging.getLogger("fencekit.hooks")
_Event = TypeVar("_Event")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockAcquired:
    """A lock was granted to us.

    Attributes:
        resource: the lock's name.
        token: the fencing token minted for this grant.
        owner_id: who holds it now.
        waited_ms: milliseconds from the call to the grant, the round trip included.
    """

    resource: str
    token: int
    owner_id: str
    waited_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LockFailed:
    """A lock was not granted: it is taken, and the wait, if there was one, is over.

    Attributes:
        resource: the lock's name.
        owner_id: who asked for it.
        waited_ms: milliseconds from the call to giving up.
        holder: the owner id of the holder last seen, or None where it is not known.
    """

    resource: str
    owner_id: str
    waited_ms: float
    holder: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockReleased:
    """A release was answered, for the first time; repeated releases are silent.

    Attributes:
        resource: the lock's name.
        token: the fencing token of the lease given back.
        held_ms: milliseconds from the grant to the answer.
        verdict: ``"released"``, or ``"lost"`` when somebody else may have run before this release.
    """

    resource: str
    token: int
    held_ms: float
    verdict: Literal["released", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockLost:
    """A lease was lost while its handle was in use; told once for each lease.

    Attributes:
        resource: the lock's name.
        token: the fencing token of the lost lease.
        held_ms: milliseconds from the grant to the discovery.
    """

    resource: str
    token: int
    held_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWaited:
    """A call that had to wait for a lock stopped waiting; a lock free at once tells nothing here.

    Attributes:
        resource: the lock's name.
        waited_ms: milliseconds from the call to its end.
        acquired: whether the wait ended with the grant, rather than with a timeout, a
            cancellation or an error.
    """

    resource: str
    waited_ms: float
    acquired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceRejected:
    """A gate, or a database that is one, refused a token: a replaced writer was stopped.

    Attributes:
        resource: the name that the token belongs to.
        token: the token shown.
        current: the highest token known, or None where no record exists.
    """

    resource: str
    token: int
    current: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceAdvanced:
    """A gate let a token pass, and refuses every lower one from now on.

    Attributes:
        resource: the name that the token belongs to.
        token: the token shown.
    """

    resource: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimBegun:
    """An attempt at an idempotent job began here.

    Attributes:
        key: the idempotency key.
        attempt: which attempt at this key it is, counted from 1.
        fence: the fencing token minted for the attempt.
        reclaimed: whether it takes over from an attempt whose lease ran out.
    """

    key: str
    attempt: int
    fence: int
    reclaimed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOutcome:
    """A claim was answered, with a beginning or otherwise.

    Attributes:
        key: the idempotency key.
        outcome: the answer's name in lower case: ``"begun"``, ``"reclaimed"``,
            ``"in_progress"``, ``"already_done"``, ``"failed"``, ``"exhausted"``.
    """

    key: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDone:
    """An attempt that began here ended here.

    Attributes:
        key: the idempotency key.
        fence: the fencing token of the attempt, as its `ClaimBegun` told.
        ended: ``"completed"``; ``"failed"``, for good or to be tried again; or ``"released"``,
            the attempt given back uncounted.
        ran_ms: milliseconds from the beginning to the answer that ended it.
    """

    key: str
    fence: int
    ended: Literal["completed", "failed", "released"]
    ran_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLost:
    """An attempt that began here is not ours any more: its lease ran out, or it was cleared.

    Told once for each attempt, when its renewal or its end is refused, or when no renewal could be
    confirmed before the lease was over.

    Attributes:
        key: the idempotency key.
        fence: the fencing token of the attempt, as its `ClaimBegun` told.
        ran_ms: milliseconds from the beginning to the discovery.
    """

    key: str
    fence: int
    ran_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What every collection of callbacks shares: its fields are callbacks, each optional.

    A callback takes the event and its answer is ignored. One that raises an `Exception` is logged
    to ``fencekit.hooks``, the first time only, and never breaks the caller; a `KeyboardInterrupt`
    and its like pass through.

    Raises:
        TypeError: a callback cannot be called, or is asynchronous: nothing would await it.
    """

    # By identity, since a callback need not be hashable; it lives as long as this object does.
    _reported: dict[int, object] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for name, callback in self._callbacks():
            if not callable(callback):
                raise TypeError(f"{name} must be callable, not {type(callback).__qualname__}")
            if is_async(callback):
                raise TypeError(
                    f"{name} must be a plain function: nothing would await {_describe(callback)}"
                )

    def fire(self, callback: Callable[[_Event], object], event: _Event) -> None:
        """Tell one of our callbacks of an event, whatever it raises.

        For the library's own use, in this form, which builds no event that nobody wants::

            if hooks is not None and hooks.on_lost is not None:
                hooks.fire(hooks.on_lost, LockLost(resource=..., token=..., held_ms=...))
        """
        try:
            callback(event)
        except Exception:  # noqa: BLE001 - it is a stranger's code
            # One atomic step, so that of many threads one logs.
            mine = object()
            if self._reported.setdefault(id(callback), mine) is mine:
                _log.exception(
                    "%s raised (%s); its further errors are not logged",
                    next((n for n, known in self._callbacks() if known is callback), "a callback"),
                    _describe(callback),
                )

    def also(self, other: Self) -> Self:
        """Hooks that tell both: these first, then the others, whatever either raises."""
        both: dict[str, object] = {}
        for f in fields(self):
            if f.init:
                mine, theirs = getattr(self, f.name), getattr(other, f.name)
                if mine is not None and theirs is not None:
                    both[f.name] = _Both(self, mine, other, theirs)
                else:
                    both[f.name] = theirs if mine is None else mine
        return type(self)(**both)

    def _callbacks(self) -> list[tuple[str, object]]:
        named = [(f.name, getattr(self, f.name)) for f in fields(self) if f.init]
        return [(name, callback) for name, callback in named if callback is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceKitHooks(Hooks):
    """Callbacks to be told of events; each is optional, and one object serves any number of locks.

    A callback takes the event and its answer is ignored. One that raises an `Exception` is logged
    to ``fencekit.hooks``, the first time only, and never breaks the caller; a `KeyboardInterrupt`
    and its like pass through.

    Attributes:
        on_acquired: told of each `LockAcquired`.
        on_failed: told of each `LockFailed`.
        on_released: told of each `LockReleased`.
        on_lost: told of each `LockLost`.
        on_waited: told of each `LockWaited`.
        on_rejected: told of each `FenceRejected`.
        on_advanced: told of each `FenceAdvanced`.
        on_begin: told of each `ClaimBegun`.
        on_outcome: told of each `ClaimOutcome`.
        on_done: told of each `ClaimDone`.
        on_claim_lost: told of each `ClaimLost`.

    Raises:
        TypeError: a callback cannot be called, or is asynchronous: nothing would await it.
    """

    on_acquired: Callable[[LockAcquired], object] | None = None
    on_failed: Callable[[LockFailed], object] | None = None
    on_released: Callable[[LockReleased], object] | None = None
    on_lost: Callable[[LockLost], object] | None = None
    on_waited: Callable[[LockWaited], object] | None = None
    on_rejected: Callable[[FenceRejected], object] | None = None
    on_advanced: Callable[[FenceAdvanced], object] | None = None
    on_begin: Callable[[ClaimBegun], object] | None = None
    on_outcome: Callable[[ClaimOutcome], object] | None = None
    on_done: Callable[[ClaimDone], object] | None = None
    on_claim_lost: Callable[[ClaimLost], object] | None = None


_installed: list[FenceKitHooks] = []


def install_hooks(hooks: FenceKitHooks | None) -> None:
    """Have every lock, gate and guard that is made from now on tell these hooks too.

    Beside the ``hooks=`` of its own. Objects that were made before are not changed, so call this
    where logging is set up. None ends it; a later call replaces an earlier one.

    Raises:
        TypeError: neither hooks nor None.
    """
    _check(hooks)
    _installed[:] = [] if hooks is None else [hooks]


def _check(hooks: object) -> None:
    if hooks is not None and not isinstance(hooks, FenceKitHooks):
        raise TypeError(f"hooks must be a FenceKitHooks or None, not {type(hooks).__name__}")


def with_installed(hooks: FenceKitHooks | None) -> FenceKitHooks | None:
    """The hooks of an object that is being made: its own and those installed for all.

    Raises:
        TypeError: neither hooks nor None.
    """
    _check(hooks)
    for everywhere in _installed:
        return everywhere if hooks is None else hooks.also(everywhere)
    return hooks


def tell_rejected(resource: str, token: int, current: int | None) -> None:
    """Tell the installed hooks of a refusal by something that has no hooks: a database."""
    for hooks in _installed:
        if hooks.on_rejected is not None:
            event = FenceRejected(resource=resource, token=int(token), current=current)
            hooks.fire(hooks.on_rejected, event)


class _Both:
    """Two callbacks of one event, each reported by the hooks it came from."""

    def __init__(
        self,
        first: Hooks,
        mine: Callable[[Any], object],
        second: Hooks,
        theirs: Callable[[Any], object],
    ) -> None:
        self._told = ((first, mine), (second, theirs))

    def __call__(self, event: object) -> None:
        for hooks, callback in self._told:
            hooks.fire(callback, event)


def is_async(callback: object) -> bool:
    """Whether what a callback returns would have to be awaited."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    # The class's __call__ too: an object may be callable by an `async def` of that name.
    return any(
        inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        for function in (callback, getattr(type(callback), "__call__", None))  # noqa: B004
    )


def _describe(callback: object) -> str:
    name = getattr(callback, "__qualname__", None) or type(callback).__qualname__
    return f"{getattr(callback, '__module__', '?')}.{name}"
