"""The models of pydantic that tasks made with ``pydantic=True`` take and return.

Pydantic is not imported: who has a model has it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from fencekit.errors import CanonicalizeError

__all__ = ["of_arguments", "returned_model"]


def of_arguments(make: Callable[[Any], str], values: Any) -> str:
    """What is made of the canonical form of values; of models only where they have none themselves.

    Raises:
        CanonicalizeError: neither have the values, nor with what is in their models.
    """
    try:
        return make(values)
    except CanonicalizeError:
        return make(_models_as_data(values))


def _models_as_data(values: Any) -> Any:
    """Values by name, with what is in a model instead of the model; else what was given.

    What is as by default is left out, as of arguments: a model may get another field.
    """
    if not isinstance(values, Mapping):
        return values
    return {
        name: value.model_dump(mode="json", exclude_defaults=True)
        if hasattr(value, "model_dump")
        else value
        for name, value in values.items()
    }


def returned_model(function: Callable[..., Any]) -> Any:
    """The model that a function is annotated to return, maybe beside None; None if it is none."""
    try:
        hint = typing.get_type_hints(function).get("return")
    except (NameError, AttributeError, TypeError):  # some other name in it is not known here
        hint = getattr(function, "__annotations__", {}).get("return")
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        hint = kinds[0] if len(kinds) == 1 else None
    return hint if hasattr(hint, "model_validate_json") else None
