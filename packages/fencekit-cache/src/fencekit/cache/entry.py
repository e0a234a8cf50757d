"""What an entry looks like in Redis: a header, then the JSON.

======  ======================================================================================
bytes   content
======  ======================================================================================
1       kind: a value or a negative entry, with or without tags; never the first byte of a text
6       fingerprint of the schema and the version it was written under
6       when it should be refreshed, milliseconds since 1970 by the server's clock; 0: never
4       what it cost to load, seconds as a float
8       only with tags: digest of their nonces
rest    the JSON; nothing in a negative entry
======  ======================================================================================

17 bytes without tags. Anything else under the key, whoever wrote it, reads as a miss.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

__all__ = ["FINGERPRINT_BYTES", "HEADER_BYTES", "SEEN_BYTES", "Entry", "digest", "head", "parse"]

FINGERPRINT_BYTES: Final = 6
HEADER_BYTES: Final = 17
DIGEST_BYTES: Final = 8
# As many bytes as tell one version of an entry from another; `fill_begin.lua` compares them.
SEEN_BYTES: Final = HEADER_BYTES + DIGEST_BYTES

_VALUE, _NEGATIVE, _TAGGED = 0xA1, 0xA2, 0x08
_HEADER = struct.Struct(">B6sHIf")
_COST = struct.Struct(">f")


class Entry(NamedTuple):
    """An entry, taken apart.

    Attributes:
        negative: it says that there is nothing to be had.
        soft_ms: when it should be refreshed, milliseconds since 1970; 0: never before it ends.
        cost: seconds that it took to load; 0 where it was not loaded.
        body: the JSON.
    """

    negative: bool
    soft_ms: int
    cost: float
    body: bytes


def head(fingerprint: bytes, *, negative: bool, tagged: bool) -> bytes:
    """The first bytes of a header: kind and schema."""
    kind = (_NEGATIVE if negative else _VALUE) | (_TAGGED if tagged else 0)
    return bytes((kind,)) + fingerprint


def rest(cost: float, tags: bytes, body: bytes) -> bytes:
    """What follows the time to refresh, which the server fills in."""
    return _COST.pack(cost) + tags + body


def digest(nonces: Sequence[bytes]) -> bytes:
    """What an entry remembers of the nonces of its tags; nothing without tags."""
    if not nonces:
        return b""
    return sha256(b"\n".join(nonces)).digest()[:DIGEST_BYTES]


def parse(raw: bytes | None, fingerprint: bytes, tags: bytes) -> Entry | None:
    """Take an entry apart; None where it is no entry of this schema under these tags."""
    if raw is None or len(raw) < HEADER_BYTES:
        return None
    kind, written, high, low, cost = _HEADER.unpack_from(raw)
    if written != fingerprint:
        return None
    start = HEADER_BYTES
    if tags:
        kind ^= _TAGGED
        start = SEEN_BYTES
        if raw[HEADER_BYTES:start] != tags:
            return None
    if kind == _VALUE:
        return Entry(False, high << 32 | low, cost, raw[start:])  # noqa: FBT003 - not a value
    if kind == _NEGATIVE:
        return Entry(True, 0, 0.0, b"")  # noqa: FBT003 - a negative entry
    return None
