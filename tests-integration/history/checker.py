"""Whether a history can be put in an order that a model allows and that the clock does not forbid.

An operation takes effect once, at some moment between its invocation and its completion. One whose
outcome is not known has no completion: it may take effect at any time after its invocation, or not
at all. The same serves for what happens by itself, such as the end of a lease: it begins at the
earliest moment at which it may happen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Model", "Operation", "Undecided", "Verdict", "check", "check_all"]

_S = TypeVar("_S", bound=Hashable)
_FOREVER = float("inf")


class Undecided(Exception):
    """The search was given up; the history is neither good nor bad."""


@dataclass(frozen=True)
class Operation:
    """What somebody asked for, and what was answered.

    Attributes:
        kind: what was asked, in the model's words.
        began: when it was asked, seconds on any clock that all share.
        ended: when the answer was there; None if none ever was.
        argument: what it was asked with.
        answer: what was answered; None if nothing.
        by: who asked, for people who read the verdict.
        key: of what; each key is judged by itself.
    """

    kind: str
    began: float
    ended: float | None
    argument: Any = None
    answer: Any = None
    by: str = ""
    key: str = ""

    @property
    def end(self) -> float:
        """When it must have taken effect."""
        return _FOREVER if self.ended is None else self.ended


class Model(Protocol[_S]):
    """What may be: states, and how an operation leads from one to others."""

    @property
    def start(self) -> _S:
        """The state at the beginning."""

    def step(self, state: _S, operation: Operation) -> Iterable[_S]:
        """The states after an operation that was answered so; none if it cannot have been."""


@dataclass(frozen=True)
class Verdict:
    """What came out.

    Attributes:
        legal: whether there is an order.
        operations: how many were judged.
        stuck: where the best attempt stood: the operations of which one had to be next.
    """

    legal: bool
    operations: int
    stuck: list[Operation] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.legal


def check_all(
    history: Iterable[Operation], model: Model[_S], *, most_states: int = 2_000_000
) -> dict[str, Verdict]:
    """Judge the history of each key by itself.

    Raises:
        Undecided: there was too much to try.
    """
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    return {key: check(each, model, most_states=most_states) for key, each in by_key.items()}


def check(
    history: Sequence[Operation], model: Model[_S], *, most_states: int = 2_000_000
) -> Verdict:
    """Judge one history.

    Args:
        history: operations in any order.
        model: what may be.
        most_states: give up when so many were looked at.

    Raises:
        Undecided: there was too much to try.
        ValueError: an operation ends before it begins.
    """
    for operation in history:
        if operation.end < operation.began:
            raise ValueError(f"ends before it begins: {operation}")
    search = _Search(
        sorted((one for one in history if one.ended is not None), key=lambda one: one.began),
        sorted((one for one in history if one.ended is None), key=lambda one: one.began),
        model,
    )
    stack = [search.at(frozenset(), 0, model.start)]
    seen: set[Hashable] = set()
    while stack:
        place = next(stack[-1], None)
        if place is None:
            stack.pop()
            continue
        if place in seen:
            continue
        seen.add(place)
        if len(seen) > most_states:
            raise Undecided(f"{len(history)} operations: more than {most_states} states")
        if place[1] == len(search.ended):
            return Verdict(legal=True, operations=len(history))
        stack.append(search.at(*place))
    return Verdict(legal=not search.ended, operations=len(history), stuck=search.stuck)


@dataclass
class _Search(Generic[_S]):
    """A place in the search: which were put in order, as the first that was not and those beyond.

    Attributes:
        ended: operations with an answer, by invocation: all must be put in order.
        open: the others, of which any may be left out.
        model: what may be.
        stuck: what stood in front of the place that was furthest.
    """

    ended: list[Operation]
    open: list[Operation]
    model: Model[_S]
    stuck: list[Operation] = field(default_factory=list)
    _furthest: int = -1

    def at(
        self, done: frozenset[int], first: int, state: _S
    ) -> Iterator[tuple[frozenset[int], int, _S]]:
        """The places after this one. Open operations are numbered from -1 downwards."""
        waiting: list[int] = []
        deadline = _FOREVER
        for number in range(first, len(self.ended)):
            if self.ended[number].began > deadline:
                break
            if number not in done:
                waiting.append(number)
                deadline = min(deadline, self.ended[number].end)
        # Whoever began after another had ended cannot have been before it.
        waiting = [number for number in waiting if self.ended[number].began <= deadline]
        reached = first + sum(number >= first for number in done)
        if reached > self._furthest:
            self._furthest, self.stuck = reached, [self.ended[number] for number in waiting]
        for number in waiting:
            for after in self.model.step(state, self.ended[number]):
                yield (*self._with(done, first, number), after)
        for number, operation in enumerate(self.open, start=1):
            if operation.began > deadline:
                break
            if -number not in done:
                for after in self.model.step(state, operation):
                    yield done | {-number}, first, after

    def _with(self, done: frozenset[int], first: int, number: int) -> tuple[frozenset[int], int]:
        more = set(done)
        more.add(number)
        while first in more:
            more.remove(first)
            first += 1
        return frozenset(more), first
