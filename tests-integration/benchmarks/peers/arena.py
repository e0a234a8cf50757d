"""Asks the contenders, each in its own environment, in turns on one server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.peers import aasked, asked
from benchmarks.peers.environments import NotInstalled, environment
from benchmarks.peers.roster import OURS, ROSTER, Contender
from benchmarks.stand import Stand
from harness.children import Child, ChildEnded

__all__ = ["Arena", "Measured", "ask", "ratio"]

_ASYNC: Final = frozenset({"alock", "fifo", "ajobs", "acache"})
_TESTS: Final = Path(__file__).parents[2]
_START_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 60.0
_LAST_WORDS: Final = 120


class Measured:
    """What a contender did in one row.

    Attributes:
        value: the figure; None where there is none, and the note says why.
        note: the absolute times, or what went wrong.
    """

    def __init__(self, value: float | None, note: str = "") -> None:
        self.value, self.note = value, note


class Arena:
    """The contenders that could be installed, and those that could not with the reason.

    Attributes:
        stand: the server.
        pythons: the interpreters of those that could.
        absent: the reasons of the others.
        idle: what waiters cost, by role: two rows are told from one measurement.
    """

    def __init__(self, stand: Stand, roles: frozenset[str] | None = None) -> None:
        """Make the environments that are missing.

        Args:
            stand: the server.
            roles: whose contenders are wanted; None for all.
        """
        self.stand = stand
        self.pythons: dict[str, Path] = {}
        self.idle: dict[str, dict[str, Any]] = {}
        self.absent: dict[str, str] = {}
        for contender in ROSTER:
            if roles is not None and not roles & contender.roles:
                continue
            try:
                self.pythons[contender.name] = (
                    Path(sys.executable)
                    if contender.name == OURS
                    else environment(contender.name, contender.pins)
                )
            except NotInstalled as error:
                self.absent[contender.name] = str(error)

    def playing(self, role: str) -> list[Contender]:
        """Who plays a role here."""
        return [one for one in ROSTER if role in one.roles and one.name in self.pythons]

    @contextmanager
    def child(self, contender: Contender, role: str) -> Iterator[Child]:
        """A process that answers questions as that contender."""
        env = {} if contender.name == OURS else {"PYTHONPATH": str(_TESTS)}
        python = str(self.pythons[contender.name])
        function: Callable[..., object] = aasked.aanswer if role in _ASYNC else asked.answer
        url = self.stand.server.url
        with Child(function, contender.module, url, env=env, python=python) as child:
            child.expect("ready", timeout=_START_SECONDS)
            yield child

    def compare(
        self,
        role: str,
        question: str,
        read: Callable[[list[Any]], Measured],
        *,
        rounds: int = 5,
        **options: Any,
    ) -> dict[str, Measured]:
        """Ask all of them the same, in so many interleaved rounds, everything on one core.

        Args:
            role: which role they are asked in.
            question: a method of `Asked`.
            read: makes a figure of all the answers of one contender.
            rounds: how often each has its turn.
            options: arguments of the question.
        """
        asked_ones = [one for one in self.playing(role) if question not in one.lacks]
        answers: dict[str, list[Any]] = {one.name: [] for one in asked_ones}
        failed: dict[str, str] = {}
        self.stand.clean()
        with self.stand.pinned(), ExitStack() as stack:
            children: dict[str, Child] = {}
            for one in asked_ones:
                with self._noting(one.name, failed):
                    children[one.name] = stack.enter_context(self.child(one, role))
            names = list(children)
            for index in range(rounds):
                at = index % len(names)
                for name in names[at:] + names[:at]:
                    if name not in failed:
                        with self._noting(name, failed):
                            answers[name].append(
                                ask(children[name], question, role=role, **options)
                            )
        return _outcomes(answers, failed, read)

    def each(
        self, role: str, work: Callable[[Contender], Measured], *, pinned: bool = False
    ) -> dict[str, Measured]:
        """Measure one contender after the other, on all cores unless they are pinned."""
        found: dict[str, Measured] = {}
        for one in self.playing(role):
            self.stand.clean()
            failed: dict[str, str] = {}
            with ExitStack() as stack, self._noting(one.name, failed):
                if pinned:
                    stack.enter_context(self.stand.pinned())
                found[one.name] = work(one)
            if failed:
                found[one.name] = Measured(None, failed[one.name])
        return found

    @contextmanager
    def _noting(self, name: str, failed: dict[str, str]) -> Iterator[None]:
        """Note what goes wrong with one contender; with ours it is an error."""
        try:
            yield
        except (ChildEnded, TimeoutError) as error:
            if name == OURS:
                raise
            lines = str(error).strip().splitlines()
            failed[name] = (lines[-1] if lines else repr(error))[:_LAST_WORDS]


def ask(child: Child, question: str, timeout: float = _ANSWER_SECONDS, **options: Any) -> Any:
    """Ask one contender, and wait for the answer."""
    child.tell(question, options)
    return child.expect("answer", timeout)[1]


def _outcomes(
    answers: Mapping[str, list[Any]],
    failed: Mapping[str, str],
    read: Callable[[list[Any]], Measured],
) -> dict[str, Measured]:
    return {
        name: Measured(None, failed[name]) if name in failed else read(given)
        for name, given in answers.items()
    }


def ratio(answers: list[list[list[float]]]) -> Measured:
    """How fast a contender is, as a part of its floor's speed: the median of the turns."""
    turns = [turn for answer in answers for turn in answer]
    floor, own = (median(turn[which] for turn in turns) * 1e6 for which in (0, 1))
    return Measured(median(low / high for low, high in turns), f"{own:.0f} µs of {floor:.0f}")
