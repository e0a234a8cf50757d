"""What is cached in the benchmarks: a model of about 1 KiB of JSON."""

from __future__ import annotations

from pydantic import BaseModel

__all__ = ["Profile", "profile"]


class Profile(BaseModel):
    """A user's profile."""

    id: int
    name: str
    email: str
    languages: list[str]
    settings: dict[str, bool]
    about: str


def profile(number: int = 1) -> Profile:
    """Make one, a little above 1 KiB."""
    return Profile(
        id=number,
        name="Ada Lovelace",
        email="ada@example.org",
        languages=["en", "fr", "it"],
        settings={f"option_{index}": index % 2 == 0 for index in range(10)},
        about="It can do whatever we know how to order it to perform. " * 14,
    )
