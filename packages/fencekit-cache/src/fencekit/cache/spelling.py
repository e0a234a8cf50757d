"""What an application may use as a key or a tag."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias
from uuid import UUID

from fencekit.keys import utf8

__all__ = ["Key", "check_tag", "key_text"]

Key: TypeAlias = str | int | UUID

_KEY_BYTES = 1024


def key_text(key: Key) -> str:
    """Spell a key.

    Raises:
        TypeError: not a str, an int or a UUID.
        ValueError: empty, too long, or not UTF-8.
    """
    if type(key) is int:  # the usual key, and no bool
        return str(key)
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        text = str.__str__(key)
    elif isinstance(key, int) and not isinstance(key, bool):
        return int.__repr__(key)
    elif isinstance(key, UUID):
        return str(key)
    else:
        msg = f"a key must be a str, an int or a UUID, not {type(key).__name__}"
        raise TypeError(msg)
    if not text:
        msg = "the key is empty"
        raise ValueError(msg)
    size = len(text) if text.isascii() else len(utf8(text, "the key"))
    if size > _KEY_BYTES:
        msg = f"the key has {size} bytes of UTF-8; at most {_KEY_BYTES} are allowed"
        raise ValueError(msg)
    return text


def check_tag(tag: str) -> str:
    """Return a tag, or refuse it.

    Raises:
        TypeError: not a str.
        ValueError: empty, or with a space, a control character, a brace or a colon.
    """
    if not isinstance(tag, str):
        msg = f"a tag must be a str, not {type(tag).__name__}"
        raise TypeError(msg)
    if not tag or not tag.isprintable() or set(tag) & set(" :{}"):
        msg = (
            f"the tag {tag!r} is not allowed: it must not be empty, nor have spaces, control "
            "characters, braces or ':', which separates the parts of its key"
        )
        raise ValueError(msg)
    return str.__str__(tag)
