"""One function of an idempotent task, and what each call of it is about."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from celery import Celery, Task, current_app
from fencekit.canonical import idempotency_key
from fencekit.celery.arguments import Parameters, Picked
from fencekit.celery.deliveries import running_delivery, running_task
from fencekit.celery.models import of_arguments, returned_model
from fencekit.celery.runs import Run
from fencekit.celery.stores import store_of
from fencekit.celery.terms import Terms
from fencekit.guards import fingerprint
from fencekit.keys import check_name, names_of_a_job
from fencekit.protocol.claim import Terms as ClaimTerms

if TYPE_CHECKING:
    from fencekit.celery.deliveries import Delivery
    from fencekit.idempotency import IdempotencyGuard
    from fencekit.locks import DistributedLock

__all__ = ["Execution", "execution_in", "execution_of"]

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
        self._compares_all = payload_of == parameters.said
        self._returned_model = partial(returned_model, function)
        self._wrapper: Callable[..., Any] = function
        self._tasks: WeakKeyDictionary[Task, tuple[str, str] | None] = WeakKeyDictionary()

    def adopt(self, wrapper: Callable[..., Any]) -> None:
        """Have a wrapper be known for this execution's."""
        setattr(wrapper, _ATTRIBUTE, self)
        self._wrapper = wrapper

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do, replay or put off what a call asks for.

        Raises:
            whatever the function raises, and what `runs` says.
        """
        task = running_task()
        serializers = None if task is None else self._serializers_of(task)
        if task is None or serializers is None:
            delivery, app, name, serializers = self._called_otherwise(args, task)
        else:
            delivery, app, name = running_delivery(task), task.app, str(task.name)
        try:
            arguments = self._parameters.bind(args, kwargs)
            guard = self.guard or store_of(app, name).guard
            lock = resource = None
            if self._resource_of is not None:
                lock = self.lock or store_of(app, name).lock
                resource, _ = _spell(self._resource_of(arguments), name, "lock_resource")
            run = Run(
                self.terms,
                delivery,
                guard,
                lock,
                self._claim_terms(guard, arguments, name, "" if delivery is None else delivery.id),
                resource=resource,
                serializers=serializers,
                model=self._returned_model,
                body=self._wrapper,
            )
        except Exception:
            # Nothing was begun, and the same message would end the same way each time.
            if delivery is not None:
                delivery.blame()
            raise
        return run.answer(lambda: self.function(*args, **kwargs))

    def _called_otherwise(
        self, args: tuple[Any, ...], running: Task | None
    ) -> tuple[Delivery | None, Celery, str, tuple[str, str]]:
        """The message, app, name and serializers where this is no running task's outermost body.

        Called by a method of the task that overrides the body, it is the body all the same. Called
        as a function, it goes by its task's name, as that task's messages do.
        """
        own = args[0] if args and isinstance(args[0], Task) else None
        if own is not None and any(
            execution_in(vars(kind).get("run")) is self for kind in type(own).__mro__
        ):
            delivery = running_delivery(own) if own is running else None
            return delivery, own.app, str(own.name), _serializers(own.app, own.serializer)
        app = cast("Celery", current_app if running is None else running.app)  # or a proxy of one
        if app.finalized or app.autofinalize:
            for name, task in sorted(app.tasks.items()):
                if execution_of(task) is self:
                    return None, app, name, _serializers(app, task.serializer)
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        return None, app, name, _serializers(app)

    def _claim_terms(
        self, guard: IdempotencyGuard, arguments: dict[str, Any], task: str, message: str
    ) -> ClaimTerms:
        """Which key a call is about, and on what terms it begins.

        Raises:
            whatever a function raises that was given for a key or a fingerprint.
            TypeError, ValueError, CanonicalizeError: see `_spell`; also of the fingerprint.
        """
        picked = self._key_of(arguments)
        key, digest = _spell(picked, task, "key")
        terms = self.terms
        if self._payload_of is None:
            digest = ""
        else:
            payload = self._payload_of(arguments)
            # Where the key is made of all that was said, its digest is known.
            if not digest or not self._compares_all or payload.keys() != picked.keys():
                digest = "" if payload is None else of_arguments(fingerprint, payload)
        return ClaimTerms(
            names_of_a_job(guard.prefix, key),
            guard.owner_id,
            lease_ms=terms.lease_ms,
            ttl_ms=terms.ttl_ms,
            fingerprint=digest,
            max_attempts=terms.max_attempts,
            task_id=message,
        )

    def _serializers_of(self, task: Task) -> tuple[str, str] | None:
        """Those of a task whose body is this; None of another task."""
        try:
            return self._tasks[task]
        except KeyError:
            owned = execution_of(task) is self
            found = _serializers(task.app, task.serializer) if owned else None
            self._tasks[task] = found
            return found


def execution_of(task: Task) -> Execution | None:
    """The execution that a task's body is wrapped in, below whatever else it is wrapped in."""
    # autoretry keeps the body in `_orig_run`, pydantic tasks theirs in `_decorated_fun`.
    for attribute in ("run", "_orig_run", "_decorated_fun"):
        found = execution_in(getattr(task, attribute, None))
        if found is not None:
            return found
    return None


def execution_in(function: Any) -> Execution | None:
    """The execution that a function is wrapped in."""
    while function is not None:
        found: Execution | None = getattr(function, _ATTRIBUTE, None)
        if found is not None:
            return found
        function = getattr(function, "__wrapped__", None)
    return None


def _serializers(app: Celery, of_task: str | None = None) -> tuple[str, str]:
    """Those of a task's messages and of its results."""
    return (of_task or app.conf.task_serializer, app.conf.result_serializer)


def _spell(value: dict[str, Any] | str, task: str, what: str) -> tuple[str, str]:
    """A name as Redis keeps it, of what was picked out of the arguments.

    Returns the digest of named arguments too, which is what the name ends with; else "".

    Raises:
        ValueError: a function returned what cannot be a name.
        CanonicalizeError: a named argument has no canonical form.
    """
    if isinstance(value, dict):
        name = of_arguments(partial(idempotency_key, namespace=task), value)
        return name, name.rpartition(":")[2]
    check_name(value, f"{what} of the task {task!r}")
    return value, ""
