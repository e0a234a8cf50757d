"""Keys name a namespace and a digest, and never change between releases.

Shown to fail: with the namespace inside the digest, and with the namespace checked last.
"""

from __future__ import annotations

import enum
import hashlib
import time
from datetime import datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from fencekit.canonical import canonicalize, idempotency_key
from fencekit.errors import CanonicalizeError
from fencekit.keys import check_name


class Job(str, enum.Enum):
    ANALYSIS = "analysis"


def test_is_the_namespace_and_the_digest_of_the_canonical_bytes() -> None:
    digest = hashlib.sha256(b'{"batch_id":7}').hexdigest()
    assert idempotency_key({"batch_id": 7}, namespace="analysis") == f"analysis:{digest}"


def test_a_key_of_the_first_release_is_still_made() -> None:
    payload = {
        "id": UUID(int=1),
        "at": datetime(2030, 1, 31, 22, tzinfo=timezone.utc),
        "lines": [{"price": Decimal("19.90"), "n": 2**60}, (1.5e-7, None, True, "é\n")],
    }
    assert canonicalize(payload) == (
        '{"at":"2030-01-31T22:00:00Z","id":"00000000-0000-0000-0000-000000000001",'
        '"lines":[{"n":1152921504606846976,"price":"19.9"},[1.5e-7,null,true,"é\\n"]]}'.encode()
    )
    assert idempotency_key(payload, namespace="orders") == (
        "orders:6862c0bac694baf9a0abbfcb51e639e78121154aef21cf93776c92e45e5c3b83"
    )


@pytest.mark.parametrize("namespace", ["a", "billing:eu", "ü", "{x}", "a}", "n" * 256, "é" * 128])
def test_a_key_is_a_name(namespace: str) -> None:
    key = idempotency_key(None, namespace=namespace)
    assert key.startswith(f"{namespace}:")
    check_name(key)


def test_a_namespace_may_be_the_text_of_an_enum() -> None:
    key = idempotency_key(1, namespace=Job.ANALYSIS)
    assert key == idempotency_key(1, namespace="analysis")
    assert type(key) is str


@pytest.mark.parametrize(
    "namespace",
    [
        "",
        "a b",
        "a\n",
        "\t",
        "a\x00",
        "a\x7f",
        "a\x85",
        "a\u2003b",
        "}a",
        "\ud800",
        "n" * 257,
        "é" * 129,
    ],
    ids=ascii,
)
def test_refuses_what_a_name_cannot_begin_with(namespace: str) -> None:
    with pytest.raises(ValueError, match="the namespace") as caught:
        idempotency_key(object(), namespace=namespace)
    assert not isinstance(caught.value, CanonicalizeError)


@pytest.mark.parametrize("namespace", [None, b"a", 1])
def test_refuses_a_namespace_that_is_not_text(namespace: object) -> None:
    with pytest.raises(TypeError, match="the namespace must be a str"):
        idempotency_key(object(), namespace=namespace)  # type: ignore[arg-type]


def test_a_kibibyte_takes_well_under_a_tenth_of_a_millisecond() -> None:
    payload = {"user": {"id": 12345, "tags": ["a", "b"]}, "text": "é" * 150} | {
        f"field_{n}": [n, n / 3, f"value {n}", None] for n in range(16)
    }
    assert 1000 < len(canonicalize(payload)) < 1200

    def once() -> float:
        begun = time.perf_counter()
        idempotency_key(payload, namespace="bench")
        return time.perf_counter() - begun

    # Five times what is promised, at best: for a wrong order of growth, not a busy host.
    assert min(once() for _ in range(300)) < 500e-6
