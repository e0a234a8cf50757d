"""The public names as documented, for mypy and pyright to read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from django.db.models import QuerySet

from fencekit import DistributedLock, FenceToken, LockHandle
from fencekit.django import (
    FencedUpdate,
    OnceRun,
    afenced_update,
    arun_once,
    fenced_atomic,
    fenced_update,
    get_lock,
    invalidate_on_commit,
    locked_atomic,
    once,
    release_on_commit,
    run_once,
)


def writes(rows: QuerySet[Any], token: FenceToken) -> None:
    done: FencedUpdate = fenced_update(rows, token, updates={"value": 1})
    written: int = done.rows
    why: Literal["applied", "stale", "missing"] = done.explain()
    fenced_update(
        rows,
        token,
        updates={},
        fence_field="guard",
        raise_on_stale=True,
        expect=1,
        touch=True,
    )
    del written, why


def transactions(token: FenceToken, cache: object) -> None:
    lock: DistributedLock = get_lock()
    with fenced_atomic(token), fenced_atomic(token, using="other") as entered:
        shown: FenceToken = entered
    with locked_atomic(lock, "r", ttl=timedelta(1), wait=timedelta(1)) as handle:
        held: LockHandle = handle
        release_on_commit(held)
        invalidate_on_commit(cache, 1, "two")
    del shown


def effects() -> None:
    with once("scope", "key", payload={"a": 1}) as run:
        entered: OnceRun = run
        if entered.first:
            entered.result = 1
    result: Any = run_once("scope", "key", int, "3", retries=1, base=10)
    del result


async def twins(rows: QuerySet[Any], token: FenceToken) -> None:
    done: FencedUpdate = await afenced_update(rows, token, updates={"value": 1})
    why: str = await done.aexplain()
    result: Any = await arun_once("scope", "key", int, "3")
    del why, result


def test_these_are_only_read_by_checkers() -> None:
    assert all(callable(each) for each in (writes, transactions, effects, twins))
