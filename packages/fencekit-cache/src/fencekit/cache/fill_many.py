"""Loading many missing entries with one call of the loader, each under a ticket of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fencekit.cache.entry import digest
from fencekit.cache.fill import Outcome, Terms, give_back
from fencekit.cache.policy import Subject
from fencekit.cache.protocol import (
    Found,
    Ticket,
    abandon,
    begin,
    invalidate,
    look_many,
    moment,
    new_attempt,
    read_nonces,
    store,
    together,
)
from fencekit.errors import FenceKitError, OutcomeUnknown, StoreError
from fencekit.protocol.operation import (
    Answer,
    AwaitWake,
    Call,
    Flow,
    Listen,
    Now,
    Operation,
    Together,
    Unlisten,
)

__all__ = ["fill_many"]

T = TypeVar("T")

_WHAT = "get_or_load_many"
# Seconds beyond the other's lease after which a waiter looks by itself.
_ALARM_SLACK = 0.005


class Batch(NamedTuple):
    """One round: who loads what.

    Attributes:
        taken: to be loaded and stored, with which ticket.
        bare: to be loaded and not stored: on hold, or the server is away.
        lost: being loaded by another; milliseconds until its ticket expires.
        changed: to be looked at again.
    """

    taken: dict[Subject, Ticket]
    bare: list[Subject]
    lost: dict[Subject, int]
    changed: list[Subject]


def fill_many(
    missing: Mapping[Subject, Found],
    terms: Terms[T],
    load: Callable[[list[Subject]], Any],
    pick: Callable[[Any, Subject], T | None],
) -> Flow[dict[Subject, Outcome]]:
    """Load all that was not found, but for what others are loading.

    All tickets that are had are used before another's is waited for, so that two callers who want
    the same keys in another order cannot wait for each other.

    Args:
        missing: what was found instead.
        terms: how the class stores.
        load: the application's loader.
        pick: takes one value out of what the loader returned.

    Raises:
        whatever the loader raises, unless stale values may be served; the tickets are given back.
    """
    done: dict[Subject, Outcome] = {}
    pending: dict[Subject, Found] = dict(missing)
    attempt = new_attempt()
    listening: Subject | None = None
    while pending:
        mine = list(pending)  # any of these tickets may be ours from here on
        try:
            batch = yield from _take(pending, terms, attempt, done)
            mine = list(batch.taken)
            if batch.taken or batch.bare:
                done.update((yield from _load(batch, pending, terms, load, pick, attempt=attempt)))
        except GeneratorExit:
            raise
        except BaseException:
            yield from _give_all_back(mine, attempt)
            raise
        pending = {subject: pending[subject] for subject in (*batch.changed, *batch.lost)}
        if batch.lost and not batch.changed:
            target = next(iter(batch.lost))
            if listening is target:
                seconds = max(batch.lost[target], 0) / 1000 + _ALARM_SLACK
                yield AwaitWake(target.channel, seconds, seconds)
            else:
                if listening is not None:
                    yield Unlisten(listening.channel)
                yield Listen(target.channel)  # and look once more before waiting
                listening = target
        if pending:
            yield from _look_again(pending, terms, done)
    if listening is not None:
        yield Unlisten(listening.channel)
    return done


def _take(
    pending: Mapping[Subject, Found],
    terms: Terms[Any],
    attempt: bytes,
    done: dict[Subject, Outcome],
) -> Flow[Batch]:
    bare = [subject for subject, found in pending.items() if found.failed]
    batch = Batch({}, bare, {}, [])
    unknown: list[Subject] = []
    asked = [subject for subject, found in pending.items() if not found.failed]
    operations = [begin(subject, terms.policy, attempt, pending[subject].seen) for subject in asked]
    answers: list[Answer | FenceKitError] = (yield Together(operations)) if operations else []
    for subject, operation, answer in zip(asked, operations, answers, strict=True):
        if isinstance(answer, FenceKitError):
            terms.watcher.trouble(_WHAT, answer)
            batch.bare.append(subject)
            if isinstance(answer, OutcomeUnknown):
                unknown.append(subject)
            continue
        ticket = operation.parse(answer.reply)
        found = pending[subject]
        if ticket.state == "taken":
            batch.taken[subject] = ticket
        elif ticket.state == "held":
            batch.bare.append(subject)
        elif ticket.state == "changed":
            batch.changed.append(subject)
        elif found.entry is not None:
            done[subject] = _old(found)
        else:
            batch.lost[subject] = ticket.left_ms
    yield from _give_all_back(unknown, attempt)  # or others wait for whom nobody loads
    return batch


def _load(
    batch: Batch,
    pending: Mapping[Subject, Found],
    terms: Terms[T],
    load: Callable[[list[Subject]], Any],
    pick: Callable[[Any, Subject], T | None],
    *,
    attempt: bytes,
) -> Flow[dict[Subject, Outcome]]:
    wanted = [*batch.taken, *batch.bare]
    as_of = moment()
    started: float = yield Now()
    nonces: dict[str, bytes] = {}
    taken = dict(batch.taken)
    try:
        tags = list(dict.fromkeys(tag for subject in taken for tag in subject.tags))
        nonces = dict(zip(tags, (yield from read_nonces(tags, terms.policy)), strict=True))
    except StoreError as error:
        terms.watcher.trouble(_WHAT, error)
        yield from _give_all_back(taken, attempt)
        taken = {}
    try:
        loaded = yield Call(lambda: load(wanted))
    except Exception as error:
        if any(pending[subject].entry is None for subject in wanted):
            raise
        yield from _give_all_back(taken, attempt)
        for subject in wanted:
            terms.watcher.load_failed(subject.key, error)
        return {subject: _old(pending[subject]) for subject in wanted}
    cost = (yield Now()) - started
    values = {subject: pick(loaded, subject) for subject in wanted}
    bodies = {
        subject: None if value is None else terms.encode(value) for subject, value in values.items()
    }
    operations = [
        _store_or_abandon(
            subject,
            terms,
            ticket,
            bodies[subject],
            cost=cost,
            tags=digest([nonces[tag] for tag in subject.tags]),
            attempt=attempt,
        )
        for subject, ticket in taken.items()
    ]
    answers: list[Answer | FenceKitError] = (yield Together(operations)) if operations else []
    for subject in wanted:
        terms.watcher.loaded(subject.key, cost)
    gone: list[Subject] = []
    lost: list[Subject] = []
    for subject, operation, answer in zip(taken, operations, answers, strict=True):
        if isinstance(answer, FenceKitError):
            terms.watcher.trouble(_WHAT, answer)
            lost.append(subject)
        elif not operation.parse(answer.reply):
            terms.watcher.fenced(subject.key)
        elif bodies[subject] is None and pending[subject].entry is not None:
            gone.append(subject)
    yield from _give_all_back(lost, attempt)
    yield from _remove(gone, terms)
    return {
        subject: Outcome(as_of, bodies[subject], values[subject], loaded=True) for subject in wanted
    }


def _store_or_abandon(
    subject: Subject,
    terms: Terms[Any],
    ticket: Ticket,
    body: bytes | None,
    *,
    cost: float,
    tags: bytes,
    attempt: bytes,
) -> Operation[bool]:
    if body is None and not terms.policy.negative_ms:
        return abandon(subject, attempt)
    return store(subject, terms.policy, ticket.held, body, cost=cost, tags=tags)


def _remove(gone: Sequence[Subject], terms: Terms[Any]) -> Flow[None]:
    """Remove what the source has no more, or it is served until its ttl or grace ends."""
    if not gone or terms.policy.negative_ms:
        return
    try:
        yield from together([invalidate(subject, 0, hasty=True) for subject in gone])
    except StoreError as error:
        terms.watcher.trouble(_WHAT, error)


def _give_all_back(subjects: Iterable[Subject], attempt: bytes) -> Flow[None]:
    # One after the other: what a cancelled flow does may be no pipeline. Where one cannot be given
    # back, a server is silent that would keep this waiting for each of the others.
    for subject in subjects:
        if not (yield from give_back(subject, attempt)):
            return


def _look_again(
    pending: dict[Subject, Found], terms: Terms[Any], done: dict[Subject, Outcome]
) -> Flow[None]:
    """Look whether the others have stored; what is found leaves ``pending``."""
    subjects = list(pending)
    try:
        again = yield from look_many(
            subjects, terms.policy, terms.clock, is_cluster=terms.is_cluster
        )
    except StoreError as error:
        terms.watcher.trouble(_WHAT, error)
        for subject in subjects:
            pending[subject] = pending[subject]._replace(failed=True)
        return
    for subject, found in zip(subjects, again, strict=True):
        if found.entry is not None and found.age == "fresh":
            done[subject] = _old(found)
            del pending[subject]
        else:
            pending[subject] = found


def _old(found: Found) -> Outcome:
    entry = found.entry
    body = None if entry is None or entry.negative else entry.body
    return Outcome(found.as_of, body, stale=found.age == "stale")
