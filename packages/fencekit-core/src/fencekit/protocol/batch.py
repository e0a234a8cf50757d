"""Many flows side by side, whose steps travel together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fencekit.errors import FenceKitError
from fencekit.protocol.operation import (
    Answer,
    Flow,
    Now,
    Operation,
    Sleep,
    Step,
    Together,
    perform,
)

__all__ = ["side_by_side"]

T = TypeVar("T")
S = TypeVar("S", bound=Step)


def side_by_side(
    flows: Sequence[Flow[T]], undo: Callable[[T], Operation[Any] | None] | None = None
) -> Flow[list[T | FenceKitError]]:
    """Run flows that ask for operations, the time and pauses; one's error is its own.

    What they ask of the server in one round goes in one pipeline for each node, and one pause is
    for all, so that a server that is silent is waited for no longer by many flows than by one.

    Args:
        flows: what to run, none of them begun.
        undo: what takes back the outcome of a flow that had ended when the others were interrupted,
            or None where that is nothing.

    Raises:
        whatever is thrown in that is no error of the store, or raised by a flow. It is thrown into
            each of the others, what they do to tidy up goes in rounds as well, and it goes on.
    """
    rounds = _Rounds()
    try:
        for flow in flows:
            rounds.take_in(flow, None)
        while rounds.steps:
            yield from rounds.go_on()
    except GeneratorExit:
        for flow in flows:
            flow.close()
        raise
    except BaseException as interrupt:
        ended = list(rounds.outcomes.values())
        for flow in list(rounds.steps):
            rounds.take_in(flow, interrupt)
        for outcome in ended:
            if undo is not None and not isinstance(outcome, FenceKitError):
                operation = undo(outcome)
                if operation is not None:
                    rounds.take_in(perform(operation), None)
        while rounds.steps:
            yield from rounds.go_on()
        raise
    return [rounds.outcomes[flow] for flow in flows]


class _Rounds:
    """Flows under way.

    Attributes:
        steps: what those wait for that have not ended.
        outcomes: what became of those that have.
    """

    def __init__(self) -> None:
        self.steps: dict[Flow[Any], Step] = {}
        self.outcomes: dict[Flow[Any], Any] = {}

    def go_on(self) -> Flow[None]:
        """One round: what can be told at once is told first, and nobody sleeps while others ask."""
        if timing := self._asking(Now):
            now: float = yield Now()
            for flow in timing:
                self.take_in(flow, now)
        elif asking := self._asking(Operation):
            answers: list[Answer | FenceKitError] = yield Together(list(asking.values()))
            for flow, answer in zip(asking, answers, strict=True):
                self.take_in(flow, answer)
        elif sleeping := self._asking(Sleep):
            yield Sleep(max(step.seconds for step in sleeping.values()))
            for flow in sleeping:
                self.take_in(flow, None)
        else:
            msg = f"not to be done side by side: {next(iter(self.steps.values()))!r}"
            raise TypeError(msg)

    def _asking(self, kind: type[S]) -> dict[Flow[Any], S]:
        return {flow: step for flow, step in self.steps.items() if isinstance(step, kind)}

    def take_in(self, flow: Flow[Any], result: Any) -> None:
        """Tell a flow what became of its step: the result, or an error of any kind."""
        self.steps.pop(flow, None)
        try:
            step = flow.throw(result) if isinstance(result, BaseException) else flow.send(result)
        except StopIteration as stop:
            self.outcomes[flow] = stop.value
        except FenceKitError as error:
            self.outcomes[flow] = error
        except BaseException as error:
            if error is not result:
                raise
            # Interrupted, and it has nothing to tidy up.
        else:
            self.steps[flow] = step
