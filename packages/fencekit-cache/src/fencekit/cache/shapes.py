"""What can be seen of a type, without a value, that keeps its JSON from coming back equal."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from typing import Any

from pydantic import BaseModel, PlainSerializer, SecretBytes, SecretStr, WrapSerializer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

__all__ = ["Shape", "check_shape", "is_class"]

_SERIALIZERS = (PlainSerializer, WrapSerializer)
_FINITE_AS_TEXT = frozenset({"constants", "strings"})


def is_class(kind: Any) -> bool:
    """Whether a type is a class, and not, as Python 3.10 has it, ``list[int]`` too."""
    return isinstance(kind, type) and not isinstance(kind, types.GenericAlias)


@dataclasses.dataclass
class Shape:
    """What a walk over a type has seen.

    Attributes:
        has_floats: there is a float somewhere whose infinities are written as null.
        parts: fields and their types, one line each.
    """

    has_floats: bool = False
    parts: list[str] = dataclasses.field(default_factory=list[str])

    @property
    def spelled(self) -> str:
        """All fields and types, in a fixed order."""
        return "\n".join(self.parts)


def check_shape(kind: Any) -> Shape:
    """Walk over a type and refuse what cannot come back.

    Raises:
        TypeError: a secret, an excluded field, a default that is not finite, or bytes that are
            written one way and read another; the message names the field.
    """
    shape = Shape()
    _walk(kind, getattr(kind, "__name__", str(kind)), {}, shape, set())
    return shape


def _walk(kind: Any, path: str, config: Any, shape: Shape, known: set[Any]) -> None:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        if not _has_serializer(args[1:]):
            _walk(args[0], path, config, shape, known)
        return
    if origin is None and hasattr(kind, "__value__"):  # a `type` statement
        kind = kind.__value__
        if _once(kind, known):
            _walk(kind, path, config, shape, known)
        return
    if is_class(kind):
        _check_leaf(kind, path, config, shape)
        if _once(kind, known):
            _walk_class(kind, path, config, shape, known)
    for arg in args:
        if origin is not typing.Literal:
            _walk(arg, path, config, shape, known)


def _once(kind: Any, known: set[Any]) -> bool:
    if id(kind) in known:
        return False
    known.add(id(kind))
    return True


def _check_leaf(kind: type, path: str, config: Any, shape: Shape) -> None:
    if issubclass(kind, SecretStr | SecretBytes) or kind.__name__ == "Secret":
        msg = (
            f"{path} is a {kind.__name__}: its JSON hides what it holds, so it cannot come back "
            "from a cache; leave it out of the cached model, or give it a serializer"
        )
        raise TypeError(msg)
    if issubclass(kind, bytes) and config.get("ser_json_bytes", "utf8") != config.get(
        "val_json_bytes", "utf8"
    ):
        msg = f"{path} is bytes, which its model's ser_json_bytes and val_json_bytes treat unalike"
        raise TypeError(msg)
    if issubclass(kind, float) and config.get("ser_json_inf_nan", "null") not in _FINITE_AS_TEXT:
        shape.has_floats = True


def _walk_class(kind: Any, path: str, config: Any, shape: Shape, known: set[Any]) -> None:
    if issubclass(kind, BaseModel):
        if not kind.__pydantic_decorators__.model_serializers:
            _walk_fields(kind, kind.model_fields, path, kind.model_config, shape=shape, known=known)
    elif hasattr(kind, "__pydantic_fields__"):  # a pydantic dataclass
        own = getattr(kind, "__pydantic_config__", config)
        _walk_fields(kind, kind.__pydantic_fields__, path, own, shape=shape, known=known)
    elif (
        dataclasses.is_dataclass(kind)
        or hasattr(kind, "__required_keys__")
        or hasattr(kind, "_fields")
    ):
        for name, note in typing.get_type_hints(kind, include_extras=True).items():
            shape.parts.append(f"{path}.{name}: {note}")
            _walk(note, f"{path}.{name}", config, shape, known)


def _walk_fields(
    kind: type,
    fields: dict[str, FieldInfo],
    path: str,
    config: Any,
    *,
    shape: Shape,
    known: set[Any],
) -> None:
    decorators: Any = getattr(kind, "__pydantic_decorators__")  # noqa: B009 - typed for models only
    serialized = {
        name for found in decorators.field_serializers.values() for name in found.info.fields
    }
    for name, field in fields.items():
        where = f"{path}.{name}"
        shape.parts.append(f"{where}: {field.annotation}")
        if field.exclude or getattr(field, "exclude_if", None) is not None:
            msg = f"{where} is excluded from the JSON, so it cannot come back from a cache"
            raise TypeError(msg)
        if serialized & {name, "*"} or _has_serializer(field.metadata):
            continue
        default = field.default
        if (
            default is not PydanticUndefined
            and isinstance(default, float)
            and not math.isfinite(default)
            and config.get("ser_json_inf_nan", "null") not in _FINITE_AS_TEXT
        ):
            msg = (
                f"{where} is {default} by default, which is written as null; set "
                "ser_json_inf_nan='constants' in the model's config"
            )
            raise TypeError(msg)
        _walk(field.annotation, where, config, shape, known)


def _has_serializer(metadata: Any) -> bool:
    return any(isinstance(item, _SERIALIZERS) for item in metadata)
