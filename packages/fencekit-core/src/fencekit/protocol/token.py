"""Fencing tokens: numbers that rise with every grant of a name.

A token is ``max(last + 1, server time in microseconds)``, minted inside the script that grants, so
it rises even after the record of the last one is lost. The idea of refusing writers with an older
token is Lampson's and Gray and Cheriton's (leases); "fencing token" is Kleppmann's name for it.
"""

from __future__ import annotations

from typing import Literal

from fencekit.keys import check_name

__all__ = ["MAX_SHOWN_TOKEN", "FenceToken", "TokenRecord", "check_token", "check_token_value"]

TokenRecord = Literal["lock", "claim"]

# Tokens minted after this one still have 2**32 values below 2**53, where doubles (Lua, JSON,
# JavaScript) stop being exact: one bad number cannot brick a name.
MAX_SHOWN_TOKEN = 2**53 - 2**32


class FenceToken(int):
    """A fencing token: an int that knows which name, and which record, it was minted for.

    It pickles, formats, compares and travels as JSON like the int it is; ``FenceToken(value,
    resource=...)`` makes a token again of a number that travelled.

    Attributes:
        resource: the name of the lock, or the idempotency key, that it was granted for.
        record: "lock" for a lock's token, "claim" for an idempotency claim's.
    """

    resource: str
    record: TokenRecord

    def __new__(  # noqa: PYI034 - Self needs Python 3.11, and nobody subclasses a token
        cls, value: int, *, resource: str, record: TokenRecord = "lock"
    ) -> FenceToken:
        """Make a token of a number.

        Raises:
            TypeError: the value is not an int, or the resource not a str.
            ValueError: the value is not between 1 and 2**53 − 2**32, the resource cannot be a
                name, or the record is neither "lock" nor "claim".
        """
        check_token_value(value)
        check_name(resource, "the resource")
        if record not in {"lock", "claim"}:
            msg = f"the record must be 'lock' or 'claim', not {record!r}"
            raise ValueError(msg)
        return cls._minted(value, resource, record)

    @classmethod
    def _minted(cls, value: int, resource: str, record: TokenRecord) -> FenceToken:
        """Make a token of a number that the server minted, unchecked: the hot path."""
        token = int.__new__(cls, value)
        token.resource = resource
        token.record = record
        return token

    @property
    def value(self) -> int:
        """The plain int."""
        return int(self)

    def __repr__(self) -> str:
        return f"FenceToken({int(self)}, resource={self.resource!r})"

    def __str__(self) -> str:
        return int.__repr__(self)

    def __format__(self, spec: str) -> str:
        return format(int(self), spec)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (int(self), self.resource, self.record))


def _rebuild(value: int, resource: str, record: TokenRecord) -> FenceToken:
    return FenceToken(value, resource=resource, record=record)


def check_token_value(value: int, what: str = "a fencing token") -> int:
    """Return the value if a record may be shown it.

    Raises:
        TypeError: not an int, or a bool.
        ValueError: not between 1 and 2**53 − 2**32.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{what} must be an int, not {type(value).__name__}"
        raise TypeError(msg)
    if not 1 <= value <= MAX_SHOWN_TOKEN:
        msg = f"{what} must be between 1 and 2**53 - 2**32, not {int(value)}"
        raise ValueError(msg)
    return value


def check_token(token: FenceToken) -> FenceToken:
    """Return the token if it is one.

    Raises:
        TypeError: a plain int, or anything else: it does not say which name it belongs to.
    """
    if not isinstance(token, FenceToken):
        msg = (
            f"expected a FenceToken, not {type(token).__name__}; for a number that travelled, "
            "write FenceToken(value, resource=...)"
        )
        raise TypeError(msg)
    return token
