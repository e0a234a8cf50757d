"""What RFC 8785 can carry has its bytes, by the word of the `rfc8785` library and of the RFC.

Shown to fail: with code points instead of UTF-16 code units in the sort, with the exponent of
`repr`, with `ensure_ascii`, and with `-0.0` let through.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from fencekit.canonical import canonicalize

EXACT = 2**53 - 1

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-EXACT, EXACT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
# Names on both sides of the surrogates, where code points and UTF-16 code units disagree.
names = (
    st.text(st.sampled_from('aZ"\\\n\x7f\u20ac\ud7ff\ue000\uffff\U00010000\U0010ffff')) | st.text()
)
payloads = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(names, inner, max_size=5)
    ),
    max_leaves=12,
)


@given(payloads)
@settings(max_examples=250, deadline=None)
def test_agrees_with_the_rfc8785_library(payload: Any) -> None:
    assert canonicalize(payload) == rfc8785.dumps(payload)


@given(payloads)
@settings(max_examples=100, deadline=None)
def test_reads_back_as_it_was(payload: Any) -> None:
    # Whole doubles have no ".0", and Python would read them as integers with digits made up.
    again = json.loads(canonicalize(payload), parse_int=float)
    assert again == json.loads(json.dumps(payload), parse_int=float)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-EXACT, EXACT).map(float))
@settings(max_examples=300, deadline=None)
def test_a_float_has_the_librarys_form_and_reads_back_exactly(number: float) -> None:
    written = canonicalize(number)
    assert written == rfc8785.dumps(number)
    assert float(written) == number


@given(st.dictionaries(names, scalars, min_size=2, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_insertion_does_not_count(payload: dict[str, Any], random: Any) -> None:
    members = list(payload.items())
    random.shuffle(members)
    assert canonicalize(dict(members)) == canonicalize(payload)


@pytest.mark.parametrize(
    ("bits", "written"),
    [
        # RFC 8785, appendix B.
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_a_double_is_laid_out_as_ecmascript_does(bits: str, written: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonicalize(number).decode() == written


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (1e-5, "0.00001"),
        (1.5e-6, "0.0000015"),
        (-1.5e-7, "-1.5e-7"),
        (1e16, "10000000000000000"),
        (1.25e17, "125000000000000000"),
        (-1e20, "-100000000000000000000"),
        (1.5, "1.5"),
        (1.0, "1"),
    ],
)
def test_python_and_ecmascript_begin_the_exponent_elsewhere(number: float, written: str) -> None:
    assert canonicalize(number).decode() == written


def test_strings_have_the_shortest_escapes() -> None:
    assert canonicalize('\b\t\n\f\r"\\\x00\x1f\x7f/é€😂\u2028') == (
        '"\\b\\t\\n\\f\\r\\"\\\\\\u0000\\u001f\x7f/é€😂\u2028"'.encode()
    )


def test_members_are_sorted_by_utf16_code_units() -> None:
    # U+1F602 is the pair D83D DE02, and so comes before U+FB33.
    assert canonicalize({"\ufb33": 1, "\U0001f602": 2, "\u20ac": 3, "1": 4, "": 5}) == (
        '{"":5,"1":4,"\u20ac":3,"\U0001f602":2,"\ufb33":1}'.encode()
    )
