"""Many flows whose first steps travel in one pipeline."""

from __future__ import annotations

from typing import TypeVar

from fencekit.protocol.operation import Answer, Flow

__all__ = ["resume"]

T = TypeVar("T")


def resume(flow: Flow[T], first: Answer | BaseException) -> Flow[T]:
    """Go on with a flow whose first step was performed elsewhere, with its answer or its error.

    Raises:
        whatever the flow raises.
    """
    try:
        step = flow.throw(first) if isinstance(first, BaseException) else flow.send(first)
        while True:
            try:
                result = yield step
            except GeneratorExit:
                flow.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the flow decides
                step = flow.throw(error)
            else:
                step = flow.send(result)
    except StopIteration as stop:
        done: T = stop.value
        return done
