"""What has no canonical form is refused, and the error says where and why, but not what.

Shown to fail: with cycles found by depth alone, with `isinstance` in `_form`, without the catch of
RecursionError, with `$` for every path, and with two names let through that are written alike.
"""

from __future__ import annotations

import enum
import pickle
import sys
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pytest

from fencekit.canonical import canonicalize
from fencekit.errors import CanonicalizeError, FenceKitError


@dataclass
class Order:
    number: int = 42


class Broken(enum.Enum):
    BYTES = b"x"
    LIST = (1, {2})


class Word(str):
    """Two members may have equal text when equality is odd."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def refused(payload: object) -> tuple[str, str]:
    with pytest.raises(CanonicalizeError) as caught:
        canonicalize(payload)
    return caught.value.path, caught.value.reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "infinities"),
        (float("-inf"), "infinities"),
        (Decimal("NaN"), "NaN"),
        (Decimal("sNaN12"), "NaN"),
        (Decimal("-Infinity"), "infinities"),
        (datetime(2030, 1, 1), "naive datetime"),  # noqa: DTZ001
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "years 1 to 9999"),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))), "years 1 to 9999"),
        (time(12), r"time has no canonical form: pass its isoformat"),
        (timedelta(1), r"timedelta has no canonical form: pass its total_seconds"),
        (b"x", "bytes has no canonical form: pass a hex"),
        (bytearray(b"x"), "bytearray has no canonical form: pass a hex"),
        (memoryview(b"x"), "memoryview has no canonical form: pass a hex"),
        ({1, 2}, "set has no canonical form: it has no order"),
        (frozenset(), "frozenset has no canonical form: it has no order"),
        (1j, "complex has no canonical form"),
        (object(), "object has no canonical form"),
        (Order(), "Order has no canonical form"),
        (Order, "type has no canonical form"),
        (range(3), "range has no canonical form"),
        (iter([]), "list_iterator has no canonical form"),
        ({}.keys(), "dict_keys has no canonical form"),
        (Mock(spec=dict), "Mock has no canonical form"),
        (Broken.BYTES, "bytes has no canonical form"),
        ("a\ud800b", "lone surrogate"),
        ({1: "a"}, "a member name must be a str, not int"),
        ({None: "a", "b": 1}, "a member name must be a str, not NoneType"),
        ({date(2030, 1, 1): 1}, "a member name must be a str, not date"),
        ({b"a": 1}, "a member name must be a str, not bytes"),
        ({Broken.BYTES: 1}, "a member name must be a str, not Broken"),
        ({Word("a"): 1, "a": 2}, 'two member names are both written "a"'),
    ],
)
def test_says_where_and_why(value: object, reason: str) -> None:
    path, why = refused({"items": [0, 1, 2, {"price": value, "z": 1}]})
    assert path == "$.items[3].price"
    assert reason in why
    assert refused(value) == ("$", why)


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"a b": {1}}, '$["a b"]'),
        ({"": {1}}, '$[""]'),
        ({"1": {1}}, '$["1"]'),
        ({'"\n': {1}}, '$["\\"\\n"]'),
        ({"é": {1}}, "$.é"),
        ({"é è": {1}}, '$["é è"]'),
        ({"\ud800": 1}, '$["\\ud800"]'),
        ({"ok": 1, "\U0001f602\udc00": 1}, '$["\\ud83d\\ude02\\udc00"]'),
        ([[], [[], ({1},)]], "$[1][1][0]"),
        ({"a": {"b": []}, "c": [{"d": 1}, {"e": {1}}]}, "$.c[1].e"),
        ({"a": Broken.LIST}, "$.a[1]"),
    ],
    ids=repr,
)
def test_names_the_path(payload: object, path: str) -> None:
    assert refused(payload)[0] == path


def test_a_circular_reference_is_refused_where_it_closes() -> None:
    loop: dict[str, Any] = {"a": [1]}
    loop["a"].append({"back": loop})
    assert refused(loop) == ("$.a[1].back", "circular reference")
    row: list[Any] = ["x" * 1000]
    row.append(row)
    assert refused([row, 1]) == ("$[0][1]", "circular reference")


def nested(depth: int) -> list[Any]:
    payload: list[Any] = []
    for _ in range(depth - 1):
        payload = [payload]
    return payload


def test_nesting_has_a_limit_of_its_own() -> None:
    assert canonicalize(nested(500)) == b"[" * 500 + b"]" * 500
    path, reason = refused(nested(501))
    assert path == "$" + "[0]" * 16 + "…" + "[0]" * 16
    assert reason == "nested more than 500 containers deep"


def test_a_stack_that_is_nearly_used_up_is_refused_too() -> None:
    def deeper(left: int) -> tuple[str, str]:
        return deeper(left - 1) if left else refused({"a": nested(450)})

    used = 0
    frame = sys._getframe()
    while frame.f_back is not None:
        used, frame = used + 1, frame.f_back
    path, reason = deeper(sys.getrecursionlimit() - used - 200)
    assert path.startswith("$.a[0]")
    assert reason == "nested too deeply for what is left of the stack"


@pytest.mark.skipif(not hasattr(sys, "get_int_max_str_digits"), reason="no limit in this Python")
def test_an_integer_that_python_will_not_write_is_refused() -> None:
    assert refused({"n": 10**5000}) == (
        "$.n",
        "more digits than sys.get_int_max_str_digits() allows",
    )


def test_the_error_keeps_the_payload_to_itself() -> None:
    card = "4242424242424242"
    for value in (Order(int(card)), {card}, card.encode(), card + "\ud800"):
        with pytest.raises(CanonicalizeError) as caught:
            canonicalize({"card": value})
        assert card not in str(caught.value)
        assert caught.value.__context__ is None


def test_the_error_is_a_value_error_of_ours_that_travels() -> None:
    with pytest.raises(ValueError, match=r"^\$\.a: set has no canonical form") as caught:
        canonicalize({"a": {1}})
    assert isinstance(caught.value, FenceKitError)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (again.path, str(again)) == ("$.a", str(caught.value))
