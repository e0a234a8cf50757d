"""What is kept of a result: what the task's serializer writes, also where that is not asked.

Bites with the text unescaped, and with the halves of a character beyond ASCII taken for two.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu import serialization

from fencekit.celery import memos

RESULTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.text(st.characters(max_codepoint=127)),
    st.sampled_from(["\ud83d\ude00", "\ud800", 2**64, -(2**64), '"\\/\x7f\x00']),
    st.lists(st.text()),
)


@given(RESULTS)
def test_a_memo_is_what_the_serializer_writes_and_reads(result: Any) -> None:
    dumps: Any = serialization.dumps
    kind, encoding, text = dumps(result, "json")
    memo, value = memos.encode(("json", "json"), "job", result)
    assert tuple(memo) == (f"{kind};{encoding}", text.encode(encoding))
    again = memos.decode(("json", "json"), "job", memo)
    assert (type(value), value) == (type(again), again)


@pytest.mark.parametrize("result", ["receipt", 7, None])
def test_another_serializer_is_asked_for_the_same(result: Any) -> None:
    memo, value = memos.encode(("pickle", "json"), "job", result)
    assert memo.encoding.startswith("application/x-python-serialize")
    assert value == result
