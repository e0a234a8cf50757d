"""JSON of values and back: pydantic models and types, and any class with the two JSON methods.

Models are written by field name, without computed fields, so that aliases of either kind do not
matter. Each codec has a fingerprint of what it writes; an entry of another one is a miss.
"""

from __future__ import annotations

import inspect
import json
import re
from functools import partial
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic_core import PydanticSerializationError

from fencekit.cache.entry import FINGERPRINT_BYTES
from fencekit.cache.shapes import check_shape, is_class

__all__ = ["Codec", "Decoded", "codec_for"]

T = TypeVar("T")

_METHODS = ("model_validate_json", "model_dump_json")
# What a schema says for readers and does not change what is written.
_PROSE = frozenset({"title", "description", "examples", "default", "deprecated"})
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_NAMES = frozenset({"properties", "$defs", "patternProperties"})


class _JsonClass(Protocol):
    """A class that makes and reads its own JSON."""

    @classmethod
    def model_validate_json(cls, json_data: str) -> Any:
        """Build a value."""

    def model_dump_json(self) -> str:
        """Write it."""
        ...


class Decoded(Generic[T]):
    """A value that could be read; there may be None for one that could not."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class Codec(Generic[T]):
    """How values of one type are written and read.

    Attributes:
        type_name: the type, for messages.
        fingerprint: of the schema and the version.
    """

    def __init__(self, type_name: str, shape: str, version: str | int) -> None:
        self.type_name = type_name
        # A function in an annotation is spelled with its address, another one in each process.
        spelled = f"{_ADDRESS.sub('', shape)}\n{version}".encode()
        self.fingerprint = sha256(spelled).digest()[:FINGERPRINT_BYTES]

    def encode(self, value: T) -> bytes:
        """Write a value.

        Raises:
            TypeError: it is of another type.
            ValueError: it would not come back equal.
        """
        raise NotImplementedError

    def read(self, body: bytes) -> T:
        """Read a value; raises whatever the type raises for what it cannot read."""
        raise NotImplementedError

    def decode(self, body: bytes) -> Decoded[T] | None:
        """Read a value; None where the body is none of ours."""
        try:
            return Decoded(self.read(body))
        except Exception:  # noqa: BLE001 - a validator is a stranger's code; it reads as a miss
            return None

    def verify(self, value: T, body: bytes) -> None:
        """Refuse a value that does not come back equal.

        Raises:
            ValueError: it does not.
        """
        if self._read_back(body) != value:
            msg = f"this {self.type_name} does not come back equal from its JSON"
            raise ValueError(msg)

    def _read_back(self, body: bytes) -> T:
        try:
            return self.read(body)
        except Exception as error:
            msg = f"this {self.type_name} cannot be read back from its JSON: {error}"
            raise ValueError(msg) from error


class _PydanticCodec(Codec[T]):
    def __init__(self, kind: Any, version: str | int) -> None:
        shape = check_shape(kind)
        try:
            adapter: TypeAdapter[T] = TypeAdapter(kind)
        except PydanticUserError as error:
            msg = f"{_name_of(kind)} is nothing that pydantic can write: {error}"
            raise TypeError(msg) from error
        super().__init__(_name_of(kind), _schema_of(adapter, shape.spelled), version)
        self._class = kind if is_class(kind) and issubclass(kind, BaseModel) else None
        self._write = adapter.serializer.to_json
        # No method: many values are read with one call, and this one is C all through. To tell
        # pydantic about aliases takes a tenth of the time of reading 1 KiB, so only where there are
        # some.
        read: Any = adapter.validator.validate_json
        has_aliases = "validation_alias" in repr(dict(adapter.core_schema))
        self.read = (  # type: ignore[method-assign]
            partial(read, by_alias=False, by_name=True) if has_aliases else read
        )
        self._has_floats = shape.has_floats

    def encode(self, value: T) -> bytes:
        if self._class is not None and not isinstance(value, self._class):
            msg = f"expected a {self.type_name}, not {type(value).__name__}"
            raise TypeError(msg)
        if value is None:  # is written as null without a warning, whatever the type
            msg = f"expected a {self.type_name}, not None"
            raise TypeError(msg)
        try:
            body = self._write(value, by_alias=False, round_trip=True, warnings="error")
        except PydanticSerializationError:
            # Of another type somewhere: as good as any where it reads as the right one.
            body = self._write(value, by_alias=False, round_trip=True)
            self._read_back(body)
        # A float that is not finite is written as null: seldom, so only then is it looked into.
        if self._has_floats and b"null" in body:
            self.verify(value, body)
        return body


class _MethodsCodec(Codec[T]):
    def __init__(self, kind: type[_JsonClass], version: str | int) -> None:
        shape = sorted(f"{name}: {note}" for name, note in _annotations(kind).items())
        super().__init__(kind.__name__, f"{kind.__name__}\n{shape}", version)
        self._class = kind

    def encode(self, value: T) -> bytes:
        if not isinstance(value, self._class):
            msg = f"expected a {self.type_name}, not {type(value).__name__}"
            raise TypeError(msg)
        text: str | bytes = value.model_dump_json()
        return text if isinstance(text, bytes) else text.encode()

    def read(self, body: bytes) -> T:
        return cast("T", self._class.model_validate_json(body.decode()))


def codec_for(kind: Any, version: str | int) -> Codec[Any]:
    """Choose the codec of a type.

    Raises:
        TypeError: it cannot be written, or cannot come back equal; the message names the field.
    """
    if is_class(kind) and all(hasattr(kind, method) for method in _METHODS):
        if not issubclass(kind, BaseModel):
            return _MethodsCodec(cast("type[_JsonClass]", kind), version)
        if any(
            getattr(kind, method) is not getattr(BaseModel, method)
            and getattr(getattr(kind, method), "__func__", getattr(kind, method))
            is not getattr(getattr(BaseModel, method), "__func__", getattr(BaseModel, method))
            for method in _METHODS
        ):
            check_shape(kind)
            return _MethodsCodec(kind, version)
    return _PydanticCodec(kind, version)


def _name_of(kind: Any) -> str:
    return kind.__name__ if is_class(kind) else str(kind)


def _annotations(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        found.update(inspect.get_annotations(base))
    return found


def _schema_of(adapter: TypeAdapter[Any], spelled: str) -> str:
    try:
        schema = adapter.json_schema(by_alias=False, mode="serialization")
    except (PydanticInvalidForJsonSchema, PydanticUserError):
        return spelled  # a type of the application's own without a schema
    return json.dumps(_without_prose(schema, names=False), sort_keys=True)


def _without_prose(node: Any, *, names: bool) -> Any:
    if isinstance(node, dict):
        return {
            key: _without_prose(value, names=not names and key in _NAMES)
            for key, value in node.items()
            if names or key not in _PROSE
        }
    if isinstance(node, list):
        return [_without_prose(value, names=False) for value in node]
    return node
