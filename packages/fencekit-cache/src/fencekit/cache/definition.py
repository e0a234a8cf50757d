"""What a class of cache says of itself, checked when the class is defined."""

from __future__ import annotations

import gc
import inspect
import math
import re
import types
import typing
import weakref
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ForwardRef, Generic, Literal, TypeAlias, TypeVar

from fencekit.cache.access import AsyncSource, SyncSource, check_client
from fencekit.cache.codec import Codec, codec_for
from fencekit.cache.hooks import CacheHooks
from fencekit.cache.policy import Policy
from fencekit.cache.suppression import Habit
from fencekit.durations import LONGEST_LEASE
from fencekit.keys import check_prefix

__all__ = ["Definition", "Duration", "define"]

T = TypeVar("T")
Duration: TypeAlias = float | timedelta

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_NAME = re.compile(r"[^A-Za-z0-9_.]+")

# Classes by prefix and name, as long as they live.
_classes: dict[tuple[str, str], list[weakref.ref[type]]] = {}


@dataclass(frozen=True)
class Definition(Generic[T]):
    """A class of cache, checked.

    Attributes:
        kind: the type of its values.
        codec: writes and reads them.
        policy: how they are stored.
        source: how the server is reached.
        habit: what is done about errors of the server.
        hooks: who is told of what happens.
        verify: whether each value is read back before it is written.
        tagged: whether entries have tags.
    """

    kind: Any
    codec: Codec[T]
    policy: Policy
    source: AsyncSource | SyncSource
    habit: Habit
    hooks: CacheHooks | None
    verify: bool
    tagged: bool


def define(cls: Any, roots: tuple[type, ...], colour: Literal["sync", "async"]) -> Definition[Any]:
    """Check a class of cache.

    Args:
        cls: the class.
        roots: the generic classes that it may be made from.
        colour: of its client.

    Raises:
        TypeError: no type of values or one that cannot come back, no client or one of another
            colour, an attribute of the wrong type, or a name that another class has.
        ValueError: a number or name that makes no sense.
    """
    where = cls.__name__
    kind = _kind_of(cls, roots)
    prefix = cls.prefix
    if not isinstance(prefix, str):
        msg = f"{where}.prefix must be a str, not {type(prefix).__name__}"
        raise TypeError(msg)
    if prefix:
        check_prefix(prefix)
    if not isinstance(cls.version, str | int):
        msg = f"{where}.version must be a str or an int, not {type(cls.version).__name__}"
        raise TypeError(msg)
    name = _check_name(where, _default_name(kind) if cls.name is None else cls.name)
    hooks = cls.hooks
    if hooks is not None and not isinstance(hooks, CacheHooks):
        msg = f"{where}.hooks must be a CacheHooks, not {type(hooks).__name__}"
        raise TypeError(msg)
    codec = codec_for(kind, cls.version)
    policy = Policy(
        prefix=prefix,
        domain=name,
        fingerprint=codec.fingerprint,
        ttl_ms=_ms(where, "ttl", cls.ttl),
        negative_ms=0.0
        if cls.negative_ttl is None
        else _ms(where, "negative_ttl", cls.negative_ttl),
        grace_ms=0.0 if not cls.grace else _ms(where, "grace", cls.grace),
        lease_ms=max(1, round(_ms(where, "lease", cls.lease))),
        jitter=_number(where, "jitter", cls.jitter, below=1.0),
        beta=_number(where, "beta", cls.beta, below=math.inf),
    )
    client = _client_of(cls)
    is_factory = check_client(client, colour, where)
    source = (AsyncSource if colour == "async" else SyncSource)(client, is_factory=is_factory)
    definition = Definition(
        kind=kind,
        codec=codec,
        policy=policy,
        source=source,
        habit=Habit(name, hooks, strict=_flag(where, "strict", cls.strict)),
        hooks=hooks,
        verify=_flag(where, "verify", cls.verify),
        tagged=all(cls.tags is not root.tags for root in roots),  # type: ignore[attr-defined]
    )
    _register(cls, kind, client, (prefix, name))
    return definition


def _kind_of(cls: type, roots: tuple[type, ...]) -> Any:
    """The type of values, from the class's own bases or from a cache that it extends."""
    for base in cls.__dict__.get("__orig_bases__", ()):
        if typing.get_origin(base) in roots:
            return _check_kind(cls, typing.get_args(base)[0])
    for parent in cls.__mro__[1:]:
        definition = parent.__dict__.get("_definition")
        if definition is not None:
            return definition.kind
    root = next(root.__name__ for root in roots if root in cls.__mro__)
    msg = f"{cls.__name__} does not say what it keeps: class {cls.__name__}({root}[YourModel])"
    raise TypeError(msg)


