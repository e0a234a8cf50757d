"""Loading what is missing: one load at a time in all processes, and no outdated value stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from fencekit.cache.policy import Policy, Subject
from fencekit.cache.protocol import (
    Clock,
    Found,
    Ticket,
    abandon,
    begin,
    invalidate,
    look,
    moment,
    new_attempt,
    read_tags,
    store,
)
from fencekit.errors import FenceKitError, OutcomeUnknown, StoreError
from fencekit.protocol.operation import (
    AwaitWake,
    Call,
    Flow,
    Listen,
    Now,
    Unlisten,
    perform,
)

__all__ = ["Outcome", "Terms", "Watcher", "fill", "give_back"]

T = TypeVar("T")

# Seconds beyond the other's lease after which a waiter looks by itself.
_ALARM_SLACK = 0.005


class Outcome(NamedTuple):
    """How a fill ended.

    Attributes:
        as_of: the moment this holds of; good for whoever began before it.
        body: the JSON, or None: nothing is to be had.
        value: what the load returned, where it ran here; else None.
        loaded: whether the load ran here.
        stale: whether it is an old value, served within its grace.
    """

    as_of: int
    body: bytes | None
    value: Any = None
    loaded: bool = False
    stale: bool = False


class Watcher(Protocol):
    """Who is told of what happens in a fill; see `CacheHooks`."""

    def loaded(self, key: str, seconds: float) -> None:
        """A load has succeeded here."""

    def waited(self, key: str, seconds: float) -> None:
        """Another's load was waited for."""

    def fenced(self, key: str) -> None:
        """A value was not stored: it may be older than an invalidation."""

    def trouble(self, what: str, error: FenceKitError) -> None:
        """The server could not be asked; raises where the application wants to know."""

    def load_failed(self, key: str, error: Exception) -> None:
        """A load failed here, and the stale value is served instead."""


@dataclass(frozen=True)
class Terms(Generic[T]):
    """What a fill goes by.

    Attributes:
        policy: how the class stores.
        clock: the server's.
        encode: makes JSON of a loaded value.
        watcher: who is told.
        is_cluster: whether keys may live on different nodes.
    """

    policy: Policy
    clock: Clock
    encode: Callable[[T], bytes]
    watcher: Watcher
    is_cluster: bool


def fill(subject: Subject, terms: Terms[T], first: Found, load: Callable[[], Any]) -> Flow[Outcome]:
    """Load an entry that was not found, or wait for the load of another.

    Raises:
        whatever the load raises, unless a stale value may be served; the ticket is given back.
    """
    if first.failed:
        return (yield from _load_only(subject, terms, first, load))
    attempt = new_attempt()
    try:
        answer = yield from _take(subject, terms, first, attempt)
        if isinstance(answer, Outcome):
            return answer
        ticket, found = answer
        if ticket.state != "taken":
            return (yield from _load_only(subject, terms, found, load))
        return (
            yield from _load_and_store(subject, terms, found, load, ticket=ticket, attempt=attempt)
        )
    except GeneratorExit:
        raise
    except BaseException:
        # Failed or cancelled, here or while the ticket was asked for: it may be ours.
        yield from give_back(subject, attempt)
        raise


