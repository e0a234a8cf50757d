"""`unique_task`: at most one message of a key in the queue, seen from whoever sends it.

It saves work, and is no guarantee: a place can be lost with Redis or outlive its ``ttl``, and
`idempotent_task` is what has the work take effect once.

The decorator is given a function and must act where messages are sent, in the task that Celery
makes of the function later. Celery hands the function's docstring to the class it makes, and Python
tells what is put into a class about that (``__set_name__``); so the docstring is what brings the
sending method into the class, whichever app makes it, and whenever.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, Literal, ParamSpec, TypeVar

from kombu.utils.uuid import uuid

from celery import Task, signals, states
from fencekit.canonical import idempotency_key
from fencekit.celery.arguments import Parameters, Pick, Picked
from fencekit.celery.decorator import check_function
from fencekit.celery.deliveries import was_put_off
from fencekit.celery.durations import Duration, duration
from fencekit.celery.errors import AlreadyQueued
from fencekit.celery.models import of_arguments
from fencekit.celery.places import free_operation, take_operation
from fencekit.celery.stores import store_of
from fencekit.durations import milliseconds
from fencekit.keys import Names, names

__all__ = ["unique_task"]

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("fencekit.celery")

_ATTRIBUTE: Final = "_fencekit_unique"
# The place that a message has; also an attribute of its request.
_HEADER: Final = "fencekit_unique"
# What a message has that others wait for: for its result, for what is sent after it, or because it
# stands for another. The last step of a chain has an empty one.
_AWAITED: Final = ("group_id", "chord", "link", "replaced_task_nesting")


def unique_task(
    *,
    key: Pick,
    until: Literal["start", "done"] = "done",
    ttl: Duration = "1h",
    on_duplicate: Literal["return", "raise"] = "return",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have ``delay()`` send nothing while a message with this key is on its way or running.

    Put it below ``@shared_task`` or ``@app.task``, above ``@idempotent_task`` if both are wanted.
    A message within a chain, chord or group, with a callback, or in place of another
    (``replace``) is always sent, and so is a retry. With an open transaction of Django the place is
    taken, and the message sent, when it commits; a duplicate is then noticed too late to be told.

    Args:
        key: what the work is, as for `idempotent_task`.
        until: free the place when the message begins to run, or when it has succeeded, failed or
            been revoked or dropped.
        ttl: when the place is free at the latest, if nothing frees it.
        on_duplicate: ``"return"`` returns the result object of the message that is there;
            ``"raise"`` raises `AlreadyQueued`.

    Raises:
        TypeError: an argument of another type, an ``async def``, a generator, or a task.
        ValueError: a name that is no parameter, or a duration or word that makes no sense.
    """
    ttl_ms = milliseconds(duration(ttl, "ttl"), "ttl")
    if until not in ("start", "done"):
        raise ValueError(f"until must be 'start' or 'done', not {until!r}")
    if on_duplicate not in ("return", "raise"):
        raise ValueError(f"on_duplicate must be 'return' or 'raise', not {on_duplicate!r}")

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        check_function(function, "unique_task")
        if isinstance(function.__doc__, _Docstring):
            raise TypeError(f"{function.__qualname__} has a unique_task already")
        parameters = Parameters(function)
        unique = Unique(
            parameters,
            parameters.picker(key, "key"),
            ttl_ms=ttl_ms,
            until_start=until == "start",
            raises=on_duplicate == "raise",
        )

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(*args, **kwargs)

        # Celery checks calls against the signature, and looks no further than this function.
        wrapper.__signature__ = parameters.signature  # type: ignore[attr-defined]
        wrapper.__doc__ = _Docstring.of(function.__doc__ or "", unique)
        return wrapper

    return decorate


