"""What lies in Redis: names found by SCAN, and what is known of each.

For people who look: the command line, and the admin of fencekit-django. SCAN looks at every key of
the server, whatever it belongs to, and never stops it as KEYS would; so a page may be short, or
empty, although there is a next one: it ends after a bounded number of keys.

Everything takes a sync client, single, Sentinel master or cluster, and raises what that raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from fencekit.keys import check_name, names

__all__ = [
    "KINDS",
    "Kind",
    "Page",
    "Scanned",
    "count_keys",
    "describe_locks",
    "describe_queues",
    "describe_record",
    "describe_records",
    "find",
    "scan",
]

Kind = Literal["lock", "queue", "idem"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

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


@dataclass(frozen=True)
class Scanned:
    """One step of a scan.

    Attributes:
        found: what it found: the kind of a key and the name it is of; a later step may find the
            same again.
        looked_at: about how many keys it looked at.
    """

    found: list[tuple[Kind, str]]
    looked_at: int


def find(
    client: Any, prefix: str, kind: Kind, *, contains: str = "", cursor: str = "", size: int = 50
) -> Page:
    """Find the names that have a key of a kind, a page at a time.

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
    pattern = _pattern(prefix, (kind,), contains)
    found: set[str] = set()
    for _ in range(_SCANS_PER_PAGE):
        position, keys = nodes[index].scan(position, match=pattern, count=_KEYS_PER_SCAN)
        found |= {name for _, name in _recognised(prefix, (kind,), keys)}
        if position == 0:
            index += 1
            if index == len(nodes):
                return Page(sorted(found), None)
        if len(found) >= size:
            break
    return Page(sorted(found), f"{index}-{position}")


def scan(
    client: Any, prefix: str, kinds: Collection[Kind] = KINDS, *, contains: str = ""
) -> Iterator[Scanned]:
    """Find everything, step by step: one SCAN of a bounded number of keys for each step.

    Args:
        client: a sync client: single, Sentinel master or cluster.
        prefix: the prefix of the keys.
        kinds: which keys.
        contains: a part of the name, literally.
    """
    pattern = _pattern(prefix, kinds, contains)
    for node in _nodes(client):
        position = -1
        while position:
            position, keys = node.scan(max(position, 0), match=pattern, count=_KEYS_PER_SCAN)
            yield Scanned(_recognised(prefix, kinds, keys), _KEYS_PER_SCAN)


def count_keys(client: Any) -> int:
    """How many keys the server, or the cluster, holds of whatever kind."""
    return sum(node.dbsize() for node in _nodes(client))


def describe_locks(client: Any, prefix: str, found: Iterable[str]) -> list[dict[str, Any]]:
    """Read who holds each lock, in one pipeline; those that are free by now are left out."""
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
    for described in describe_records(client, prefix, [name]):
        return described
    return None


def describe_records(client: Any, prefix: str, found: Iterable[str]) -> list[dict[str, str]]:
    """Read idempotency records, without their results, in one pipeline; those that are are told."""
    records = list(found)
    with client.pipeline(transaction=False) as pipeline:
        for name in records:
            pipeline.hmget(names(prefix, name).idem, RECORD_FIELDS)
            pipeline.pttl(names(prefix, name).idem)
            pipeline.hexists(names(prefix, name).idem, "result")
        answers = pipeline.execute()
    rows = []
    for name, values, ttl_ms, has_result in zip(
        records, answers[::3], answers[1::3], answers[2::3], strict=True
    ):
        if values[0] is None:
            continue
        row = {
            field: _text(value)
            for field, value in zip(RECORD_FIELDS, values, strict=True)
            if value is not None
        }
        row |= {"name": name, "ttl_ms": str(ttl_ms), "has_result": "yes" if has_result else "no"}
        rows.append(row)
    return rows


def _nodes(client: Any) -> list[Any]:
    if not hasattr(client, "get_primaries"):
        return [client]
    library = type(client).__module__.partition(".")[0]
    connection_of = getattr(client, f"get_{library}_connection", None)
    if connection_of is None:  # a class of the application's own
        connection_of = client.get_redis_connection
    primaries = sorted(client.get_primaries(), key=lambda node: str(node.name))
    return [connection_of(node) for node in primaries]


def _pattern(prefix: str, kinds: Collection[Kind], contains: str) -> str:
    middle = f"*{_literally(contains)}*" if contains else "*"
    end = next(iter(kinds)) if len(kinds) == 1 else "*"
    return f"{_literally(prefix)}:{{{middle}}}:{end}"


def _recognised(
    prefix: str, kinds: Collection[Kind], keys: Iterable[str | bytes]
) -> list[tuple[Kind, str]]:
    """What keys are of whose; a key that only looks like ours is left out."""
    stem = f"{prefix}:{{"
    found: list[tuple[Kind, str]] = []
    for key in keys:
        name, _, end = _text(key).rpartition("}:")
        name = name[len(stem) :]
        if _is_name(name):
            ours: list[tuple[Kind, str]] = [(kind, name) for kind in kinds if kind == end]
            found += ours
    return found


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except ValueError:
        return False
    return True


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
