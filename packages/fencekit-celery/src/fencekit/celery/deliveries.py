"""The message that is being run, as far as an idempotent task must know it."""

from __future__ import annotations

import logging
import math
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from kombu.exceptions import EncodeError

from celery import Task, current_task, signals, states
from celery.backends.redis import RedisBackend
from celery.exceptions import Ignore, Reject
from celery.worker.request import Request
from fencekit.celery.chords import is_full, is_saved
from fencekit.celery.encodings import encodings

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery.app.task import Context

__all__ = ["Delivery", "running_delivery", "running_task", "was_put_off"]

_log = logging.getLogger("fencekit.celery")

# How often, and for how many milliseconds in all, a message was put off, and whether it has seen
# its own work done: "times:milliseconds:seen".
HEADER: Final = "fencekit_deferred"
# The first pause and the longest, seconds. Each is twice as long as the one before, but never goes
# on after the lease in the way is over.
_FIRST: Final = 0.25
_LONGEST: Final = 30.0
_SLACK: Final = 0.05
_MOST_DOUBLINGS: Final = 16
_MARK: Final = "_fencekit_publish"
_END: Final = "_fencekit_end"
_ENTERED: Final = "_fencekit_entered"
_PUT_OFF: Final = "_fencekit_put_off"
_FULL: Final = "its chord is full, and has not gone on"
_ACKNOWLEDGES_LOST: Final = hasattr(Request, "_success_was_stored")