def _check_kind(cls: type, kind: Any) -> Any:
    where = cls.__name__
    if isinstance(kind, TypeVar) or getattr(kind, "__parameters__", None):
        msg = f"{where} is still generic in {kind}: name the type that it keeps"
        raise TypeError(msg)
    if isinstance(kind, ForwardRef | str):
        msg = f"{where} names its type as text: define the type first, and name the type itself"
        raise TypeError(msg)
    members = typing.get_args(kind) if _is_union(kind) else (kind,)
    if any(member in {None, types.NoneType, Any, object} for member in members if _plain(member)):
        msg = (
            f"{where} would keep {kind}: None is how a miss reads; for what is known to be missing "
            "there is negative_ttl"
        )
        raise TypeError(msg)
    return kind


def _plain(member: Any) -> bool:
    return member is None or member is Any or isinstance(member, type)


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in {typing.Union, types.UnionType}


def _default_name(kind: Any) -> str:
    words = _HUMP.sub("_", "-".join(_words(kind))).lower()
    return _NO_NAME.sub("-", words).strip("-")


def _words(kind: Any) -> list[str]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _words(args[0])
    if origin is None or origin is typing.Literal:
        return [getattr(kind, "__name__", str(kind))]
    head = [] if _is_union(kind) else [getattr(origin, "__name__", str(origin))]
    return head + [word for arg in args for word in _words(arg)]


def _check_name(where: str, name: Any) -> str:
    if not isinstance(name, str):
        msg = f"{where}.name must be a str, not {type(name).__name__}"
        raise TypeError(msg)
    if not name or not name.isprintable() or set(name) & set(" :{}%"):
        msg = (
            f"{where}.name is {name!r}: it must not be empty, nor have spaces, control characters, "
            "':', '%' or braces, which have a meaning in its keys"
        )
        raise ValueError(msg)
    return str.__str__(name)


def _client_of(cls: type) -> Any:
    raw = inspect.getattr_static(cls, "redis_client", None)
    if raw is None:
        msg = f"{cls.__name__} has no redis_client: give it a client, or a factory that returns one"
        raise TypeError(msg)
    if isinstance(raw, staticmethod):
        return raw.__func__
    return cls.redis_client if isinstance(raw, classmethod) else raw  # type: ignore[attr-defined]


def _ms(where: str, what: str, value: Any) -> float:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        msg = f"{where}.{what} must be seconds or a timedelta, not {type(value).__name__}"
        raise TypeError(msg)
    if not 0 < seconds <= LONGEST_LEASE.total_seconds():
        msg = f"{where}.{what} must be above zero and at most ten years, not {value}"
        raise ValueError(msg)
    return seconds * 1000


def _number(where: str, what: str, value: Any, *, below: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        msg = f"{where}.{what} must be a number, not {type(value).__name__}"
        raise TypeError(msg)
    if not 0 <= value < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        msg = f"{where}.{what} must be at least zero{limit}, not {value}"
        raise ValueError(msg)
    return float(value)


def _flag(where: str, what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        msg = f"{where}.{what} must be True or False, not {value!r}"
        raise TypeError(msg)
    return value


def _register(cls: type, kind: Any, client: Any, place: tuple[str, str]) -> None:
    """Refuse a class under whose keys another class keeps values of another type."""
    if _rivals(cls, kind, client, place):
        gc.collect()  # a class that nobody uses any more lives until then
        rivals = _rivals(cls, kind, client, place)
        if rivals:
            prefix, name = place
            msg = (
                f"{cls.__name__} and {rivals[0].__module__}.{rivals[0].__qualname__} keep values "
                f"of different types under {prefix}:{name}: — give one of them another name = …"
            )
            raise TypeError(msg)
    known = [ref for ref in _classes.get(place, ()) if ref() is not None]
    _classes[place] = [*known, weakref.ref(cls)]


def _rivals(cls: type, kind: Any, client: Any, place: tuple[str, str]) -> list[Any]:
    found: list[Any] = []
    for ref in _classes.get(place, ()):
        other: Any = ref()
        if other is None:
            continue
        theirs: Definition[Any] = other.__dict__["_definition"]
        # On another client they are mostly on another server, and the fingerprint makes misses of
        # entries of another type in any case.
        if theirs.kind == kind or theirs.source.given is not client:
            continue
        same = (other.__module__, other.__qualname__) == (cls.__module__, cls.__qualname__)
        if same and "<locals>" not in cls.__qualname__:
            continue  # its module was reloaded
        found.append(other)
    return found
