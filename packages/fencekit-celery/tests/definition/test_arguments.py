"""Arguments by name: usual calls are bound without the signature, to the same.

Bites with defaults before what was given, which hides the task of a bound one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from celery import Task

from fencekit.celery.arguments import Parameters


def usual(order: str, amount: int = 5, *, note: str = "") -> None: ...
def by_place(order: str, /, amount: int = 5) -> None: ...
def open_ended(order: str, *rest: Any, **more: Any) -> None: ...


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    (("o1",), {}),
    (("o1", 7), {}),
    (("o1", 7), {"note": "x"}),
    (("o1",), {"note": "x"}),
    ((), {"amount": 7, "order": "o1"}),
    (("o1",), {"order": "o2"}),
    (("o1", 7, "x"), {}),
    (("o1",), {"wrong": 1}),
    (("o1", 1, 2, 3), {"note": 4}),
]


@pytest.mark.parametrize("function", [usual, by_place, open_ended])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_call_is_bound_as_its_signature_says(
    function: Callable[..., None], call: tuple[tuple[Any, ...], dict[str, Any]]
) -> None:
    args, kwargs = call
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        with pytest.raises(TypeError, match=str(error)):
            Parameters(function).bind(args, kwargs)
        return
    bound.apply_defaults()
    assert Parameters(function).bind(args, kwargs) == bound.arguments


@pytest.mark.parametrize("kwargs", [{}, {"note": "x"}])
def test_a_bound_task_is_no_argument(kwargs: dict[str, Any]) -> None:
    def bound(self: Any, order: str, amount: int = 5, note: str = "") -> None: ...

    arguments = Parameters(bound).bind((Task(), "o1"), kwargs)
    assert arguments == {"order": "o1", "amount": 5, "note": "", **kwargs}


def test_a_bound_task_is_none_of_any_number_of_arguments() -> None:
    """Red where only a parameter of its own is looked at: a task has no canonical form."""

    def bound(*args: Any) -> None: ...

    assert Parameters(bound).bind((Task(), "o1", 2), {}) == {"args": ("o1", 2)}


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "said"),
    [
        (usual, ("o1",), {}, {"order": "o1"}),
        (usual, ("o1", 5), {"note": ""}, {"order": "o1"}),
        (usual, ("o1", 6), {"note": "x"}, {"order": "o1", "amount": 6, "note": "x"}),
        (usual, ("o1", 5.0), {}, {"order": "o1", "amount": 5.0}),
        (open_ended, ("o1",), {}, {"order": "o1"}),
        (open_ended, ("o1", 2), {"a": 1}, {"order": "o1", "rest": (2,), "more": {"a": 1}}),
    ],
)
def test_what_is_as_by_default_is_not_said(
    function: Callable[..., None],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    said: dict[str, Any],
) -> None:
    parameters = Parameters(function)
    assert parameters.said(parameters.bind(args, kwargs)) == said
