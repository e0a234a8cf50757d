"""RESP2, as far as script calls and subscriptions need it: packing commands and reading replies.

The library that the client came from makes and authenticates each connection; what travels on it
afterwards is packed and read here, so that the drivers can pipeline, and so that replies do not
depend on the client's RESP version or ``decode_responses``. Where hiredis is installed the drivers
read with it instead.

Source: the RESP2 specification, https://redis.io/docs/latest/develop/reference/protocol-spec/.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from fencekit.protocol.operation import Arg, Operation, Reply
from fencekit.protocol.script import Script

__all__ = ["Decoder", "ErrorReply", "ProtocolError", "pack", "pack_script"]


class ProtocolError(Exception):
    """What arrived is not RESP2."""


class ErrorReply:
    """An error that the server answered with; a value, so that a pipeline goes on behind it.

    Attributes:
        code: its first word, e.g. ``NOSCRIPT``; of an error inside a script, the word it has
            outside of one, e.g. ``READONLY`` or ``NOPERM``.
        text: all of it.
    """

    __slots__ = ("code", "text")

    def __init__(self, text: str | bytes) -> None:
        self.text = text if isinstance(text, str) else text.decode(errors="replace")
        self.code = self.text.partition(" ")[0]
        if self.code == "ERR":
            self.code = _code_inside(self.text)

    def __repr__(self) -> str:
        return f"ErrorReply({self.text!r})"


# Redis 6.2 wraps whatever a command says inside a script; and no server has a code for what the ACL
# forbids there.
_WRAPPED = re.compile(r"ERR Error running script .*?@user_script: ?\d+: -?([A-Z]{2,})\b")
_FORBIDDEN = ("ACL failure in script", "The user executing the script can't")


def _code_inside(text: str) -> str:
    if any(phrase in text for phrase in _FORBIDDEN):
        return "NOPERM"
    wrapped = _WRAPPED.match(text)
    return wrapped[1] if wrapped else "ERR"


def pack(*parts: Arg) -> bytes:
    """Pack one command."""
    out = [b"*%d\r\n" % len(parts)]
    for part in parts:
        if isinstance(part, str):
            data = part.encode()  # not str(part): an enum that is a str would go out by its name
        else:
            data = part if isinstance(part, bytes) else str(part).encode()
        out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)


def pack_script(operation: Operation[Any], *, whole: bool = False) -> bytes:
    """Pack a script call, EVALSHA or EVAL with the whole source, or a plain command."""
    keys, args = operation.keys, operation.args
    if not operation.script.sha:
        return pack(operation.script.name, *keys, *args)
    out = [_head(operation.script, len(keys), len(keys) + len(args), whole=whole)]
    for part in (*keys, *args):
        if isinstance(part, str):
            data = part.encode()  # not str(part): an enum that is a str would go out by its name
        else:
            data = part if isinstance(part, bytes) else str(part).encode()
        out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)


@lru_cache(maxsize=256)
def _head(script: Script, keys: int, parts: int, *, whole: bool) -> bytes:
    name, body = (b"EVAL", script.source) if whole else (b"EVALSHA", script.sha.encode())
    count = b"%d" % keys
    return b"*%d\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        parts + 3,
        len(name),
        name,
        len(body),
        body,
        len(count),
        count,
    )


class Decoder:
    """Reads replies out of the bytes it is fed.

    The same two methods as ``hiredis.Reader``: `feed` and `gets`, where `gets` returns False as
    long as no whole reply has arrived. RESP2 has no false of its own.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take in what arrived."""
        self._buffer += data

    def gets(self) -> Reply:
        """Return the next whole reply, or False.

        Raises:
            ProtocolError: what arrived is not RESP2; the connection is of no use any more.
        """
        if not self._buffer:
            return False
        found = self._read(0)
        if found is None:
            return False
        reply, end = found
        del self._buffer[:end]
        return reply

    def _read(self, start: int) -> tuple[Reply, int] | None:
        buffer = self._buffer
        stop = buffer.find(b"\r\n", start)
        if stop < 0:
            return None
        kind, line, at = buffer[start : start + 1], bytes(buffer[start + 1 : stop]), stop + 2
        if kind == b":":
            return _number(line), at
        if kind == b"+":
            return line, at
        if kind == b"-":
            return ErrorReply(line), at
        if kind == b"$":
            return self._read_bulk(_number(line), at)
        if kind == b"*":
            return self._read_array(_number(line), at)
        msg = f"a reply begins with {bytes(kind)!r}"
        raise ProtocolError(msg)

    def _read_bulk(self, size: int, at: int) -> tuple[Reply, int] | None:
        if size < 0:
            return None, at
        end = at + size
        if len(self._buffer) < end + 2:
            return None
        return bytes(self._buffer[at:end]), end + 2

    def _read_array(self, size: int, at: int) -> tuple[Reply, int] | None:
        if size < 0:
            return None, at
        items: list[Reply] = []
        for _ in range(size):
            found = self._read(at)
            if found is None:
                return None
            item, at = found
            items.append(item)
        return items, at


def _number(line: bytes) -> int:
    try:
        return int(line)
    except ValueError:
        msg = f"{line!r} where a number was expected"
        raise ProtocolError(msg) from None
