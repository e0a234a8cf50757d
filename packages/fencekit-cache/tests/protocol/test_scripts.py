"""The scripts' headers say what the protocol sends."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest

from fencekit.cache import protocol, scan
from fencekit.cache.policy import Policy
from fencekit.protocol.operation import Operation
from fencekit.protocol.script import Script

POLICY = Policy("", "profile", b"abcdef", 1000, 0, 0, 1000, 0.1, 0)
SUBJECT = POLICY.subject("1", ["a"])

OPERATIONS: list[Operation[Any]] = [
    protocol.write(SUBJECT, POLICY, b"{}", b"12345678"),
    protocol.invalidate(SUBJECT, 0, hasty=False),
    protocol.begin(SUBJECT, POLICY, b"a", b""),
    protocol.store(SUBJECT, POLICY, b"T", b"{}", cost=0.0, tags=b""),
    protocol.abandon(SUBJECT, b"a"),
    Operation(protocol.READ_TAG, SUBJECT.tags, (1, b"r"), int),
    Operation(protocol.CLOCK, ("x",), (), int),
    Operation(scan.SCAN, ("x",), ("0", "*", 10), int),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.script.name)
def test_header_body_and_operation_agree(operation: Operation[Any]) -> None:
    script = operation.script
    assert len(operation.keys) == len(script.keys)
    assert len(operation.args) == len(script.args)
    text = files("fencekit.cache").joinpath(f"lua/{script.name}.lua").read_text()
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    bound = re.findall(r"(?:KEYS|ARGV)\[\d+\]", code)
    expected = [f"KEYS[{n + 1}]" for n in range(len(script.keys))]
    expected += [f"ARGV[{n + 1}]" for n in range(len(script.args))]
    if script.name not in {"clock_read", "keys_scan"}:
        assert sorted(bound) == sorted(expected)
    for param in (*script.keys, *script.args):
        if param.name != "route":
            assert re.search(rf"local [\w, ]*\b{param.name}\b", code), param.name


def test_every_script_is_tried() -> None:
    names = {
        entry.name.removesuffix(".lua")
        for entry in files("fencekit.cache").joinpath("lua").iterdir()
        if entry.name.endswith(".lua")
    }
    assert names == {operation.script.name for operation in OPERATIONS}


def test_a_write_is_not_sent_twice_and_an_invalidation_is_until_it_is_answered() -> None:
    assert not protocol.SET_ENTRY.retry_safe
    invalidate = protocol.invalidate(SUBJECT, 0, hasty=False)
    assert invalidate.script.retry_safe
    assert not invalidate.hasty


def test_a_plain_command_is_no_script() -> None:
    assert Script.command("GET", read_only=True).sha == ""
