"""What passes between flows and drivers: cannot be changed, or is small; and what it is by default.

Each of these was asked for by a mutant that nobody else noticed (`hatch run mutate`).
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from typing import Any

import pytest

from fencekit import protocol
from fencekit.keys import names
from fencekit.protocol.claim import ANY_ATTEMPT, BeginOutcome, Begun, Standing, Terms
from fencekit.protocol.operation import Answer
from fencekit.protocol.script import Script
from fencekit.protocol.token import FenceToken

# One for each command: frozen ones take three times as long to make.
_SMALL = {"Operation", "Claimant", "Listen", "AwaitWake", "Unlisten", "AwaitMail"}
_SCHEDULES = {"Renewal"}  # the keeper's own


def _values() -> list[type[Any]]:
    modules = pkgutil.iter_modules(protocol.__path__, f"{protocol.__name__}.")
    found = {
        value
        for module in modules
        for value in vars(importlib.import_module(module.name)).values()
        if dataclasses.is_dataclass(value) and isinstance(value, type)
    }
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", _values(), ids=lambda kind: kind.__name__)
def test_a_value_is_frozen_or_has_no_dictionary(kind: Any) -> None:
    if kind.__name__ in _SMALL:
        assert "__slots__" in vars(kind)
    elif kind.__name__ not in _SCHEDULES:
        assert kind.__dataclass_params__.frozen


def test_an_answer_that_says_no_more_was_sent_once() -> None:
    answer = Answer([1])
    assert (answer.sends, answer.sent_at, answer.replicas) == (1, 0.0, 0)


def test_what_terms_and_standings_are_by_default() -> None:
    terms = Terms(names("fencekit", "job"), "me", lease_ms=1_000, ttl_ms=9_000)
    assert (terms.fingerprint, terms.max_attempts, terms.reclaim) == ("", 0, ANY_ATTEMPT)
    standing = Standing(BeginOutcome.MISMATCH)
    assert (standing.retry_after_ms, standing.attempts, standing.memo) == (0, 0, None)
    token = FenceToken(7, resource="job", record="claim")
    begun = Begun(
        terms, "a" * 32, BeginOutcome.BEGUN, token=token, number=1, sent_at=5.0, resent=False
    )
    assert not begun.told  # the hooks will be


def test_a_command_of_the_servers_own_may_be_sent_again() -> None:
    first, second = (Script.command("GET", read_only=True) for _ in range(2))
    assert first.retry_safe
    assert first.read_only
    # Every command looks its script up: by identity, not by comparing sources.
    assert first != second
    assert len({first, second}) == 2
