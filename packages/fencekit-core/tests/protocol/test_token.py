"""`FenceToken`: an int that knows where it comes from, and goes wherever an int goes."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from fencekit import FenceToken
from fencekit.protocol.token import MAX_SHOWN_TOKEN, check_token, check_token_value

TOKEN = FenceToken(1_700_000_000_000_000, resource="invoices")


def test_it_knows_its_resource_and_its_record() -> None:
    assert (TOKEN.resource, TOKEN.record, TOKEN.value) == (
        "invoices",
        "lock",
        1_700_000_000_000_000,
    )
    assert FenceToken(1, resource="x", record="claim").record == "claim"
    assert type(TOKEN.value) is int


def test_it_compares_and_counts_like_an_int() -> None:
    assert TOKEN == 1_700_000_000_000_000
    assert FenceToken(1, resource="x") < TOKEN
    assert hash(TOKEN) == hash(1_700_000_000_000_000)
    assert max(TOKEN, 5) is TOKEN
    assert type(TOKEN + 1) is int


def test_it_is_written_in_digits() -> None:
    digits = "1700000000000000"
    assert str(TOKEN) == f"{TOKEN}" == "%s" % TOKEN == "%d" % TOKEN == digits  # noqa: UP031
    assert f"{TOKEN:>20}" == digits.rjust(20)
    assert repr(TOKEN) == "FenceToken(1700000000000000, resource='invoices')"


def test_it_travels_as_json() -> None:
    text = json.dumps({"token": TOKEN, "in": [TOKEN]})
    assert text == '{"token": 1700000000000000, "in": [1700000000000000]}'
    assert FenceToken(json.loads(text)["token"], resource="invoices") == TOKEN


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles_whole(protocol: int) -> None:
    token = FenceToken(7, resource="x", record="claim")
    again = pickle.loads(pickle.dumps(token, protocol))  # noqa: S301 - our own
    assert type(again) is FenceToken
    assert (int(again), again.resource, again.record) == (7, "x", "claim")


def test_it_copies_whole() -> None:
    for again in (copy.copy(TOKEN), copy.deepcopy(TOKEN)):
        assert (again, again.resource, again.record) == (TOKEN, "invoices", "lock")


@pytest.mark.parametrize("value", [1, 2**53 - 2**32])
def test_the_bounds_are_inside(value: int) -> None:
    assert value <= MAX_SHOWN_TOKEN
    assert FenceToken(value, resource="x").value == value
    assert check_token_value(value) == value


@pytest.mark.parametrize("value", [0, -1, 2**53 - 2**32 + 1, 2**53, 10**30])
def test_beyond_the_bounds_is_a_value_error(value: int) -> None:
    with pytest.raises(ValueError, match=r"between 1 and 2\*\*53 - 2\*\*32"):
        FenceToken(value, resource="x")


@pytest.mark.parametrize("value", [True, 1.0, "one", b"1", None])
def test_another_type_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="must be an int"):
        FenceToken(value, resource="x")


@pytest.mark.parametrize("resource", ["", "a b", "}x", "x" * 513, "\ud800", "a\n"])
def test_a_resource_that_cannot_be_a_name_is_a_value_error(resource: str) -> None:
    with pytest.raises(ValueError, match="the resource"):
        FenceToken(1, resource=resource)


def test_a_resource_that_is_no_text_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="the resource must be a str"):
        FenceToken(1, resource=b"x")  # type: ignore[arg-type]


def test_a_record_that_does_not_exist_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="'lock' or 'claim'"):
        FenceToken(1, resource="x", record="queue")  # type: ignore[arg-type]


@pytest.mark.parametrize("token", [7, True, "seven", 7.0, None])
def test_where_a_token_is_wanted_nothing_else_will_do(token: Any) -> None:
    with pytest.raises(TypeError, match=r"FenceToken\(value, resource=\.\.\.\)"):
        check_token(token)
    assert check_token(TOKEN) is TOKEN
