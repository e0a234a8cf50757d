"""One judgement of a server's eviction policy, for the warning, the command and Django.

Shown red: a policy without a limit judged ok (as Django's doctor did), volatile-* said to throw
away any key, an answer without a policy warned of.
"""

from __future__ import annotations

import logging

import pytest

from fencekit.cli.checks import judge
from fencekit.cli.facts import NodeFacts
from fencekit.drivers.eviction import Eviction, eviction_of, warn_of_eviction

EACH = pytest.mark.parametrize(
    ("policy", "limit", "level"),
    [
        ("noeviction", 0, "ok"),
        ("noeviction", 1 << 20, "ok"),
        ("allkeys-lru", 0, "warning"),
        ("allkeys-lru", 1 << 20, "error"),
        ("volatile-ttl", 1 << 20, "error"),
    ],
)


@EACH
def test_a_limit_makes_a_policy_an_error(policy: str, limit: int, level: str) -> None:
    found = eviction_of({"maxmemory_policy": policy, "maxmemory": limit})
    assert found == Eviction(policy, limit)
    assert found.level == level
    assert bool(found.means) is (level != "ok")


def test_it_says_which_keys_may_go() -> None:
    assert ", any key may be thrown" in Eviction("allkeys-lfu", 1).means
    assert ", any key that expires may be thrown" in Eviction("volatile-lru", 1).means
    assert Eviction("allkeys-lru", 0).means.startswith("once maxmemory is set and reached")


def test_a_server_that_does_not_say_is_not_judged() -> None:
    assert eviction_of({}) is None
    assert eviction_of({"maxmemory": 1}) is None


@EACH
def test_the_command_and_the_warning_judge_alike(
    policy: str, limit: int, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    facts = NodeFacts("here", info={"maxmemory_policy": policy, "maxmemory": limit})
    (found,) = (one for one in judge(facts) if one.check == "eviction")
    assert found.level == level
    assert policy in found.says
    with caplog.at_level(logging.WARNING, "fencekit"):
        raw = f"# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\n"
        warn_of_eviction(raw.encode(), "report:7")
    assert [policy in said.getMessage() for said in caplog.records] == [True] * (level != "ok")


@pytest.mark.parametrize("answer", [None, PermissionError("no"), b"", b"maxmemory:1\r\n"])
def test_no_answer_is_no_reason_to_warn(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_eviction(answer, "report:7")
    assert caplog.records == []
