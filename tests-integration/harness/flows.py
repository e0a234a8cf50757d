"""Drive a flow by hand: look at each step, answer it or throw at it.

play = Play(acquire(claimant))
play.script("lock_acquire")             # the step is this script's operation
play.answer([1, b"7"], sends=2)
play.result                             # what the flow returned
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fencekit.protocol.operation import Answer, Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencekit.protocol.operation import Flow

__all__ = ["Play"]

T = TypeVar("T")
S = TypeVar("S")

_RUNNING = object()


class Play(Generic[T]):
    """A flow under way.

    Attributes:
        step: what it asks for now; None when it has ended.
    """

    def __init__(self, flow: Flow[T]) -> None:
        """Run the flow to its first step."""
        self._flow = flow
        self._result: Any = _RUNNING
        self.step: Any = None
        self._go(lambda: next(flow))

    @property
    def ended(self) -> bool:
        """Whether the flow has returned or raised."""
        return self.step is None

    @property
    def result(self) -> T:
        """What the flow returned."""
        assert self._result is not _RUNNING, f"the flow goes on with {self.step!r}"
        result: T = self._result
        return result

    def script(self, name: str) -> Operation[Any]:
        """Return the operation that the flow asks for, which must be of this script."""
        assert isinstance(self.step, Operation), f"{self.step!r} is no operation"
        assert self.step.script.name == name
        return self.step

    def asks(self, kind: type[S]) -> S:
        """Return the step, which must be of this kind."""
        assert isinstance(self.step, kind), f"{self.step!r} is no {kind.__name__}"
        return self.step

    def send(self, value: Any = None) -> Play[T]:
        """Answer the step."""
        self._go(lambda: self._flow.send(value))
        return self

    def answer(
        self, reply: Any, *, sends: int = 1, sent_at: float = 0.0, replicas: int = 0
    ) -> Play[T]:
        """Answer the step, an operation, with a raw reply."""
        assert isinstance(self.step, Operation), f"{self.step!r} is no operation"
        return self.send(Answer(reply, sends=sends, sent_at=sent_at, replicas=replicas))

    def throw(self, error: BaseException) -> Play[T]:
        """Throw at the step; what the flow lets out comes out of here."""
        self._go(lambda: self._flow.throw(error))
        return self

    def _go(self, move: Callable[[], Any]) -> None:
        try:
            self.step = move()
        except StopIteration as stop:
            self.step, self._result = None, stop.value
        except BaseException:
            self.step = None
            raise
