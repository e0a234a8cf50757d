"""The header: what is read as an entry, and what as a miss."""

from __future__ import annotations

import pytest

from fencekit.cache import entry

FINGERPRINT = b"abcdef"
SOFT = 1_790_000_000_123


def made(*, negative: bool = False, tags: bytes = b"", body: bytes = b"{}") -> bytes:
    head = entry.head(FINGERPRINT, negative=negative, tagged=bool(tags))
    return head + SOFT.to_bytes(6, "big") + entry.rest(1.5, tags, body)


def test_a_header_has_17_bytes_and_25_with_tags() -> None:
    assert len(made(body=b"")) == entry.HEADER_BYTES == 17
    assert len(made(tags=b"12345678", body=b"")) == entry.SEEN_BYTES == 25


def test_an_entry_is_taken_apart() -> None:
    found = entry.parse(made(), FINGERPRINT, b"")
    assert found == entry.Entry(negative=False, soft_ms=SOFT, cost=1.5, body=b"{}")
    found = entry.parse(made(negative=True, tags=b"12345678", body=b""), FINGERPRINT, b"12345678")
    assert found is not None
    assert found.negative


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"",
        b"{}",
        b'{"id": 1, "name": "of another library"}',
        b"\xff" * 40,
        made()[:16],
        made(tags=b"12345678"),
        made().replace(FINGERPRINT, b"ABCDEF"),
        b"\xa0" + made()[1:],
    ],
)
def test_anything_else_is_a_miss(raw: bytes | None) -> None:
    assert entry.parse(raw, FINGERPRINT, b"") is None


def test_other_nonces_or_no_tags_are_a_miss() -> None:
    tags = entry.digest([b"one", b"two"])
    raw = made(tags=tags)
    assert entry.parse(raw, FINGERPRINT, tags) is not None
    assert entry.parse(raw, FINGERPRINT, entry.digest([b"two", b"one"])) is None
    assert entry.parse(raw, FINGERPRINT, entry.digest([b"one"])) is None
    assert entry.parse(raw, FINGERPRINT, b"") is None
    assert entry.parse(made(), FINGERPRINT, tags) is None


def test_no_kind_is_the_first_byte_of_a_text() -> None:
    for negative in (False, True):
        for tagged in (False, True):
            first = entry.head(FINGERPRINT, negative=negative, tagged=tagged)[:1]
            with pytest.raises(UnicodeDecodeError):
                first.decode()
