"""Hooks hear how each attempt ended, and hear it once.

Shown to fail: without `told` (a repeated `mark_done` is a second end), without the question whether
the loss is known already (its end tells it again), and with the hooks given instead of the hooks
chosen (what is installed hears nothing of ends).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from fencekit.errors import IdempotencyNotOwned
from fencekit.hooks import ClaimDone, ClaimLost, FenceKitHooks, install_hooks
from harness.guards import Guards
from harness.waiting import eventually

HOUR = timedelta(hours=1)

MakeGuards = Callable[..., Guards]


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def hooks(told: list[Any]) -> FenceKitHooks:
    return FenceKitHooks(on_done=told.append, on_claim_lost=told.append)


@pytest.mark.parametrize(
    ("step", "ended"),
    [
        (("mark_done",), "completed"),
        (("mark_failed", "broken"), "failed"),
        (("give_back",), "released"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_the_end_of_a_step_by_step_attempt_is_told_once(
    make_guards: MakeGuards,
    hooks: FenceKitHooks,
    told: list[Any],
    step: tuple[str, ...],
    ended: Any,
) -> None:
    begun: list[Any] = []
    guards = make_guards(hooks=hooks.also(FenceKitHooks(on_begin=begun.append)))
    assert guards.call("try_begin", "job", ttl=HOUR)
    for _ in range(2):
        guards.call(step[0], "job", *step[1:])
    (done,) = told
    assert done == ClaimDone(key="job", fence=begun[0].fence, ended=ended, ran_ms=done.ran_ms)
    assert 0 < done.ran_ms < 5_000


def test_a_step_by_step_attempt_that_was_cleared_is_told_as_lost_once(
    make_guards: MakeGuards, hooks: FenceKitHooks, told: list[Any]
) -> None:
    guards = make_guards(hooks=hooks)
    guards.call("try_begin", "job", ttl=HOUR)
    guards.call("clear", "job")
    for _ in range(2):
        with pytest.raises(IdempotencyNotOwned):
            guards.call("mark_done", "job")
    (lost,) = told
    assert lost == ClaimLost(key="job", fence=lost.fence, ran_ms=lost.ran_ms)


def test_a_claim_whose_renewal_is_refused_is_told_as_lost_once(
    make_guards: MakeGuards, hooks: FenceKitHooks, told: list[Any]
) -> None:
    guards = make_guards(hooks=hooks)
    claim = guards.begin("job", ttl=HOUR, lease=timedelta(milliseconds=300))
    guards.call("clear", "job")
    eventually(lambda: told)
    with pytest.raises(IdempotencyNotOwned):
        claim.complete(1)
    (lost,) = told
    assert lost == ClaimLost(key="job", fence=int(claim.fence), ran_ms=lost.ran_ms)
    assert 0 < lost.ran_ms < 5_000


def test_a_claim_whose_end_is_refused_is_told_as_lost_and_not_as_done(
    make_guards: MakeGuards, hooks: FenceKitHooks, told: list[Any]
) -> None:
    guards = make_guards(hooks=hooks)
    claim = guards.begin("job", ttl=HOUR, renew=False)
    guards.call("clear", "job")
    with pytest.raises(IdempotencyNotOwned):
        claim.complete(1)
    assert [type(event) for event in told] == [ClaimLost]


@pytest.fixture
def installed(hooks: FenceKitHooks) -> Iterator[None]:
    install_hooks(hooks)
    yield
    install_hooks(None)


@pytest.mark.usefixtures("installed")
def test_installed_hooks_hear_of_ends_too(make_guards: MakeGuards, told: list[Any]) -> None:
    with make_guards().begin("job", ttl=HOUR) as claim:
        claim.complete(7)
    assert [event.ended for event in told] == ["completed"]
