"""What became of each message of a Redis broker, read from the log of its writes.

A server started with `DURABLE` logs every write, also the pop that a worker's wait ends with, and
goes on in the same log after a restart. It tells of each message whether it was ever noted as
taken: kombu pops a message off its list first, and notes it under ``unacked`` in a second command.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.servers import Server

__all__ = ["DURABLE", "Letter", "letters"]

DURABLE = (
    *("--appendonly", "yes", "--appendfsync", "always"),
    # A rewrite would leave only what is there, and not what has happened.
    *("--auto-aof-rewrite-percentage", "0", "--aof-use-rdb-preamble", "no"),
)
"""Arguments of a server that loses nothing and logs everything."""


@dataclass
class Letter:
    """One message.

    Attributes:
        tag: what kombu calls it, also when it is put back.
        task: the name of its task, empty for a message that is not Celery's.
        arguments: as Celery spells them in its headers.
        state: ``queued``, ``popped`` (taken off the list, and noted nowhere), ``noted`` as taken by
            a worker, or ``acknowledged``.
    """

    tag: str
    task: str
    arguments: str
    state: str


def letters(server: Server, queue: str = "celery") -> list[Letter]:
    """What became of each message that was ever put in a queue, at its first priority."""
    found: dict[str, Letter] = {}
    waiting: deque[str] = deque()
    for name, *words in _writes(server):
        command, key = name.upper(), words[0].decode() if words else ""
        if key == queue and command in {b"LPUSH", b"RPUSH"}:
            for raw in words[1:]:
                tag, letter = _read(raw)
                found[tag] = letter
                (waiting.appendleft if command == b"LPUSH" else waiting.append)(tag)
        elif key == queue and command in {b"RPOP", b"LPOP"}:
            found[waiting.pop() if command == b"RPOP" else waiting.popleft()].state = "popped"
        elif key == "unacked" and command in {b"HSET", b"HDEL"}:
            state = "noted" if command == b"HSET" else "acknowledged"
            for raw in words[1 :: 2 if command == b"HSET" else 1]:
                # A message that was put back is queued, though its note is taken away after.
                letter = found.get(raw.decode(), Letter("", "", "", ""))
                if state == "noted" or letter.state == "noted":
                    letter.state = state
    return list(found.values())


def _read(raw: bytes) -> tuple[str, Letter]:
    message: dict[str, Any] = json.loads(raw)
    headers: dict[str, Any] = defaultdict(str, message.get("headers") or {})
    tag = str(message["properties"]["delivery_tag"])
    return tag, Letter(tag, str(headers["task"]), str(headers["argsrepr"]), "queued")


def _writes(server: Server) -> Iterator[list[bytes]]:
    paths = sorted(Path(server.folder).glob("**/*.incr.aof"), key=lambda path: path.name)
    if not paths:
        raise FileNotFoundError(f"no log of writes in {server.folder}: start it with DURABLE")
    for path in paths:
        with path.open("rb") as log:
            while head := log.readline():
                if not head.startswith(b"*"):
                    continue  # a time stamp, or the empty end of the last value
                words = []
                for _ in range(int(head[1:])):
                    size = int(log.readline()[1:])
                    words.append(log.read(size + 2)[:-2])
                yield words
