"""Canonical JSON: equal payloads have equal bytes, in every process, release and Python version.

What RFC 8785 (JSON Canonicalization Scheme) can carry is written as it says: members sorted by
the UTF-16 code units of their names, no white space, the shortest escapes, numbers as ECMAScript's
``Number::toString`` lays them out. Beyond it:

==================  ==========================================================================
``int``             all its digits, also beyond 2**53 where RFC 8785 stops
``Enum``            its value, canonicalised in turn (a ``Flag`` too, which is an integer)
``UUID``            its string, in lower case with hyphens
``Decimal``         a *string* that equal numbers share: ``"1.5"`` for 1.5, 1.50 and 15E-1; digits
                    are never rounded, and laid out as ``Number::toString`` would
``datetime``        a string that equal instants share: in UTC, ``"2030-01-31T22:00:00Z"``, with six
                    digits of a second when they are not all zero; naive ones are refused
``date``            its ISO string, ``"2030-01-31"``
``tuple``           an array, also when it is a named tuple
subclasses          as their base; of ``str``, ``int`` and ``float`` the plain value counts,
                    whatever ``__str__`` or ``__repr__`` say
==================  ==========================================================================

Everything else is refused: a value that nearly works, such as a set in its order of the day, would
give one job two keys. A value that becomes a string is equal to that string, and ``1.0`` is equal
to ``1``; ``True`` is not, nor is ``Decimal("1")``, which is ``"1"``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from json import dumps
from json.encoder import encode_basestring
from typing import Any, NoReturn
from uuid import UUID

from fencekit.errors import CanonicalizeError
from fencekit.keys import check_name

__all__ = ["canonicalize", "idempotency_key"]

# The containers that are open, by identity and from the outside in, each with the member or the
# index being written. It finds cycles and depth, and is the path when something is refused.
_Trail = dict[int, "str | int | None"]
_Form = Callable[[Any, _Trail], str]

# Half of Python's default stack. A limit of our own, because the stack that happens to be left
# would let one payload pass in the producer and fail in a worker that was called from deeper down.
_MAX_DEPTH = 500
_NAMESPACE_BYTES = 256
_SHOWN_STEPS = 32
_ONLY_STR = frozenset({str})
# Integers of at most as many bits are written without a look at the limit on digits.
_SHORT_BITS = 64

_ADVICE: dict[type | tuple[type, ...], str] = {
    (bytes, bytearray, memoryview): "pass a hex or base64 string",
    (set, frozenset): "it has no order, pass a sorted list",
    time: "pass its isoformat()",
    timedelta: "pass its total_seconds()",
}


class _Refused(Exception):
    """Carries a reason up to where the path is spelled."""


def canonicalize(payload: object) -> bytes:
    """Return the canonical JSON of `payload`: the same bytes for equal payloads, everywhere.

    The form is that of RFC 8785, extended as the module says, and is part of the public contract:
    keys made by one release are found by the next.

    Raises:
        CanonicalizeError: something in `payload` has no canonical form (NaN and the infinities, a
            naive datetime, a time, a timedelta, bytes, a set, a member name that is not a `str`, a
            lone surrogate, an object of any other class), contains itself, or lies more than 500
            containers deep. `path` says where, as in ``$.items[3].price``, and `reason` says why.
    """
    if type(payload) is dict and (text := _plain(payload)) is not None:
        return text.encode()
    trail: _Trail = {}
    try:
        return _form(payload)(payload, trail).encode()
    except _Refused as refused:
        reason = str(refused)
    except RecursionError:
        reason = "nested too deeply for what is left of the stack"
    # Raised here rather than in the handlers, so that no thousand-line traceback is attached.
    raise CanonicalizeError(_path(trail), reason)


def idempotency_key(payload: object, *, namespace: str) -> str:
    """Return ``"{namespace}:{sha256}"``: one key for all payloads that are equal to `payload`.

    The digest is the SHA-256, in hexadecimal, of `canonicalize(payload)`. `namespace` keeps apart
    jobs whose payloads look alike, and is what a person sees in the key; it is not hashed.

    Raises:
        TypeError: `namespace` is not a `str`.
        ValueError: `namespace` is empty, has whitespace, control characters or lone surrogates in
            it, begins with ``}``, or is longer than 256 bytes of UTF-8.
        CanonicalizeError: `payload` has no canonical form.
    """
    try:
        prefix = _known(namespace)
    except TypeError:  # perhaps the cache's, about a list
        prefix = _checked(namespace)
    return f"{prefix}:{hashlib.sha256(canonicalize(payload)).hexdigest()}"


def _checked(namespace: str) -> str:
    """Return `namespace` as a plain `str` when a name may begin with it and its digest."""
    check_name(namespace, "the namespace")
    size = len(namespace.encode())
    if size > _NAMESPACE_BYTES:
        raise ValueError(
            f"the namespace has {size} bytes of UTF-8; at most {_NAMESPACE_BYTES} are allowed"
        )
    return str.__str__(namespace)


# Jobs have few namespaces, and ask for a key each time.
_known = lru_cache(maxsize=256)(_checked)


def _plain(members: dict[Any, Any]) -> str | None:
    """The form of what most jobs are called with: names of ASCII, and text and integers.

    The same as `_object` makes, in one go; None where there is anything else, also what is refused.
    """
    if not _ONLY_STR.issuperset(map(type, members)):
        return None
    parts = []
    for name in sorted(members):
        item = members[name]
        kind = type(item)
        if kind is str and item.isascii():
            text = encode_basestring(item)
        elif kind is int and item.bit_length() <= _SHORT_BITS:
            text = str(item)
        else:
            return None
        if not name.isascii():
            return None
        parts.append(f"{encode_basestring(name)}:{text}")
    return f"{{{','.join(parts)}}}"


def _form(value: object) -> _Form:
    """Choose how `value` is written: by its exact class, else by the first base that fits."""
    form = _FORMS.get(type(value))
    if form is not None:
        return form
    for base, form in _FORMS.items():
        # Not isinstance, which believes the __class__ that lazy proxies and mocks pretend to have.
        if issubclass(type(value), base):
            return form
    return _refuse


def _object(value: dict[Any, Any], trail: _Trail) -> str:
    here = _enter(value, trail)
    members = value if _ONLY_STR.issuperset(map(type, value)) else _with_plain_names(value)
    # ASCII sorts alike by code point and by UTF-16 code unit. Beyond the BMP the two disagree.
    ascii_only = "".join(members).isascii()
    parts = []
    for name in sorted(members) if ascii_only else sorted(members, key=_utf16):
        trail[here] = name
        item = members[name]
        quoted = encode_basestring(name) if ascii_only else _string(name, trail)
        parts.append(f"{quoted}:{_form(item)(item, trail)}")
    del trail[here]
    return f"{{{','.join(parts)}}}"


def _array(value: list[Any] | tuple[Any, ...], trail: _Trail) -> str:
    here = _enter(value, trail)
    parts = []
    for index, item in enumerate(value):
        trail[here] = index
        parts.append(_form(item)(item, trail))
    del trail[here]
    return f"[{','.join(parts)}]"


def _enter(container: object, trail: _Trail) -> int:
    here = id(container)
    if here in trail:
        raise _Refused("circular reference")
    if len(trail) >= _MAX_DEPTH:
        raise _Refused(f"nested more than {_MAX_DEPTH} containers deep")
    trail[here] = None
    return here


def _with_plain_names(value: dict[Any, Any]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, item in value.items():
        name = key.value if isinstance(key, str) and isinstance(key, Enum) else key
        if not isinstance(name, str):
            raise _Refused(f"a member name must be a str, not {type(key).__qualname__}")
        text = str.__str__(name)
        if text in members:
            raise _Refused(f"two member names are both written {dumps(text)}")
        members[text] = item
    return members


def _utf16(name: str) -> bytes:
    # Lone surrogates must get through here, to be refused where the path leads to them.
    return name.encode("utf-16-be", "surrogatepass")


def _string(value: str, _trail: _Trail) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Refused("a lone surrogate has no UTF-8 form") from None
    # Without ensure_ascii the encoder of json escapes just what RFC 8785, 3.2.2.2, wants escaped.
    return encode_basestring(value)


def _null(_value: None, _trail: _Trail) -> str:
    return "null"


def _boolean(value: bool, _trail: _Trail) -> str:  # noqa: FBT001
    return "true" if value else "false"


def _integer(value: int, _trail: _Trail) -> str:
    try:
        return int.__repr__(value)
    except ValueError:
        raise _Refused("more digits than sys.get_int_max_str_digits() allows") from None


def _float(value: float, _trail: _Trail) -> str:
    if not math.isfinite(value):
        raise _Refused("NaN and the infinities have no JSON form")
    if value == 0:
        return "0"  # for -0.0 too
    # repr and ECMAScript agree on the digits (the fewest that read back as this double, and of
    # those the closest); they differ in where the exponent begins, and in the trailing ".0".
    coefficient, has_exponent, exponent = float.__repr__(value).partition("e")
    if not has_exponent:
        return coefficient.removesuffix(".0")
    sign = "-" if value < 0 else ""
    return _layout(sign, coefficient.lstrip("-").replace(".", ""), int(exponent) + 1)


def _decimal(value: Decimal, trail: _Trail) -> str:
    sign, digits, exponent = Decimal.as_tuple(value)
    if not isinstance(exponent, int):
        return _float(math.nan, trail)
    # Not Decimal.normalize, which rounds to the precision of the caller's context.
    written = "".join(map(str, digits))
    significant = written.rstrip("0")
    if not significant:
        return '"0"'
    return f'"{_layout("-" * sign, significant, len(written) + exponent)}"'


def _layout(sign: str, digits: str, point: int) -> str:
    """Write 0.`digits` times ten to the power `point` as ECMAScript's Number::toString does.

    ECMA-262 calls `point` n, and the length of `digits` k.
    """
    missing = point - len(digits)
    if missing >= 0 and point <= 21:  # noqa: PLR2004 - the standard's number
        return f"{sign}{digits}{'0' * missing}"
    if 0 < point <= 21:  # noqa: PLR2004
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:  # noqa: PLR2004
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def _uuid(value: UUID, _trail: _Trail) -> str:
    return f'"{UUID.__str__(value)}"'


def _datetime(value: datetime, _trail: _Trail) -> str:
    if value.utcoffset() is None:
        raise _Refused("a naive datetime names no instant, give it a tzinfo")
    try:
        utc = datetime.astimezone(value, timezone.utc)
    except OverflowError:
        raise _Refused("the instant lies outside the years 1 to 9999 in UTC") from None
    return f'"{datetime.isoformat(utc).removesuffix("+00:00")}Z"'


def _date(value: date, _trail: _Trail) -> str:
    return f'"{date.isoformat(value)}"'


def _enum(value: Enum, trail: _Trail) -> str:
    plain = value.value
    return _form(plain)(plain, trail)


def _refuse(value: object, _trail: _Trail) -> NoReturn:
    # The class is named and the value is not: errors end up in logs, and payloads should not.
    msg = f"{type(value).__qualname__} has no canonical form"
    for kinds, advice in _ADVICE.items():
        if isinstance(value, kinds):
            msg = f"{msg}: {advice}"
    raise _Refused(msg)


# Searched in this order by _form, so a class stands before those it may be mixed with or derives
# from: Enum before str and int (StrEnum, IntEnum), bool before int, datetime before date.
_FORMS: dict[type, _Form] = {
    Enum: _enum,
    str: _string,
    bool: _boolean,
    int: _integer,
    float: _float,
    type(None): _null,
    dict: _object,
    list: _array,
    tuple: _array,
    UUID: _uuid,
    Decimal: _decimal,
    datetime: _datetime,
    date: _date,
}


def _path(trail: _Trail) -> str:
    steps = [_step(key) for key in trail.values() if key is not None]
    if len(steps) > _SHOWN_STEPS:
        half = _SHOWN_STEPS // 2
        steps[half:-half] = ["…"]
    return "$" + "".join(steps)


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    if key.isidentifier():
        return f".{key}"
    return f"[{dumps(key, ensure_ascii=not key.isprintable())}]"
