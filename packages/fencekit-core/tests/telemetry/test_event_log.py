"""Each event is one log record with a name that stays and its facts as fields."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import fencekit
from fencekit import DistributedLock, FencedOutError, FenceGate, FenceKitHooks, IdempotencyGuard
from fencekit.drivers.sync import SyncDriver
from fencekit.event_log import EVENTS, log_hooks
from harness import clients
from harness.servers import Server

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"
LEASE, HOUR = timedelta(seconds=30), timedelta(hours=1)


def test_every_hook_has_a_record() -> None:
    assert set(EVENTS) == {f.name for f in dataclasses.fields(FenceKitHooks) if f.init}
    assert len({name for name, _ in EVENTS.values()}) == len(EVENTS)


def test_records_carry_their_facts(redis_client: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fencekit.events")
    hooks = log_hooks()
    lock, gate = DistributedLock(redis_client, hooks=hooks), FenceGate(redis_client, hooks=hooks)
    handle = lock.acquire("job", ttl=LEASE, owner_id="me")
    lock.release(handle)
    lock.acquire("job", ttl=LEASE)
    with pytest.raises(FencedOutError):
        gate.set_if_fresh(handle.token, "status", "late")
    IdempotencyGuard(redis_client, hooks=hooks).run("charge", lambda: "4711", ttl=HOUR)
    records: dict[str, Any] = {record.event: record for record in caplog.records}  # type: ignore[attr-defined]
    assert list(records) == [
        *("fencekit.lock.acquired", "fencekit.lock.released", "fencekit.fence.rejected"),
        *("fencekit.claim.begun", "fencekit.claim.answered", "fencekit.claim.ended"),
    ]
    rejected = records["fencekit.fence.rejected"]
    assert rejected.levelno == logging.WARNING
    assert rejected.fencekit["resource"] == "job"
    assert rejected.fencekit["token"] == int(handle.token)
    assert rejected.getMessage().startswith(
        f"fencekit.fence.rejected 'job' token={int(handle.token)} current="
    )
    assert "4711" not in caplog.text
    for record in records.values():
        json.dumps(record.fencekit)


def test_what_no_handler_wants_costs_no_record(redis_client: Any) -> None:
    logger = logging.getLogger("quiet")
    logger.setLevel(logging.ERROR)
    seen: list[Any] = []

    def note(record: logging.LogRecord) -> bool:
        seen.append(record)
        return False

    logger.addFilter(note)
    DistributedLock(redis_client, hooks=log_hooks(logger)).acquire("job", ttl=LEASE)
    assert not seen


def test_the_page_names_every_record_with_its_level() -> None:
    rows = re.findall(
        r"^\| `(fencekit\.[\w.]+)` \| (DEBUG|INFO|WARNING) \|", PAGE.read_text(), re.MULTILINE
    )
    assert dict(rows) == {name: logging.getLevelName(level) for name, level in EVENTS.values()}


def test_the_librarys_own_warnings_are_named_too(
    fresh_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    fresh_server.call("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    with clients.opened(fresh_server.url) as client:
        DistributedLock(client).acquire("job", ttl=LEASE)
        IdempotencyGuard(client).run("charge", object, ttl=HOUR)
        SyncDriver.of(client).close()
    told: list[Any] = [(r.name, r.event, r.fencekit) for r in caplog.records]  # type: ignore[attr-defined]
    assert told == [
        ("fencekit", "fencekit.server.may_evict", {"policy": "volatile-lru"}),
        (
            "fencekit.idempotency",
            "fencekit.claim.result_not_kept",
            {"key": "charge", "reason": told[1][2]["reason"]},
        ),
    ]


def test_the_page_names_every_warning_of_the_library_with_its_logger() -> None:
    package = Path(str(fencekit.__file__)).parent
    made = {
        (name, re.findall(r'getLogger\("([\w.]+)"\)', source)[0])
        for source in (path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
        for name in re.findall(r'"event": "(fencekit[\w.]+)"', source)
    }
    row = re.compile(r"^\| `(fencekit\.[\w.]+)` \| `(fencekit[\w.]*)` \|", re.MULTILINE)
    assert set(row.findall(PAGE.read_text())) == made
    assert len(made) == 5
