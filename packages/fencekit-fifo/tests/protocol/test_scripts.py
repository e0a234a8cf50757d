"""The headers of the Lua say what the operations send.

Seen to fail, by hand, with two arguments of the withdraw swapped.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest

from fencekit.fifo import protocol
from fencekit.fifo.protocol import FifoGrant, Ticket
from fencekit.keys import names
from fencekit.protocol.lock import Claimant
from fencekit.protocol.operation import Operation

KEYS = names("fencekit", "invoices")
TERMS = protocol.terms(
    KEYS,
    lease_ms=60_000,
    offer_ms=5000,
    alive_ms=15_000,
    beat_ms=2500,
    retention_ms=99_000,
    solo=True,
)
TICKET = Ticket(TERMS, Claimant(KEYS, "me", "a" * 32, 60_000, 99_000), "fencekit:proc:1")
OPERATIONS: list[Operation[Any]] = [
    protocol.look_operation(TICKET),
    protocol.acquire_operation(TICKET),
    protocol.withdraw_operation(TICKET, bury=True),
    protocol.renew_operation(TICKET, 7),
    protocol.release_operation(TICKET, 7, bury=True),
    protocol.beat_operation(TERMS, TICKET.channel, TICKET.claimant),
]
ARGUMENTS = {
    "owner": "me",
    "attempt": "a" * 32,
    "lease_ms": 60_000,
    "ttl_ms": 60_000,
    "retention_ms": 99_000,
    "token": 7,
    "turn": "fencekit:proc:1 5000 60000 15000 1 fencekit:{invoices}:wake invoices",
    "queues": 1,
    "bury": 1,
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.script.name)
def test_the_header_names_what_is_sent(operation: Operation[Any]) -> None:
    script = operation.script
    assert [param.pattern for param in script.keys] == [
        "{name}:" + key.rpartition(":")[2] for key in operation.keys
    ]
    assert [param.name for param in script.keys] == [
        key.rpartition(":")[2] for key in operation.keys
    ]
    assert [ARGUMENTS[param.name] for param in script.args] == list(operation.args)
    assert script.retry_safe


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.script.name)
def test_the_body_binds_what_the_header_declares(operation: Operation[Any]) -> None:
    source = operation.script.source.decode()
    for table, params in (("KEYS", operation.script.keys), ("ARGV", operation.script.args)):
        bound: dict[int, str] = {}
        for line in source.splitlines():
            if f"{table}[" not in line:
                continue
            left, _, right = line.removeprefix("local ").partition(" = ")
            for name, value in zip(left.split(", "), right.split(", "), strict=True):
                if found := re.search(rf"{table}\[(\d+)\]", value):
                    bound[int(found[1])] = name
        assert bound == {index: param.name for index, param in enumerate(params, start=1)}


def test_every_script_is_used() -> None:
    shipped = {
        path.name.removesuffix(".lua")
        for path in files("fencekit.fifo").joinpath("lua").iterdir()
        if path.name.endswith(".lua")
    }
    sent = {operation.script.name for operation in OPERATIONS}
    assert shipped == sent | {protocol.STATS.name}


def test_a_late_copy_is_buried_only_where_there_may_be_one() -> None:
    grant = FifoGrant(TICKET.claimant, 7, 0.0)
    step = next(protocol.release(TICKET, grant, lambda _answer, _holder: None))
    assert isinstance(step, Operation)
    assert step.args[-1] == 0
    resent = FifoGrant(TICKET.claimant, 7, 0.0, resent=True)
    step = next(protocol.release(TICKET, resent, lambda _answer, _holder: None))
    assert isinstance(step, Operation)
    assert step.args[-1] == 1
