"""`fencekit ls`: everything under a prefix, found by SCAN."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from redis.exceptions import ResponseError
from rich.console import RenderableType
from rich.text import Text

from fencekit.cli.screen import seconds
from fencekit.cli.session import Session
from fencekit.listing import (
    KINDS,
    Kind,
    count_keys,
    describe_locks,
    describe_queues,
    describe_records,
    scan,
)

__all__ = ["WORDS", "collect", "view"]

# What people call the kinds of keys.
WORDS: Final[dict[str, Kind]] = {"lock": "lock", "record": "idem", "queue": "queue"}
_PER_PIPELINE: Final = 500
_STATE_STYLES: Final = {
    "held": "green",
    "running": "green",
    "waiting": "yellow",
    "retryable": "yellow",
    "failed": "red",
    "exhausted": "red",
}


def collect(
    session: Session, kinds: Collection[Kind], *, contains: str, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """What there is, sorted by name, and whether there is more than ``limit`` of it."""
    found: set[tuple[Kind, str]] = set()
    with session.screen.progress() as progress:
        task = progress.add_task("looking through the keys", total=_total(session))
        for step in scan(session.client, session.prefix, kinds, contains=contains):
            found.update(step.found)
            progress.advance(task, step.looked_at)
            if len(found) > limit:
                break
    chosen = sorted(found, key=lambda one: (one[1], KINDS.index(one[0])))[:limit]
    rows: list[dict[str, Any]] = []
    for start in range(0, len(chosen), _PER_PIPELINE):
        rows += _described(session, chosen[start : start + _PER_PIPELINE])
    return rows, len(found) > limit


def view(session: Session, rows: list[dict[str, Any]]) -> RenderableType:
    """The rows as a table."""
    if not rows:
        return Text("nothing")
    return session.screen.table(
        ("NAME", "KIND", "STATE", "WHO", "TOKEN", "LEFT"),
        (
            (
                row["name"],
                row["kind"],
                Text(row["state"], style=_STATE_STYLES.get(row["state"].split()[-1], "")),
                row["owner"],
                row["token"],
                None if row["left_ms"] is None else seconds(row["left_ms"]),
            )
            for row in rows
        ),
        numbers={"TOKEN", "LEFT"},
    )


def _total(session: Session) -> int | None:
    """How many keys will be looked at; not known where the ACL forbids the question."""
    try:
        return count_keys(session.client)
    except ResponseError:
        return None


def _described(session: Session, chosen: list[tuple[Kind, str]]) -> list[dict[str, Any]]:
    client, prefix = session.client, session.prefix
    names: dict[Kind, list[str]] = {
        kind: [name for k, name in chosen if k == kind] for kind in KINDS
    }
    rows: dict[tuple[Kind, str], dict[str, Any]] = {}
    if names["lock"]:
        for lock in describe_locks(client, prefix, names["lock"]):
            token = int(lock["token"]) if lock["token"].isdigit() else None
            rows["lock", lock["name"]] = _row(
                lock["name"],
                "lock",
                "held",
                owner=lock["owner"],
                token=token,
                left_ms=lock["ttl_ms"],
            )
    if names["idem"]:
        for record in describe_records(client, prefix, names["idem"]):
            name, left = record["name"], max(int(record["ttl_ms"]), 0)
            rows["idem", name] = _row(
                name,
                "record",
                record["state"],
                owner=record.get("owner"),
                token=int(record.get("last") or 0),
                left_ms=left,
            )
    if names["queue"]:
        for queue in describe_queues(client, prefix, names["queue"]):
            state = f"{queue['waiting']} waiting"
            rows["queue", queue["name"]] = _row(
                queue["name"], "queue", state, owner=queue["owner"], token=None, left_ms=None
            )
    # What has gone between the two looks is left out.
    return [rows[one] for one in chosen if one in rows]


def _row(
    name: str, kind: str, state: str, *, owner: str | None, token: int | None, left_ms: int | None
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "state": state,
        "owner": owner or None,
        "token": token,
        "left_ms": left_ms,
    }
