"""Run a test of the FIFO lock once more with a rule of the library taken out: it must then fail.

    @red_by(lua("release", "and 2 or 0", "and 0 or 0"))
    async def test_…(twin, queue): …

The whole library is run with whichever parameters the test has, in both colours if it asks for a
`twin`; the mutated one is a case of its own, "mutated", with fresh fixtures. Processes that a test
starts run the whole library.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from fencekit.errors import FenceKitError
from fencekit.fifo import commands, protocol
from harness.claims import without

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from fencekit.protocol.script import Script

_Test = TypeVar("_Test", bound="Callable[..., Any]")
Mutation = "Callable[[pytest.MonkeyPatch], None]"

__all__ = ["changed", "lua", "nothing_is_withdrawn", "red_by", "sent_once"]

# How a test may fail: by an assertion, by waiting in vain, by an error of the library, by one that
# did not come, or by a flow that ends before its time.
_FAILURES = (
    AssertionError,
    TimeoutError,
    asyncio.TimeoutError,
    FenceKitError,
    pytest.fail.Exception,
    asyncio.CancelledError,
    StopIteration,
)


# What fails by waiting in vain takes its time.
slow = pytest.mark.slow


def red_by(*mutations: Callable[[pytest.MonkeyPatch], None]) -> Callable[[_Test], _Test]:
    """Add a case "mutated" in which all these rules are taken out, and the test must fail."""

    def decorate(test: _Test) -> _Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        async def acoloured(
            *, mutated: bool, monkeypatch: pytest.MonkeyPatch, **params: Any
        ) -> None:
            if not mutated:
                await test(**_passed(signature, params, monkeypatch))
                return
            with monkeypatch.context() as patch:
                for mutate in mutations:
                    mutate(patch)
                with pytest.raises(_FAILURES):
                    await test(**_passed(signature, params, patch))
                await _end_of_tasks()

        @functools.wraps(test)
        def coloured(*, mutated: bool, monkeypatch: pytest.MonkeyPatch, **params: Any) -> None:
            if not mutated:
                test(**_passed(signature, params, monkeypatch))
                return
            with monkeypatch.context() as patch:
                for mutate in mutations:
                    mutate(patch)
                with pytest.raises(_FAILURES):
                    test(**_passed(signature, params, patch))

        wrapper: Any = acoloured if inspect.iscoroutinefunction(test) else coloured
        wrapper.__signature__ = signature.replace(
            parameters=[
                *(
                    one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                    for one in signature.parameters.values()
                    if one.name != "monkeypatch"
                ),
                inspect.Parameter("mutated", inspect.Parameter.KEYWORD_ONLY),
                inspect.Parameter("monkeypatch", inspect.Parameter.KEYWORD_ONLY),
            ]
        )
        if "twin" in signature.parameters:
            # A thread that waits in vain cannot be cancelled.
            cases = [("async", False), ("sync", False), pytest.param("async", True, marks=slow)]
            ids = ["async", "sync", "mutated"]
            mark = pytest.mark.parametrize(("twin", "mutated"), cases, ids=ids, indirect=["twin"])
        else:
            mutated = pytest.param(True, marks=slow)
            mark = pytest.mark.parametrize("mutated", [False, mutated], ids=["", "mutated"])
        return cast("_Test", mark(wrapper))

    return decorate


def _passed(
    signature: inspect.Signature, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    return params | ({"monkeypatch": monkeypatch} if "monkeypatch" in signature.parameters else {})


async def _end_of_tasks() -> None:
    """Cancel what the failed test has left waiting."""
    ours = [
        task
        for task in asyncio.all_tasks() - {asyncio.current_task()}
        if "drivers" not in task.get_coro().cr_code.co_filename  # type: ignore[union-attr]
    ]
    for task in ours:
        task.cancel()
    await asyncio.wait([asyncio.gather(*ours, return_exceptions=True)], timeout=5.0)


def lua(script: str, rule: str, instead: str = "") -> Callable[[pytest.MonkeyPatch], None]:
    """Replace a part of a script."""
    return _rescripted(script, lambda whole: without(whole, rule, instead))


def sent_once(*scripts: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Have these commands not sent again when their answer is lost."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        for script in scripts:
            _rescripted(script, lambda whole: replace(whole, retry_safe=False))(patch)

    return mutate


def _rescripted(
    script: str, change: Callable[[Script], Script]
) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        name = script.upper()
        broken = change(getattr(commands, name))
        patch.setattr(commands, name, broken)
        patch.setattr(protocol, name, broken)

    return mutate


def changed(owner: Any, attribute: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """Replace an attribute of a class or module."""
    return lambda patch: patch.setattr(owner, attribute, value)


def nothing_is_withdrawn(patch: pytest.MonkeyPatch) -> None:
    """Have an acquire that ends in vain leave behind what it has on the server."""

    def give_up(asking: Any) -> Generator[Any, Any, bool]:
        asking._place.close()
        yield from ()
        return True

    patch.setattr(protocol._Asking, "give_up", give_up)
