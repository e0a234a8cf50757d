"""One function of an idempotent task, and what each call of it is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from celery import Celery, Task, current_app
from fencekit.canonical import idempotency_key
from fencekit.celery.arguments import Parameters, Picked
from fencekit.celery.deliveries import running_delivery, running_task
from fencekit.celery.runs import Run
from fencekit.celery.stores import store_of
from fencekit.celery.terms import Terms
from fencekit.keys import check_name

if TYPE_CHECKING:
    from fencekit.idempotency import IdempotencyGuard
    from fencekit.locks import DistributedLock

__all__ = ["Execution", "execution_of"]

_ATTRIBUTE = "__fencekit_execution__"


class Execution:
    """One function of an idempotent task, and what each call of it is about.

    Attributes:
        function: what the task does.
        terms: on what terms.
        guard: where its records are; None: where its app says.
        lock: the lock that each run holds; None: none, or one where the app says.
        locks: whether each run holds a lock.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        terms: Terms,
        parameters: Parameters,
        *,
        guard: IdempotencyGuard | None,
        lock: DistributedLock | None,
        key_of: Picked,
        resource_of: Picked | None,
        payload_of: Picked | None,
    ) -> None:
        self.function = function
        self.terms = terms
        self.guard = guard
        self.lock = lock
        self.locks = resource_of is not None
        self._parameters = parameters
        self._key_of = key_of
        self._resource_of = resource_of
        self._payload_of = payload_of
        self._owned: WeakKeyDictionary[Task, bool] = WeakKeyDictionary()
        self._serializers: WeakKeyDictionary[Task, tuple[str, str]] = WeakKeyDictionary()

    def adopt(self, wrapper: Callable[..., Any]) -> None:
        """Have a wrapper be known for this execution's."""
        setattr(wrapper, _ATTRIBUTE, self)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do, replay or put off what a call asks for.

        Raises:
            whatever the function raises, and what `runs` says.
        """
        task = running_task(self._owns)
        delivery = running_delivery(task)
        app: Any = current_app if task is None else task.app
        name = self._default_name if task is None else str(task.name)
        try:
            arguments = self._parameters.bind(args, kwargs)
            guard = self.guard or store_of(app, name).guard
            lock = resource = None
            if self._resource_of is not None:
                lock = self.lock or store_of(app, name).lock
                resource = _spell(self._resource_of(arguments), name, "lock_resource")
            run = Run(
                self.terms,
                delivery,
                guard,
                lock,
                key=_spell(self._key_of(arguments), name, "key"),
                resource=resource,
                payload=None if self._payload_of is None else self._payload_of(arguments),
                serializers=_serializers(app) if task is None else self._serializers[task],
            )
        except Exception:
            # Nothing was begun, and the same message would end the same way each time.
            if delivery is not None:
                delivery.blame()
            raise
        return run.answer(lambda: self.function(*args, **kwargs))

    @property
    def _default_name(self) -> str:
        """What Celery names the task unless it is told otherwise."""
        return f"{self.function.__module__}.{self.function.__name__}"

    def _owns(self, task: Task) -> bool:
        known = self._owned.get(task)
        if known is None:
            known = self._owned[task] = execution_of(task) is self
            self._serializers[task] = _serializers(task.app, task.serializer)
        return known


def execution_of(task: Task) -> Execution | None:
    """The execution that a task's body is wrapped in, below whatever else it is wrapped in."""
    # autoretry keeps the body in `_orig_run`, pydantic tasks theirs in `_decorated_fun`.
    for attribute in ("run", "_orig_run", "_decorated_fun"):
        function = getattr(task, attribute, None)
        while function is not None:
            found: Execution | None = getattr(function, _ATTRIBUTE, None)
            if found is not None:
                return found
            function = getattr(function, "__wrapped__", None)
    return None


def _serializers(app: Celery, of_task: str | None = None) -> tuple[str, str]:
    """Those of a task's messages and of its results."""
    return (of_task or app.conf.task_serializer, app.conf.result_serializer)


def _spell(value: Any, task: str, what: str) -> str:
    """A name as Redis keeps it, of what was picked out of the arguments.

    Raises:
        TypeError: the function returned no str.
        ValueError: it returned what cannot be a name.
        CanonicalizeError: a named argument has no canonical form.
    """
    if isinstance(value, dict):
        return idempotency_key(value, namespace=task)
    if not isinstance(value, str):
        kind = type(value).__name__
        raise TypeError(f"{what} of the task {task!r} must return a str, and returned a {kind}")
    check_name(value, f"{what} of the task {task!r}")
    return value
