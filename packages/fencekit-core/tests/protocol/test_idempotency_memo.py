"""What is kept of a result or an error."""

from __future__ import annotations

import enum
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencekit.errors import IdempotencyResultMissing
from fencekit.protocol.memo import Memo, decode, describe_error, encode

LIMIT = 1024 * 1024

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


def round_trip(value: Any) -> Any:
    return decode("job", *encode(value, LIMIT))


@given(json_values)
def test_json_values_come_back_equal_and_in_order(value: Any) -> None:
    back = round_trip(value)
    assert back == value
    assert repr(back) == repr(value), "also the order of members, and 1.0 beside 1"


def test_tuples_come_back_as_lists_and_names_as_str() -> None:
    assert round_trip({"b": (1, 2), "a": [(3,)]}) == {"b": [1, 2], "a": [[3]]}
    assert round_trip({1: 2}) == {"1": 2}


class Hostile(dict[str, int]):
    def items(self) -> Any:
        raise LookupError


def circular() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(200_000):
        value = [value]
    return value


UNSERIALISABLE: dict[str, Any] = {
    "Decimal": Decimal("1.5"),
    "nan": float("nan"),
    "inf": float("inf"),
    "set": {1, 2},
    "bytes": b"bytes",
    "object": object(),
    "surrogate": "\ud800",
    "tuple as a name": {(1, 2): 3},
    "hostile": Hostile(a=1),
    "circular": circular(),
    "deep": deep(),
}


@pytest.mark.parametrize("kind", UNSERIALISABLE)
def test_what_cannot_be_json_leaves_a_marker_and_raises_nothing(kind: str) -> None:
    memo = encode(UNSERIALISABLE[kind], LIMIT)
    assert memo == Memo("unserialisable", b"")
    assert not memo.stored
    with pytest.raises(IdempotencyResultMissing, match="could not be written as JSON"):
        decode("job", *memo)


def test_what_is_too_large_leaves_a_marker() -> None:
    assert encode("x" * 8, 10).stored
    memo = encode("é" * 8, 10)
    assert memo == Memo("too-large", b"")
    with pytest.raises(IdempotencyResultMissing, match="max_result_bytes"):
        decode("job", *memo)


@pytest.mark.parametrize(
    ("encoding", "reason"),
    [("none", "without one"), ("not-kept", "out of the store"), ("pickle", "'pickle'"), ("", "''")],
)
def test_why_there_is_no_result(encoding: str, reason: str) -> None:
    with pytest.raises(IdempotencyResultMissing, match=reason) as caught:
        decode("job", encoding, b"\x80")
    assert caught.value.key == "job"


@pytest.mark.parametrize("data", [b"{", b"\xff", b""])
def test_a_damaged_memo_is_a_missing_one(data: bytes) -> None:
    with pytest.raises(IdempotencyResultMissing, match="damaged"):
        decode("job", "json", data)


class CardDeclined(Exception):
    pass


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Colour(str, enum.Enum):
    RED = "red"


def test_an_error_is_its_class_name_and_500_characters() -> None:
    assert describe_error(CardDeclined("no funds")) == "CardDeclined: no funds"
    assert describe_error(CardDeclined()) == "CardDeclined"
    assert describe_error(CardDeclined("x" * 9_999)) == "CardDeclined: " + "x" * 500
    assert describe_error("y" * 9_999) == "y" * 500
    assert describe_error(Unspeakable()) == "Unspeakable"
    assert describe_error("\ud800!") == "?!"
