"""Completing and announcing in one step: both are there, or neither."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from harness.claims import Record, holds_by
from harness.conditions import forbidden


def notice(record: Record) -> bytes | None:
    found: bytes | None = record.client.get("notice")
    record.client.delete("notice")
    return found


@holds_by("claim_announce", "redis.pcall('SET', notice, text, 'PX', notice_ms)", "{}")
def test_what_is_done_is_announced_and_noted(record: Record) -> None:
    record.begin("a")
    assert record.announce("a", "told", published="t ") == [1, 1]
    assert notice(record) == b"told"
    assert record.fields["published"] == "t "
    assert record.begin("b") == ["done", "json", "1", "t ", ""]


@holds_by("claim_announce", "'PX', notice_ms", "'PX', 9")
def test_the_announcement_can_be_read_for_as_long_as_was_said(record: Record) -> None:
    record.begin("a")
    record.announce("a", notice_ms=30_000)
    assert 29_000 < record.client.pttl("notice") <= 30_000
    record.client.delete("notice")


@holds_by("claim_announce", "notice_ms > 0 and ")
def test_without_a_time_it_stands_for_ever(record: Record) -> None:
    record.begin("a")
    try:
        record.announce("a", notice_ms=0)
    except ResponseError as error:
        raise AssertionError from error
    assert record.client.pttl("notice") == -1
    record.client.delete("notice")


@holds_by("claim_announce", "redis.pcall('PUBLISH', notice, text)")
def test_its_readers_are_told(record: Record) -> None:
    record.begin("a")
    with record.client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe("notice")
        listener.get_message(timeout=5)
        record.announce("a", b"\x00told")
        message = listener.get_message(timeout=1)
    assert message is not None
    assert message["data"] == b"\x00told"
    record.client.delete("notice")


@holds_by("claim_announce", "if over then", "if false then")
def test_who_was_replaced_announces_nothing(record: Record) -> None:
    record.begin("a")
    record.lapse()
    record.begin("b")
    assert record.announce("b", "b", published="b ") == [1, 1]
    assert record.announce("a", "a", published="a ") == [0, "x", "done"]
    assert record.fields["published"] == "b "
    assert notice(record) == b"b"


def test_a_late_copy_does_not_bring_back_what_was_taken_away(record: Record) -> None:
    record.begin("a")
    record.announce("a")
    assert notice(record) == b"told"
    assert record.announce("a") == [2]
    assert notice(record) is None


SPARED = "string.find(stands, spared, 1, true)"


@holds_by("claim_announce", SPARED, "false")
@pytest.mark.parametrize("spared", ["won(", ""])
def test_what_stands_there_is_spared(record: Record, spared: str) -> None:
    record.client.set("notice", "won(1)")
    record.begin("a")
    assert record.announce("a", published="t ", spared=spared) == [1, 2]
    assert record.state == "done"
    assert "published" not in record.fields
    assert notice(record) == b"won(1)"


@holds_by("claim_announce", SPARED, "true")
def test_what_stands_there_and_is_not_spared_is_written_over(record: Record) -> None:
    record.client.set("notice", "begun", px=9_000)
    record.begin("a")
    assert record.announce("a", published="t ", notice_ms=0) == [1, 1]
    assert record.client.pttl("notice") == -1
    assert notice(record) == b"told"


@holds_by("claim_announce", "stands.err or ", "")
def test_what_is_no_text_is_spared(record: Record) -> None:
    record.client.rpush("notice", "1")
    record.begin("a")
    try:
        assert record.announce("a") == [1, 2]
    except ResponseError as error:
        raise AssertionError from error
    assert record.state == "done"
    assert record.client.delete("notice") == 1


def test_the_shortest_time_is_one(record: Record) -> None:
    record.begin("a")
    record.announce("a", notice_ms=1)
    assert record.client.pttl("notice") != -1


@pytest.mark.parametrize("notice_ms", [0, 9_000])
def test_what_may_not_be_announced_is_done_all_the_same(record: Record, notice_ms: int) -> None:
    record.begin("a")
    with forbidden(record.client, "set"):
        assert record.announce("a", published="t ", notice_ms=notice_ms) == [1, 0]
    assert record.state == "done"
    assert "published" not in record.fields
    assert notice(record) is None


def test_whose_readers_may_not_be_told_is_announced_all_the_same(record: Record) -> None:
    record.begin("a")
    with forbidden(record.client, "publish"):
        assert record.announce("a", published="t ") == [1, 1]
    assert record.fields["published"] == "t "
    assert notice(record) == b"told"