class Delivery:
    """One message that a worker runs.

    Attributes:
        task: the task, an instance.
        request: what Celery knows of the message.
    """

    def __init__(self, task: Task, request: Context) -> None:
        self.task = task
        self.request = request

    @property
    def id(self) -> str:
        """The id of the message, empty for a direct call."""
        return self.request.id or ""

    @property
    def feeds_a_canvas(self) -> bool:
        """Whether other work waits for its result."""
        request = self.request
        return bool(request.chain or request.chord or request.group or request.callbacks)

    @property
    def has_readers(self) -> bool:
        """Whether its result goes anywhere at all."""
        return self.feeds_a_canvas or self.stores_result

    @property
    def stores_result(self) -> bool:
        """Whether its result is kept in a result backend."""
        return not self._ignores_result

    @property
    def is_broadcast(self) -> bool:
        """Whether each worker has a copy, so that publishing one again would multiply them."""
        exchange = (self.request.delivery_info or {}).get("exchange")
        return any(
            found.type == "fanout" for queue in self._queues() for found in _named(exchange, queue)
        )

    def blame(self) -> None:
        """Have the next exception end the message as a failure, whatever ``autoretry_for`` says.

        A task that was called directly is not retried: `Task.retry` raises its exception on.
        """
        self.request.called_directly = True

    def published(self, *, noted: bool) -> bool:
        """Whether the success of this very message is where it is waited for.

        Its callbacks and its chain have been sent then. That it is counted in its chord is made
        sure of here with Redis, which counts a message once. Other backends would count it again.

        Args:
            noted: whether its record says so. Another state may have been written over it since:
                a copy of the message, or an attempt that was replaced, looked before it was there.

        Raises:
            Ignore, Reject: it could not be counted, and is put off.
        """
        if not self.stores_result or (noted and self.feeds_a_canvas):
            return noted
        backend, request = self.task.backend, self.request
        try:
            meta = backend.get_task_meta(self.id, cache=False)
        except Exception:  # noqa: BLE001 - no backend, or none that can be asked
            return noted
        if meta.get("status") != states.SUCCESS:
            # What is gone by now has expired, or was forgotten.
            return noted and meta.get("status") == states.PENDING
        group: Any = request.group  # never None where there is a chord
        if request.chord and isinstance(backend, RedisBackend):
            try:
                backend.on_chord_part_return(request, states.SUCCESS, meta.get("result"))
                waits = is_full(backend, group)
            except Exception:  # noqa: BLE001 - it has succeeded, whatever becomes of its chord
                self.defer(None, "its chord could not be told of it", counted=False)
            if waits:
                self.defer(None, _FULL, counted=False)
        return True

    def count_in_chord(self, result: Any, *, again: bool) -> None:
        """Have its success counted in its chord before it is stored, where Celery needs that.

        A worker of Celery 5.7 that loses a process of its pool acknowledges a message whose success
        is stored: were it not counted by then, its chord would never go on.

        Args:
            result: what the task returns.
            again: whether the message may have been counted by somebody who died with the chord.

        Raises:
            Ignore, Reject: nobody may go on with the chord yet; the message is put off.
        """
        request = self.request
        if not request.chord or not _ACKNOWLEDGES_LOST:
            return
        group: Any = request.group
        waits = False
        try:
            backend = self.task.backend
            if type(backend) is RedisBackend and not is_saved(backend, group):
                backend.on_chord_part_return(request, states.SUCCESS, result)
                waits = again and is_full(backend, group)
                request.chord = request.chord if waits else None
        except Exception:  # noqa: BLE001 - Celery counts it, or meets the same
            _log.debug("the chord of %r is left to Celery", self.id, exc_info=True)
        if waits:
            self.defer(None, _FULL, counted=False)

    def failed_before(self) -> bool:
        """Whether this is a redelivery of a message whose failure is on record."""
        if not (self.request.delivery_info or {}).get("redelivered") or not self.stores_result:
            return False
        try:
            return bool(self.task.backend.get_state(self.id) == states.FAILURE)
        except Exception:  # noqa: BLE001 - no backend, or none that can be asked
            return False

    def when_published(self, mark: Callable[[], object]) -> None:
        """Have this done when the result is published, where publishing it again would tell."""
        if self.feeds_a_canvas or not self.stores_result:
            setattr(self.request, _MARK, mark)
            # Not before: a receiver costs every task of the process.
            signals.task_success.connect(
                _note_success, weak=False, dispatch_uid="fencekit-published"
            )

    def is_told(self) -> None:
        """Its result is stored: have Celery not store it once more."""
        self.request.ignore_result = True

    @property
    def retries_itself(self) -> bool:
        """Whether Celery may send it again for an exception that the body raises."""
        return hasattr(self.task, "_orig_run")

    def when_told(self, end: Callable[[], object]) -> None:
        """Have this done when the state of this run is written, whatever it is.

        Until then the key is taken: a retry of the message could else be done before it, and the
        state of this run would be written over its result.
        """
        setattr(self.request, _END, end)
        signals.task_postrun.connect(_note_end, weak=False, dispatch_uid="fencekit-ended")

    def begun(self) -> None:
        """The waiting is over: a retry that the body asks for has its own."""
        if self.request.headers:
            self.request.headers.pop(HEADER, None)
        self.request.__dict__.pop(HEADER, None)

    def waited(self) -> timedelta:
        """How long the message was put off so far."""
        return timedelta(milliseconds=self._deferred()[1])

    def has_seen_done(self) -> bool:
        """Whether it was put off by `give_time_to_publish`."""
        return self._deferred()[2]

    def give_time_to_publish(self, seconds: float) -> NoReturn:
        """Come back later: whoever has just done the work may be about to publish its result.

        Raises:
            Ignore: it was published.
            Reject: it could not be, and is given back to the broker.
        """
        times, waited_ms, _ = self._deferred()
        self._come_back(seconds, f"{times + 1}:{waited_ms}:1", "its result is being published")

    def defer(self, retry_after: float | None, why: str, *, counted: bool) -> NoReturn:
        """Publish the message again as it is, to come back later, and end this run of it.

        Args:
            retry_after: seconds until the lease in the way is over; None where that is not known.
            why: for the log.
            counted: whether the pause counts against ``busy_timeout``.

        Raises:
            Ignore: it was published.
            Reject: it could not be, and is given back to the broker.
        """
        times, waited_ms, seen = self._deferred()
        pause = min(_FIRST * 2 ** min(times, _MOST_DOUBLINGS), _LONGEST, self._longest_pause())
        pause *= 1 + random.random() / 4  # noqa: S311 - spread, not a secret
        if retry_after is not None:
            pause = min(pause, max(retry_after, 0.0) + _SLACK)
        if counted:
            waited_ms += math.ceil(pause * 1000)
        self._come_back(pause, f"{times + 1}:{waited_ms}:{int(seen)}", why)

    def _come_back(self, pause: float, deferred: str, why: str) -> NoReturn:
        try:
            self._publish(pause, deferred)
        except Exception as error:
            if not self.task.acks_late:
                self.blame()
                raise
            raise Reject(error, requeue=True) from error
        setattr(self.request, _PUT_OFF, True)
        raise Ignore(f"{why}: {self.task.name}[{self.id}] comes back in {pause:.2f} s")

    @property
    def _ignores_result(self) -> bool:
        # The class of requests has a False of its own, which says nothing.
        asked = self.request.__dict__.get("ignore_result")
        return bool(self.task.ignore_result if asked is None else asked)

    def _longest_pause(self) -> float:
        """Well within the visibility timeout: a worker keeps the message while it waits."""
        options = self.task.app.conf.broker_transport_options or {}
        return float(options.get("visibility_timeout") or math.inf) / 2

    def _deferred(self) -> tuple[int, int, bool]:
        request = self.request
        # The older protocol has headers that are no part of the message's own.
        found = request.get(HEADER) or (request.headers or {}).get(HEADER) or "0:0:0"
        times, waited_ms, seen = str(found).split(":")
        return int(times), int(waited_ms), seen == "1"

    def _queues(self) -> list[Any]:
        """The queues of the exchange that it came through; none where it came without one."""
        exchange = (self.request.delivery_info or {}).get("exchange")
        known = self.task.app.amqp.queues.values() if exchange else ()
        return [queue for queue in known if _named(exchange, queue)]

    def _publish(self, countdown: float, deferred: str) -> None:
        request, task = self.request, self.task
        options = {**task._get_exec_options(), **request.as_execution_options()}  # noqa: SLF001 - as `apply_async` itself
        options["headers"] = {
            **{k: v for k, v in (options.get("headers") or {}).items() if k != "redelivered"},
            HEADER: deferred,
        }
        options["ignore_result"] = self._ignores_result
        # What its sender has hidden stays so.
        options.update(argsrepr=request.get("argsrepr"), kwargsrepr=request.get("kwargsrepr"))
        info = request.delivery_info or {}
        if self.is_broadcast:
            info = {**info, "exchange": "", "routing_key": task.app.conf.task_default_queue}
        elif queues := self._queues():
            # Else Redis takes the exchange for a direct one: a message to a topic is nobody's then.
            options["declare"] = queues
        options.update(_route(info, options))
        # Else `send_task` makes the message its own parent, and the task its own child.
        request.called_directly = True
        conf, arguments = task.app.conf, cast("Any", (request.args, request.kwargs))
        tried = encodings(
            options.pop("serializer", None) or conf.task_serializer,
            conf.accept_content,
            [list(arguments[0]), dict(arguments[1])],
        )
        for serializer in tried:
            try:
                task.app.send_task(
                    task.name,
                    request.args,
                    request.kwargs,
                    countdown=countdown,
                    add_to_parent=False,
                    task_type=task,
                    serializer=serializer,
                    **options,
                )
            except EncodeError:
                if serializer == tried[-1]:
                    raise
            else:
                return


