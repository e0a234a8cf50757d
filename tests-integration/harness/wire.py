"""Speak just enough RESP to ask a server something and to tell commands and replies apart.

The harness does not use a client library for its own questions, so that it can neither hide a
client's fault nor share one.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self


class Incomplete(Exception):
    """More bytes are needed."""


class ReplyError(Exception):
    """The server answered with an error; the message is its own."""


class Push(list[Any]):
    """A RESP3 push message, which answers no command."""


_SIMPLE: dict[bytes, Callable[[bytes], Any]] = {
    b"+": bytes,
    b",": bytes,
    b"(": bytes,
    b"-": lambda line: ReplyError(line.decode(errors="replace")),
    b":": int,
    b"#": lambda line: line == b"t",
    b"_": lambda _line: None,
}


def encode(*words: str | bytes | float) -> bytes:
    """Return a command as the bytes that a client sends."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    lines = [b"*%d\r\n" % len(parts)]
    lines += [b"$%d\r\n%s\r\n" % (len(part), part) for part in parts]
    return b"".join(lines)


def parse(data: bytes | bytearray, start: int = 0) -> tuple[Any, int]:
    """Return the value that starts there, and where the next one starts.

    An error reply is returned, not raised. Commands are read as well as replies.

    Raises:
        Incomplete: The value has not arrived in full.
    """
    end = data.find(b"\r\n", start)
    if end < 0:
        raise Incomplete
    kind, line, position = bytes(data[start : start + 1]), bytes(data[start + 1 : end]), end + 2
    if kind in _SIMPLE:
        return _SIMPLE[kind](line), position
    if kind in b"$=!":
        return _parse_bulk(data, int(line), position)
    if kind in b"*~>%|":
        return _parse_many(data, kind, int(line), position)
    # An inline command: words with blanks between them.
    return bytes(data[start:end]).split(), position


def _parse_bulk(data: bytes | bytearray, length: int, position: int) -> tuple[Any, int]:
    if length < 0:
        return None, position
    if len(data) < position + length + 2:
        raise Incomplete
    return bytes(data[position : position + length]), position + length + 2


def _parse_many(data: bytes | bytearray, kind: bytes, count: int, position: int) -> tuple[Any, int]:
    if count < 0:
        return None, position
    items = []
    for _ in range(count * 2 if kind in b"%|" else count):
        item, position = parse(data, position)
        items.append(item)
    if kind == b"|":  # attributes precede the value they belong to
        return parse(data, position)
    if kind == b"%":
        return dict(zip(map(_hashable, items[::2]), items[1::2], strict=True)), position
    return (Push(items) if kind == b">" else items), position


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


class Wire:
    """A connection to a server, for the harness's own questions."""

    def __init__(self, address: tuple[str, int] | str, *, timeout: float = 5.0) -> None:
        """Connect to a TCP address or the path of a unix socket."""
        self._buffer = bytearray()
        if isinstance(address, str):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(timeout)
            try:
                self._socket.connect(address)
            except OSError:
                self._socket.close()
                raise
        else:
            self._socket = socket.create_connection(address, timeout=timeout)

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive(self) -> Any:
        """Return the next reply; an error reply is returned, not raised."""
        while (found := self._next()) is None:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._buffer += data
        return found[0]

    def call(self, *words: str | bytes | float) -> Any:
        """Return the reply to one command.

        Raises:
            ReplyError: The server answered with an error.
            OSError: The server closed the connection or did not answer in time.
        """
        self.send(encode(*words))
        reply = self.receive()
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def _next(self) -> tuple[Any] | None:
        try:
            value, position = parse(self._buffer)
        except Incomplete:
            return None
        del self._buffer[:position]
        return (value,)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
