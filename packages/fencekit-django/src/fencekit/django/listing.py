"""What lies in Redis, page by page: names found by SCAN, and what is known of each.

SCAN looks at every key of the server, whatever it belongs to, so a page may be short, or empty,
although there is a next one: it ends after a bounded number of keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from fencekit.keys import names

__all__ = ["Kind", "Page", "describe_locks", "describe_queues", "describe_record", "find"]

Kind = Literal["lock", "queue", "idem"]

_KEYS_PER_SCAN: Final = 500
_SCANS_PER_PAGE: Final = 20
_GLOB: Final = frozenset("*?[]\\^-")

# Not the result: it may be personal data, and nobody needs it to judge the state of a job.
RECORD_FIELDS: Final = (
    "state",
    "owner",
    "attempts",
    "lease_until",
    "last",
    "task_id",
    "published",
    "error",
)


@dataclass(frozen=True)
class Page:
    """One page of names.

    Attributes:
        names: sorted.
        cursor: where the next page begins; None on the last one.
    """

    names: list[str]
    cursor: str | None


def find(
    client: Any, prefix: str, kind: Kind, *, contains: str = "", cursor: str = "", size: int = 50
) -> Page:
    """Find the names that have a key of a kind.

    Args:
        client: a sync client: single, Sentinel master or cluster.
        prefix: the prefix of the keys.
        kind: which key.
        contains: a part of the name, literally.
        cursor: where the page before ended; empty for the first page.
        size: about how many names.

    Raises:
        ValueError: a cursor that is none of ours.
    """
    nodes = _nodes(client)
    index, position = _parsed(cursor, len(nodes))
    stem, end = f"{prefix}:{{", f"}}:{kind}"
    middle = f"*{_literally(contains)}*" if contains else "*"
    pattern = f"{_literally(stem)}{middle}{_literally(end)}"
    found: set[str] = set()
    for _ in range(_SCANS_PER_PAGE):
        position, keys = nodes[index].scan(position, match=pattern, count=_KEYS_PER_SCAN)
        found |= {_text(key)[len(stem) : -len(end)] for key in keys}
        if position == 0:
            index += 1
            if index == len(nodes):
                return Page(sorted(found), None)
        if len(found) >= size:
            break
    return Page(sorted(found), f"{index}-{position}")


def describe_locks(client: Any, prefix: str, found: Iterable[str]) -> list[dict[str, Any]]:
    """Read who holds each lock, in one pipeline."""
    locks = list(found)
    with client.pipeline(transaction=False) as pipeline:
        for name in locks:
            pipeline.get(names(prefix, name).lock)
            pipeline.pttl(names(prefix, name).lock)
        answers = pipeline.execute()
    rows = []
    for name, value, ttl_ms in zip(locks, answers[::2], answers[1::2], strict=True):
        owner, _, rest = _text(value or b"").partition(":")
        _, _, token = rest.rpartition(":")
        rows.append({"name": name, "owner": owner, "token": token, "ttl_ms": max(ttl_ms, 0)})
    return [row for row in rows if row["owner"]]


def describe_queues(client: Any, prefix: str, found: Iterable[str]) -> list[dict[str, Any]]:
    """Read how many wait in each queue, since when, and who holds its lock."""
    queues = list(found)
    held = {row["name"]: row for row in describe_locks(client, prefix, queues)}
    with client.pipeline(transaction=False) as pipeline:
        for name in queues:
            pipeline.xlen(names(prefix, name).queue)
            pipeline.xrange(names(prefix, name).queue, count=1)
            pipeline.zcard(names(prefix, name).members)
        answers = pipeline.execute()
    return [
        {
            "name": name,
            "waiting": waiting,
            # An entry's id begins with the server's clock, milliseconds.
            "oldest_ms": int(_text(oldest[0][0]).partition("-")[0]) if oldest else None,
            "processes": processes,
            "owner": held.get(name, {}).get("owner", ""),
        }
        for name, waiting, oldest, processes in zip(
            queues, answers[::3], answers[1::3], answers[2::3], strict=True
        )
    ]


def describe_record(client: Any, prefix: str, name: str) -> dict[str, str] | None:
    """Read an idempotency record, without its result; None when there is none."""
    key = names(prefix, name).idem
    values = client.hmget(key, RECORD_FIELDS)
    if values[0] is None:
        return None
    described = {
        field: _text(value)
        for field, value in zip(RECORD_FIELDS, values, strict=True)
        if value is not None
    }
    described["ttl_ms"] = str(client.pttl(key))
    described["has_result"] = "yes" if client.hexists(key, "result") else "no"
    return described


def _nodes(client: Any) -> list[Any]:
    if not hasattr(client, "get_primaries"):
        return [client]
    primaries = sorted(client.get_primaries(), key=lambda node: str(node.name))
    return [client.get_redis_connection(node) for node in primaries]


def _parsed(cursor: str, nodes: int) -> tuple[int, int]:
    if not cursor:
        return 0, 0
    index, _, position = cursor.partition("-")
    if not (index.isdecimal() and position.isdecimal()) or int(index) >= nodes:
        raise ValueError(f"{cursor!r} is no cursor of this listing")
    return int(index), int(position)


def _literally(text: str) -> str:
    return "".join(f"\\{char}" if char in _GLOB else char for char in text)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