def _named(name: str | None, queue: Any) -> list[Any]:
    """The exchanges of this name that a queue is bound to."""
    bound = (queue.exchange, *(binding.exchange for binding in queue.bindings or ()))
    return [exchange for exchange in bound if exchange is not None and exchange.name == name]


def _route(delivery_info: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Back to where it came from, at the priority it had."""
    options.pop("queue", None)
    exchange, routing_key = delivery_info.get("exchange"), delivery_info.get("routing_key")
    route: dict[str, Any] = {}
    if not exchange and routing_key:
        options.pop("exchange", None)
        options.pop("routing_key", None)
        route["queue"] = routing_key
    elif exchange:
        route.update(exchange=exchange, routing_key=routing_key)
    if delivery_info.get("priority") is not None:
        route["priority"] = delivery_info["priority"]
    return route


def running_task() -> Task | None:
    """The task that runs here."""
    # The object, not the proxy: it is kept, and compared by identity.
    task: Task | None = current_task._get_current_object()  # noqa: SLF001 - no other way
    return task


def running_delivery(task: Task) -> Delivery | None:
    """The message that a running task runs.

    None for a direct call, also where the body of a message's task calls its own function again.
    """
    request = task.request
    if request.called_directly:
        return None
    entered: dict[str, Any] = request.__dict__
    if _ENTERED in entered:
        return None
    entered[_ENTERED] = True
    return Delivery(task, request)


def was_put_off(request: Context) -> bool:
    """Whether the message of a run that was ignored comes back."""
    return _PUT_OFF in request.__dict__


def _note_success(sender: Task, **_: Any) -> None:
    mark = sender.request.__dict__.pop(_MARK, None)
    if mark is None:
        return
    try:
        mark()
    except Exception as error:  # noqa: BLE001 - the result is published all the same
        _log.warning(
            "that the result of %s[%s] is published could not be recorded (%s): delivered once "
            "more, it is published once more",
            sender.name,
            sender.request.id,
            error,
        )


def _note_end(sender: Task, **_: Any) -> None:
    end = sender.request.__dict__.pop(_END, None)
    if end is not None:
        end()