class Unique:
    """How the messages of a task are kept unique."""

    def __init__(
        self,
        parameters: Parameters,
        key_of: Picked,
        *,
        ttl_ms: int,
        until_start: bool,
        raises: bool,
    ) -> None:
        self.until_start = until_start
        self._parameters = parameters
        self._key_of = key_of
        self._ttl_ms = ttl_ms
        self._raises = raises
        self._bound = False

    def attach(self, owner: type[Task]) -> None:
        """Have the class of a task send through this."""
        inherited = owner.apply_async

        @functools.wraps(inherited)
        def apply_async(
            task: Task, args: Any = None, kwargs: Any = None, task_id: Any = None, **options: Any
        ) -> Any:
            task_id = task_id or uuid()

            def send(place: str | None = None) -> Any:
                if place is not None:
                    options["headers"] = {**(options.get("headers") or {}), _HEADER: place}
                return inherited(task, args, kwargs, task_id=task_id, **options)

            if task.app.conf.task_always_eager or options.get("retries"):
                return send()
            if options.get("chain") is not None or any(map(options.get, _AWAITED)):
                return send()
            return self._send(task, task_id, args or (), kwargs or {}, send)

        # A task that is not bound to its function's first parameter has it as a static method.
        self._bound = not isinstance(owner.__dict__.get("run"), staticmethod)
        owner.apply_async = apply_async  # pyright: ignore[reportAttributeAccessIssue] - a wrapper
        _connect()
        setattr(owner, _ATTRIBUTE, self)

    def free(self, task: Task, task_id: str, args: Any, kwargs: Any, request: Any) -> None:
        """Give back the place of a message. Never raises: the place ends by itself.

        The message says which it has. Where no message is at hand its arguments do, which may have
        been others before they were sent.
        """
        try:
            name = getattr(request, _HEADER, None)
            place = self._names(task, name) if name else self._place(task, args or (), kwargs or {})
            store_of(task.app, str(task.name)).guard.driver.execute(free_operation(place, task_id))
        except Exception as error:  # noqa: BLE001 - a signal's receiver is nobody's caller
            _log.warning("the place of %s[%s] could not be freed: %s", task.name, task_id, error)

    def _send(
        self,
        task: Task,
        task_id: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        send: Callable[..., Any],
    ) -> Any:
        place = self._place(task, args, kwargs)

        def publish() -> Any:
            driver = store_of(task.app, str(task.name)).guard.driver
            holder = driver.execute(take_operation(place, task_id, self._ttl_ms))
            if holder != task_id:
                return self._find_duplicate(task, place.name, holder)
            try:
                return send(place.name)
            except BaseException:
                self.free(task, task_id, args, kwargs, SimpleNamespace(**{_HEADER: place.name}))
                raise

        transaction = _open_transaction()
        if transaction is None:
            return publish()
        transaction.on_commit(lambda: self._publish_quietly(publish, task, task_id))
        return task.AsyncResult(task_id)

    def _publish_quietly(self, publish: Callable[[], Any], task: Task, task_id: str) -> None:
        try:
            publish()
        except AlreadyQueued as error:
            _log.info("%s[%s] was not sent: %s", task.name, task_id, error)

    def _find_duplicate(self, task: Task, name: str, holder: str) -> Any:
        if self._raises:
            raise AlreadyQueued.of(name, holder)
        return task.AsyncResult(holder)

    def _place(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Names:
        given = (task, *args) if self._bound else args
        picked = self._key_of(self._parameters.bind(given, kwargs))
        spelled = {"key": picked} if isinstance(picked, str) else picked
        spell = functools.partial(idempotency_key, namespace=str(task.name))
        return self._names(task, of_arguments(spell, spelled))

    @staticmethod
    def _names(task: Task, name: str) -> Names:
        return names(store_of(task.app, str(task.name)).guard.prefix, name)


class _Docstring(str):
    """A docstring that tells the class of a task what it came with."""

    __slots__ = ("unique",)

    unique: Unique

    @classmethod
    def of(cls, text: str, unique: Unique) -> _Docstring:
        made = cls(text)
        made.unique = unique
        return made

    def __set_name__(self, owner: type, name: str) -> None:
        if issubclass(owner, Task):
            self.unique.attach(owner)


def _open_transaction() -> Any:
    """Django's, if it is there and one is open."""
    if "django.db" not in sys.modules:
        return None
    from django.db import transaction  # noqa: PLC0415 - only where it is there already

    try:
        is_open = transaction.get_connection().in_atomic_block
    except Exception:  # noqa: BLE001 - Django is there, but not set up
        return None
    return transaction if is_open else None


def _on_prerun(
    sender: Any = None, task_id: str = "", args: Any = (), kwargs: Any = None, **_: Any
) -> None:
    unique: Unique | None = getattr(sender, _ATTRIBUTE, None)
    if unique is not None and unique.until_start and not sender.request.is_eager:
        unique.free(sender, task_id, args, kwargs, sender.request)


def _on_end(
    sender: Any = None,
    task_id: str = "",
    *,
    args: Any = (),
    kwargs: Any = None,
    state: str = states.FAILURE,
    retval: Any = None,
    **_: Any,
) -> None:
    unique: Unique | None = getattr(sender, _ATTRIBUTE, None)
    if unique is not None and not _comes_back(sender, state, retval):
        unique.free(sender, task_id, args, kwargs, sender.request)


def _comes_back(task: Task, state: str, how: Any) -> bool:
    """Whether a message whose run has ended so is run again."""
    if state == states.IGNORED:
        return was_put_off(task.request)
    if state == states.REJECTED:
        return bool(getattr(how, "requeue", False))
    return state not in (states.SUCCESS, states.FAILURE)


def _on_revoked(sender: Any = None, request: Any = None, **_: Any) -> None:
    unique: Unique | None = getattr(sender, _ATTRIBUTE, None)
    if unique is not None and request is not None:
        unique.free(sender, request.id, request.args, request.kwargs, request)


def _connect() -> None:
    """Hear of runs from now on: a receiver costs every task of the process, so not before."""
    signals.task_prerun.connect(_on_prerun, weak=False, dispatch_uid="fencekit-unique-prerun")
    signals.task_postrun.connect(_on_end, weak=False, dispatch_uid="fencekit-unique-postrun")
    # Where the pool's process is killed by a hard time limit, there is nobody else to tell.
    signals.task_failure.connect(_on_end, weak=False, dispatch_uid="fencekit-unique-failure")
    signals.task_revoked.connect(_on_revoked, weak=False, dispatch_uid="fencekit-unique-revoked")