def _take(
    subject: Subject, terms: Terms[T], found: Found, attempt: bytes
) -> Flow[Outcome | tuple[Ticket, Found]]:
    """Take the ticket, or what another has stored meanwhile, or the stale value."""
    waiting_since: float | None = None
    while True:
        try:
            ticket = yield from perform(begin(subject, terms.policy, attempt, found.seen))
            if ticket.state == "changed":
                found = yield from look(subject, terms.policy, terms.clock)
        except StoreError as error:
            terms.watcher.trouble("get_or_load", error)
            if isinstance(error, OutcomeUnknown):
                yield from give_back(subject, attempt)  # or others wait for whom nobody loads
            ticket = Ticket("held")
        if ticket.state in {"taken", "held"}:
            break
        entry = found.entry
        if entry is not None and (ticket.state == "lost" or found.age == "fresh"):
            if waiting_since is not None:
                yield from _stop_waiting(subject, terms, waiting_since, None)
            body = None if entry.negative else entry.body
            return Outcome(found.as_of, body, stale=found.age == "stale")
        if ticket.state == "changed":
            continue
        if waiting_since is None:
            waiting_since = yield Now()
            yield Listen(subject.channel)
            continue  # the other may have stored before wakes could arrive
        seconds = max(ticket.left_ms, 0) / 1000 + _ALARM_SLACK
        yield AwaitWake(subject.channel, seconds, seconds)
    if waiting_since is not None:
        yield from _stop_waiting(subject, terms, waiting_since, terms.policy.lease_ms / 1000)
    return ticket, found


def _stop_waiting(
    subject: Subject, terms: Terms[Any], since: float, alarm: float | None
) -> Flow[None]:
    yield Unlisten(subject.channel, alarm)
    now: float = yield Now()
    terms.watcher.waited(subject.key, now - since)


def _load_and_store(
    subject: Subject,
    terms: Terms[T],
    found: Found,
    load: Callable[[], Any],
    *,
    ticket: Ticket,
    attempt: bytes,
) -> Flow[Outcome]:
    policy, watcher = terms.policy, terms.watcher
    as_of = moment()
    started: float = yield Now()
    try:
        # Before the load, so that a tag bumped during it makes what is stored a miss.
        tags = yield from read_tags(subject, policy)
    except StoreError as error:
        watcher.trouble("get_or_load", error)
        yield from give_back(subject, attempt)
        return (yield from _load_only(subject, terms, found, load))
    value = yield from _load(subject, terms, found, load)
    if isinstance(value, Outcome):
        yield from give_back(subject, attempt)
        return value
    cost = (yield Now()) - started
    watcher.loaded(subject.key, cost)
    body = None if value is None else terms.encode(value)
    ended = moment()
    try:
        if body is None and not policy.negative_ms:
            # This very ticket: a late copy of `begin` may have taken another since.
            kept = yield from perform(abandon(subject, ticket.held))
            if kept and found.entry is not None:
                # The source has it no more: neither is it served until its ttl or grace ends.
                yield from perform(invalidate(subject, 0, hasty=True))
        else:
            kept = yield from perform(
                store(subject, policy, ticket.held, body, cost=cost, tags=tags)
            )
    except StoreError as error:
        watcher.trouble("get_or_load", error)
        yield from give_back(subject, attempt)
        kept = False
    else:
        if not kept:
            watcher.fenced(subject.key)
    # Kept: nothing was invalidated until then. Tags are known only as they were before the load.
    return Outcome(ended if kept and not tags else as_of, body, value, loaded=True)


def _load_only(
    subject: Subject, terms: Terms[T], found: Found, load: Callable[[], Any]
) -> Flow[Outcome]:
    """Load without storing: on hold, or the server is away."""
    as_of = moment()
    started: float = yield Now()
    value = yield from _load(subject, terms, found, load)
    if isinstance(value, Outcome):
        return value
    terms.watcher.loaded(subject.key, (yield Now()) - started)
    body = None if value is None else terms.encode(value)
    return Outcome(as_of, body, value, loaded=True)


def _load(subject: Subject, terms: Terms[T], found: Found, load: Callable[[], Any]) -> Flow[Any]:
    try:
        return (yield Call(load))
    except Exception as error:
        entry = found.entry
        if entry is None or entry.negative:
            raise
        terms.watcher.load_failed(subject.key, error)
        return Outcome(found.as_of, entry.body, stale=found.age == "stale")


def give_back(subject: Subject, attempt: bytes) -> Flow[bool]:
    """Give a ticket back; False where the server cannot be asked: it expires with its lease."""
    try:
        yield from perform(abandon(subject, attempt))
    except StoreError:
        return False
    return True
