"""What is measured, what it must reach, and what is made of many interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from benchmarks.stand import Stand

__all__ = [
    "Figure",
    "Scenario",
    "Target",
    "Timings",
    "arace",
    "at_least",
    "at_most",
    "exactly",
    "percentile",
    "race",
]

_PERCENT = 100


@dataclass(frozen=True)
class Target:
    """What a figure must reach.

    Attributes:
        relation: how it is compared.
        bound: with what.
        aim: what we would like it to be; missing it fails nothing.
    """

    relation: Literal["≥", "≤", "="]
    bound: float
    aim: float | None = None

    def met_by(self, value: float) -> bool:
        """Whether a value reaches it."""
        if self.relation == "≥":
            return value >= self.bound
        if self.relation == "≤":
            return value <= self.bound
        return value == self.bound

    def __str__(self) -> str:
        aim = "" if self.aim is None else f" (aim {self.aim:g})"
        return f"{self.relation} {self.bound:g}{aim}"


def at_least(bound: float, *, aim: float | None = None) -> Target:
    """Require a value or more."""
    return Target("≥", bound, aim)


def at_most(bound: float, *, aim: float | None = None) -> Target:
    """Require a value or less."""
    return Target("≤", bound, aim)


def exactly(bound: float) -> Target:
    """Require a value."""
    return Target("=", bound)


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        what: what was measured.
        value: the outcome; None where it could not be measured, and the note says why.
        unit: of the value; a ratio has none.
        target: what it must reach, or None for a figure that is only told.
        note: what else there is to know, such as the absolute times.
    """

    what: str
    value: float | None
    unit: str = ""
    target: Target | None = None
    note: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if self.target is None:
            return None
        return self.value is not None and self.target.met_by(self.value)


@dataclass(frozen=True)
class Scenario:
    """Some figures that are measured together.

    Attributes:
        name: what `--only` looks for.
        about: one line on how it is measured.
        measure: measures it.
    """

    name: str
    about: str
    measure: Callable[[Stand], Iterable[Figure]]


class Timings:
    """Seconds per cycle of several contenders, round by round."""

    def __init__(self, names: Iterable[str]) -> None:
        self.rounds: dict[str, list[float]] = {name: [] for name in names}

    def microseconds(self, name: str) -> float:
        """The median of a contender's cycles, microseconds."""
        return median(self.rounds[name]) * 1e6

    def speed(self, name: str, floor: str) -> float:
        """How fast a contender is, as a part of the floor's speed.

        The median of the rounds' own ratios: what slows a whole round down cancels out.
        """
        pairs = zip(self.rounds[floor], self.rounds[name], strict=True)
        return median(low / high for low, high in pairs)

    def note(self, *names: str) -> str:
        """The absolute times, for people."""
        return ", ".join(f"{name} {self.microseconds(name):.0f} µs" for name in names)


def percentile(values: Iterable[float], percent: int) -> float:
    """A percentile, the 50th being the median."""
    return quantiles(values, n=_PERCENT, method="inclusive")[percent - 1]


def _turns(names: list[str], rounds: int) -> Iterable[list[str]]:
    # Each contender begins a round equally often, so that none always follows the same other.
    for index in range(rounds):
        at = index % len(names)
        yield names[at:] + names[:at]


def race(contenders: Mapping[str, Callable[[int], object]], *, rounds: int, cycles: int) -> Timings:
    """Time contenders in interleaved rounds; each performs the cycles that it is told.

    Args:
        contenders: by name; a fast one may be given fewer cycles by itself.
        rounds: how often each has its turn.
        cycles: how many cycles a turn has.
    """
    timings = Timings(contenders)
    for run in contenders.values():
        run(max(cycles // 3, 1))
    for names in _turns(list(contenders), rounds):
        for name in names:
            began = time.perf_counter()
            contenders[name](cycles)
            timings.rounds[name].append((time.perf_counter() - began) / cycles)
    return timings


async def arace(
    contenders: Mapping[str, Callable[[int], Awaitable[object]]], *, rounds: int, cycles: int
) -> Timings:
    """Time async contenders as `race` does."""
    timings = Timings(contenders)
    for run in contenders.values():
        await run(max(cycles // 3, 1))
    for names in _turns(list(contenders), rounds):
        for name in names:
            began = time.perf_counter()
            await contenders[name](cycles)
            timings.rounds[name].append((time.perf_counter() - began) / cycles)
    return timings
