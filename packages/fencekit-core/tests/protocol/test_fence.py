"""The gate's operations: which record judges a token, and what its answers mean."""

from __future__ import annotations

import pytest

from fencekit.protocol.fence import Passed, Stale, check, current, delete, hset, set_value
from fencekit.protocol.token import FenceToken

LOCK = FenceToken(7, resource="job")
CLAIM = FenceToken(7, resource="job", record="claim")


@pytest.mark.parametrize(
    ("token", "remote", "record", "mode"),
    [
        (LOCK, False, "fencekit:{job}:fence", "lock"),
        (LOCK, True, "fencekit:{job}:fence", "remote"),
        (CLAIM, False, "fencekit:{job}:idem", "claim"),
        (CLAIM, True, "fencekit:{job}:idem", "claim"),
    ],
)
def test_a_token_is_judged_by_the_record_it_was_minted_from(
    token: FenceToken,
    remote: bool,  # noqa: FBT001
    record: str,
    mode: str,
) -> None:
    for operation in (
        set_value("fencekit", token, 5, key="k", value="v", ttl_ms=0, remote=remote),
        delete("fencekit", token, 5, key="k", remote=remote),
        hset("fencekit", token, 5, key="k", mapping={"f": "v"}, remote=remote),
        check("fencekit", token, 5, remote=remote, advance=True),
    ):
        assert operation.keys[:2] == (record, "fencekit:{job}:lock")
        assert operation.args[:3] == (7, mode, 5)
        assert type(operation.args[0]) is int


def test_what_is_written() -> None:
    assert set_value("fencekit", LOCK, 5, key="k", value=b"\x00", ttl_ms=9, remote=False).args[
        3:
    ] == (b"\x00", 9)
    fields: dict[str, str | bytes] = {"f": "v", "g": b"w"}
    assert hset("fencekit", LOCK, 5, key="k", mapping=fields, remote=False).args[3:] == (
        "f",
        "v",
        "g",
        b"w",
    )
    assert check("fencekit", LOCK, 5, remote=False, advance=False).args[3:] == (0,)


@pytest.mark.parametrize(
    ("reply", "judgement"),
    [
        ([1], Passed()),
        ([1, 2], Passed(2)),
        ([0, b"1700000000000001"], Stale(1_700_000_000_000_001)),
        ([0, None], Stale(None)),
        ([0], Stale(None)),
    ],
)
def test_judgements(reply: list[object], judgement: object) -> None:
    operation = check("fencekit", LOCK, 5, remote=False, advance=False)
    assert operation.parse(reply) == judgement


def test_the_highest_token_known() -> None:
    operation = current("fencekit", "job", remote=False)
    assert operation.script.read_only
    assert operation.args == ("lock",)
    assert current("fencekit", "job", remote=True).args == ("remote",)
    assert [operation.parse(reply) for reply in ([b"7"], [None], [])] == [7, None, None]
