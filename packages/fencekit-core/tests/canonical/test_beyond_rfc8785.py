"""Values that RFC 8785 does not know: the forms here are a contract, for keys outlive releases.

Shown to fail: with `Decimal.normalize`, with zeros left in place, with datetimes in their own zone,
with `datetime` after `date`, with `Enum` after `str`, with integers through `float`.
"""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict, defaultdict
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencekit.canonical import canonicalize


class Colour(enum.Enum):
    RED = "red"
    POINT = (1, Decimal("2.0"))


class Level(enum.IntEnum):
    HIGH = 3


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Status(str, enum.Enum):
    """Its `str()` is ``Status.OPEN`` before Python 3.11 and after."""

    OPEN = "open"


class Coded(str, enum.Enum):
    """The text and the value differ, as a `__new__` may arrange; the value counts."""

    A = 1

    def __new__(cls, value: int) -> Coded:  # noqa: PYI034 - Self is newer than 3.10
        member = str.__new__(cls, "text")
        member._value_ = value
        return member


class Renamed(str, enum.Enum):
    A = "value"

    def __new__(cls, value: str) -> Renamed:  # noqa: PYI034
        member = str.__new__(cls, "text")
        member._value_ = value
        return member


class Moment(datetime):
    """As pendulum and freezegun have it."""


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"

    __repr__ = __str__


class Odd(int):
    def __repr__(self) -> str:
        return "odd"

    __str__ = __repr__


class Point(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    ("payload", "written"),
    [
        (2**53 + 1, "9007199254740993"),
        (-(10**30), "-1" + 30 * "0"),
        (True, "true"),
        (1, "1"),
        (Odd(7), "7"),
        (Loud("quiet"), '"quiet"'),
        ({Loud("b"): 1, "a": 2}, '{"a":2,"b":1}'),
        ({Status.OPEN: 1}, '{"open":1}'),
        ({Renamed.A: 1}, '{"value":1}'),
        (Colour.RED, '"red"'),
        (Colour.POINT, '[1,"2"]'),
        (Level.HIGH, "3"),
        (Right.READ | Right.WRITE, "3"),
        (Status.OPEN, '"open"'),
        (Coded.A, "1"),
        (Point(1, 2), "[1,2]"),
        (OrderedDict(b=1, a=2), '{"a":2,"b":1}'),
        (defaultdict(int, a=1), '{"a":1}'),
        (Counter("aab"), '{"a":2,"b":1}'),
        (UUID("{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}"), '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
        (date(987, 1, 31), '"0987-01-31"'),
        (datetime(2030, 1, 31, 23, tzinfo=timezone(timedelta(hours=1))), '"2030-01-31T22:00:00Z"'),
        (Moment(2030, 1, 31, tzinfo=timezone.utc), '"2030-01-31T00:00:00Z"'),
        (datetime(987, 1, 1, 0, 0, 1, 500, timezone.utc), '"0987-01-01T00:00:01.000500Z"'),
    ],
    ids=str,
)
def test_has_the_documented_form(payload: object, written: str) -> None:
    assert canonicalize(payload).decode() == written
    assert canonicalize([payload]).decode() == f"[{written}]"


@pytest.mark.parametrize(
    ("spellings", "written"),
    [
        (["1", "1.0", "1.00", "01", "10E-1", "0.1E1"], "1"),
        (["19.90", "19.9", "1990E-2"], "19.9"),
        (["-0.50", "-.5", "-5E-1"], "-0.5"),
        (["0", "-0", "0.000", "0E+9", "-0E-999"], "0"),
        (["1000", "1E+3", "1000.0"], "1000"),
        (["1E+20", "100000000000000000000"], "100000000000000000000"),
        (["1E+21", "1000000000000000000000"], "1e+21"),
        (["0.000001", "1E-6"], "0.000001"),
        (["1.50E-7", "0.00000015"], "1.5e-7"),
        (["123456789012345678901234567890.10"], "1.234567890123456789012345678901e+29"),
        (["1E+999999"], "1e+999999"),
    ],
    ids=str,
)
def test_equal_decimals_have_one_form(spellings: list[str], written: str) -> None:
    assert {canonicalize(Decimal(text)).decode() for text in spellings} == {f'"{written}"'}


finite_decimals = st.decimals(allow_nan=False, allow_infinity=False)


@given(finite_decimals, st.integers(0, 30))
@settings(max_examples=100, deadline=None)
def test_trailing_zeros_of_a_decimal_do_not_count_and_no_digit_is_lost(
    number: Decimal, zeros: int
) -> None:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    padded = Decimal((sign, digits + (0,) * zeros, exponent - zeros))
    with localcontext() as context:
        context.prec = 3
        written = canonicalize(number)
        assert canonicalize(padded) == written
        assert Decimal(written.decode().strip('"')) == number


@given(finite_decimals, finite_decimals)
@settings(max_examples=100, deadline=None)
def test_decimals_share_a_form_only_when_they_are_equal(one: Decimal, other: Decimal) -> None:
    assert (canonicalize(one) == canonicalize(other)) == (one == other)


offsets = st.integers(-23 * 60, 23 * 60).map(lambda m: timezone(timedelta(minutes=m)))
instants = st.datetimes(
    datetime(1, 1, 3),  # noqa: DTZ001 - Hypothesis adds the zone
    datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=offsets,
)


@given(instants, offsets)
@settings(max_examples=100, deadline=None)
def test_one_instant_has_one_form_in_every_zone(instant: datetime, zone: timezone) -> None:
    written = canonicalize(instant)
    assert canonicalize(instant.astimezone(zone)) == written
    assert canonicalize(instant + timedelta(microseconds=1)) != written
    assert datetime.fromisoformat(written.decode().strip('"').replace("Z", "+00:00")) == instant


def test_the_hour_that_comes_twice_is_told_apart() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2024, 10, 27, 2, 30, tzinfo=berlin)
    assert canonicalize(first) == b'"2024-10-27T00:30:00Z"'
    assert canonicalize(first.replace(fold=1)) == b'"2024-10-27T01:30:00Z"'


@given(st.integers())
@settings(max_examples=100, deadline=None)
def test_integers_keep_all_their_digits(number: int) -> None:
    assert int(canonicalize(number * 2**64 + 1)) == number * 2**64 + 1


def test_what_is_told_apart_and_what_is_not() -> None:
    apart: list[Any] = [1, True, "1", None, [], {}, [1], {"1": 1}, 2**60, 2.0**60]
    assert len({canonicalize(value) for value in apart}) == len(apart)
    assert canonicalize(1.0) == canonicalize(1)
    assert canonicalize(Decimal(1)) == canonicalize("1")
    assert canonicalize(()) == canonicalize([])


def test_one_object_may_stand_in_two_places() -> None:
    shared: dict[str, object] = {"a": [1]}
    assert canonicalize([shared, {"b": shared}]) == b'[{"a":[1]},{"b":{"a":[1]}}]'


# What is written in one go is written as when it lies in something that is not.
@given(
    st.dictionaries(
        st.text(max_size=4),
        st.text(max_size=4) | st.integers() | st.sampled_from([2**64 - 1, 2**64, -(2**64)]),
        max_size=4,
    )
)
@settings(deadline=None)
def test_an_object_alone_is_written_as_inside_of_an_array(members: dict[str, str | int]) -> None:
    assert b"[%s]" % canonicalize(members) == canonicalize([members])
