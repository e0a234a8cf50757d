"""What is kept of a result or an error: a memo that comes back equal, or why there is none.

Memos are JSON and are *not* canonicalised: the order of members stays, and floats stay floats. JSON
values come back equal; a tuple comes back as a list, and a member name as the str that JSON makes
of it. The work is never repeated because of its memo: what cannot be stored leaves a marker.
"""

from __future__ import annotations

from json import JSONDecoder, JSONEncoder
from typing import Any, Final, NamedTuple

from fencekit.errors import IdempotencyResultMissing

__all__ = [
    "JSON",
    "MAX_ERROR_CHARS",
    "NONE",
    "NOT_KEPT",
    "TOO_LARGE",
    "UNSERIALISABLE",
    "Memo",
    "decode",
    "describe_error",
    "encode",
]

JSON: Final = "json"
NONE: Final = "none"
NOT_KEPT: Final = "not-kept"
UNSERIALISABLE: Final = "unserialisable"
TOO_LARGE: Final = "too-large"

MAX_ERROR_CHARS: Final = 500

_REASONS: Final = {
    NONE: "it was completed without one",
    NOT_KEPT: "this guard keeps results out of the store",
    UNSERIALISABLE: "it could not be written as JSON",
    TOO_LARGE: "it was larger than max_result_bytes",
}
_to_json: Final = JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_from_json: Final = JSONDecoder().decode


class Memo(NamedTuple):
    """What is stored of a result.

    Attributes:
        encoding: ``json``, or the marker that says why there is none.
        data: the JSON in UTF-8; empty with a marker.
    """

    encoding: str
    data: bytes

    @property
    def stored(self) -> bool:
        """Whether the result can be had back."""
        return self.encoding == JSON


def encode(result: object, max_bytes: int) -> Memo:
    """Write a result as JSON; where that cannot be done the memo is a marker. Never raises."""
    try:
        data = _to_json(result).encode()
    # RecursionError, or whatever a stranger's subclass of dict raises: the effect has happened,
    # and nothing that is wrong with its result may undo the record of it.
    except Exception:  # noqa: BLE001
        return Memo(UNSERIALISABLE, b"")
    return Memo(JSON, data) if len(data) <= max_bytes else Memo(TOO_LARGE, b"")


def decode(key: str, encoding: str, data: bytes) -> Any:
    """Return the result that a memo keeps.

    Raises:
        IdempotencyResultMissing: the memo is a marker, of another encoding, or damaged.
    """
    if encoding == JSON:
        try:
            return _from_json(data.decode())
        except ValueError:
            raise IdempotencyResultMissing(key, reason="its memo is damaged") from None
    reason = _REASONS.get(encoding, f"it is stored as {encoding!r}, which is not ours to read")
    raise IdempotencyResultMissing(key, reason=reason)


def describe_error(error: BaseException | str) -> str:
    """What is stored of an error: its class name and at most 500 characters of its message."""
    if isinstance(error, str):
        text = error[:MAX_ERROR_CHARS]
    else:
        try:
            message = str(error)[:MAX_ERROR_CHARS]
        except Exception:  # noqa: BLE001 - it is a stranger's __str__
            message = ""
        name = type(error).__qualname__
        text = f"{name}: {message}" if message else name
    return text.encode(errors="replace").decode()
