"""Scripts do not roll back: what is left where one stops, at maxmemory or by an ACL's word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from harness.claims import Record
from harness.clients import opened
from harness.servers import Server

ENDINGS = ["complete", "fail", "release", "withdraw"]


@pytest.fixture
def full(fresh_server: Server) -> Iterator[Any]:
    """A client of a server that can be filled: `full.fill()`."""
    with opened(fresh_server.url) as client:
        client.fill = lambda: client.config_set("maxmemory", "1kb")
        client.config_set("maxmemory-policy", "noeviction")
        yield client


def test_begin_is_refused_at_maxmemory_and_leaves_nothing(full: Any) -> None:
    record = Record(full)
    full.fill()
    with pytest.raises(redis.ResponseError, match="maxmemory"):
        record.begin("a")
    assert record.fields == {}


@pytest.mark.parametrize("end", [*ENDINGS, "clear"])
def test_what_ends_an_attempt_works_at_maxmemory(full: Any, end: str) -> None:
    record = Record(full)
    record.begin("a")
    full.fill()
    assert getattr(record, end)(*([] if end == "clear" else ["a"]))[0] == 1
    assert record.state in {"done", "retryable", None}
    assert record.pttl > 0


def test_a_memo_is_kept_at_maxmemory(full: Any) -> None:
    record = Record(full)
    record.begin("a")
    full.fill()
    assert record.complete("a", "x" * 100_000) == [1]
    assert len(record.begin("b")[2]) == 100_000


def test_a_begin_is_withdrawn_at_maxmemory_also_where_it_never_arrived(full: Any) -> None:
    record = Record(full)
    full.fill()
    assert record.withdraw("a") == [0]
    assert record.begin("a") == ["ended", "w"]


def test_a_lease_is_renewed_and_work_is_retried_at_maxmemory(full: Any) -> None:
    record = Record(full)
    record.begin("a")
    full.fill()
    assert record.renew("a")[0] == 1
    assert record.fail("a") == [1]
    assert record.begin("b")[0] == "begun"


FORBIDDEN = ["hset", "pexpire", "publish", "hdel", "pttl", "del"]


@pytest.mark.parametrize("forbidden", FORBIDDEN)
@pytest.mark.parametrize("operation", ["begin", "retry", "reclaim", "renew", *ENDINGS, "clear"])
def test_what_the_acl_forbids_in_the_middle_leaves_no_attempt_and_no_key_that_stays(
    server: Server, redis_client: Any, operation: str, forbidden: str
) -> None:
    record = Record(redis_client)
    if operation != "begin":
        record.begin("a")
    if operation == "retry":
        record.fail("a")
    elif operation == "reclaim":
        record.lapse()
    before = record.fields
    redis_client.execute_command(
        *f"ACL SETUSER few reset on >secret ~* &* +@all -{forbidden}".split()
    )
    refused = ""
    with opened(server.url, username="few", password="secret") as client:  # noqa: S106
        try:
            _perform(Record(client), operation, before)
        except redis.ResponseError as error:
            refused = str(error)
    redis_client.execute_command("ACL", "DELUSER", "few")
    assert not refused or any(word in refused for word in ("ACL", "permission", "can't run this"))
    assert record.pttl != -1, "every key has a TTL"
    if forbidden == "publish":
        assert not refused, "a failed wake fails nothing"
    if refused and operation in {"begin", "retry", "reclaim"}:
        after = record.fields
        assert after.get("attempt") == before.get("attempt"), "nothing has begun"
        assert after.get("state") == before.get("state")


def _perform(record: Record, operation: str, before: dict[str, str]) -> None:
    if operation in {"begin", "retry", "reclaim"}:
        record.begin("b")
    elif operation == "clear":
        record.clear(int(before["last"]))
    else:
        getattr(record, operation)("a")
