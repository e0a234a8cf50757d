"""Many operations of the sync driver under way together: one pipeline for each node, in rounds.

A round sends one copy of each that is not over. What becomes of each is its own `Delivery`'s to
say: those that may go again go together in the next round, at once or after one pause for all, so
that a server that is silent is waited for no longer by a thousand operations than by one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from fencekit.drivers.client import Address
from fencekit.drivers.delivery import Delivery, WireLost
from fencekit.drivers.wire import Wire
from fencekit.errors import FenceKitError
from fencekit.protocol.operation import Answer, Reply

if TYPE_CHECKING:
    from fencekit.drivers.sync import SyncDriver

__all__ = ["deliver_all", "send_all"]

# What became of one copy: the answer, an error, no answer, or the seconds to pause before another.
Outcome: TypeAlias = Answer | FenceKitError | WireLost | float

# Copies of what is sent only once go again at once for what they learned: a script, a node, both.
_ROUNDS = 3


def deliver_all(driver: SyncDriver, deliveries: Sequence[Delivery]) -> list[Answer | FenceKitError]:
    """Send copies of each until it is answered, or its own rule says that it is over."""
    settled: dict[Delivery, Answer | FenceKitError] = {}
    waiting = list(deliveries)
    while waiting:
        paused: list[Delivery] = []
        longest = 0.0
        while waiting:
            again: list[Delivery] = []
            for delivery, outcome in _round(driver, waiting, None).items():
                pause = _to_pause(delivery, outcome)
                if isinstance(pause, (Answer, FenceKitError)):
                    settled[delivery] = pause
                elif pause:
                    paused.append(delivery)
                    longest = max(longest, pause)
                else:
                    again.append(delivery)
            waiting = again
        if paused:
            time.sleep(longest)
        waiting = paused
    return [settled[delivery] for delivery in deliveries]


def send_all(
    driver: SyncDriver, deliveries: Sequence[Delivery], *, timeout: float
) -> list[Answer | FenceKitError | None]:
    """Send one copy of each, and another where the server asks for it at once; None: no answer.

    Args:
        driver: whose connections they travel on.
        deliveries: what to send.
        timeout: how long each connection and each answer may take, seconds.
    """
    outcomes: dict[Delivery, Outcome] = {}
    waiting = list(deliveries)
    for _ in range(_ROUNDS):
        outcomes.update(_round(driver, waiting, timeout))
        waiting = [delivery for delivery in waiting if outcomes[delivery] == 0.0]
        if not waiting:
            break
    found = (outcomes[delivery] for delivery in deliveries)
    return [one if isinstance(one, (Answer, FenceKitError)) else None for one in found]


def _to_pause(delivery: Delivery, outcome: Outcome) -> Answer | FenceKitError | float:
    """What is settled, or the seconds to pause before another copy."""
    if not isinstance(outcome, WireLost):
        return outcome
    try:
        return delivery.lost(outcome, time.monotonic())
    except FenceKitError as error:
        return error


def _round(
    driver: SyncDriver, deliveries: Sequence[Delivery], timeout: float | None
) -> dict[Delivery, Outcome]:
    """Send one copy of each, in one pipeline for each node."""
    groups: dict[Address | None, list[Delivery]] = {}
    outcomes: dict[Delivery, Outcome] = {}
    nowhere: WireLost | None = None
    for delivery in deliveries:
        if nowhere is None:
            try:
                groups.setdefault(driver.route(delivery), []).append(delivery)
                continue
            except WireLost as lost:  # no node of a cluster answers: they are asked once a round
                nowhere = lost
        outcomes[delivery] = nowhere
    for node, group in groups.items():
        outcomes |= _pipeline(driver, node, group, timeout)
    return outcomes


def _pipeline(
    driver: SyncDriver, node: Address | None, group: list[Delivery], timeout: float | None
) -> dict[Delivery, Outcome]:
    """Send one copy of each on one connection, and read what each is answered."""
    pool = driver.pool(node)
    try:
        wire = pool.take(timeout)
    except WireLost as lost:
        driver.mistrust_slots(node)
        return dict.fromkeys(group, lost)
    outcomes: dict[Delivery, Outcome] = {}
    lost_at: WireLost | None = None
    try:
        now = time.monotonic()
        for delivery in group:
            delivery.leaving(now)
        wire.send(b"".join(delivery.packed() for delivery in group))
        for delivery in group:
            outcomes[delivery] = _read(delivery, _receive(wire, delivery))
    except WireLost as lost:
        lost_at = lost
    except BaseException:
        # Also an interrupt in the middle: what it would still answer is nobody's.
        pool.drop(wire)
        raise
    leaving = [delivery for delivery in group if delivery.reconnect]
    for delivery in leaving:
        delivery.reconnect = False
    if leaving or lost_at is not None:
        pool.drop(wire)
    else:
        pool.give(wire)
    if leaving:
        pool.close()
    if lost_at is not None:
        driver.mistrust_slots(node)
        # Last in the next round: if it is the first of these that the other side breaks off at, it
        # takes none of the others with it.
        suspect, *behind = group[len(outcomes) :]
        outcomes.update(dict.fromkeys((*behind, suspect), lost_at))
    return outcomes


def _receive(wire: Wire, delivery: Delivery) -> list[Reply]:
    if not delivery.patience:
        return wire.receive(delivery.replies)
    with wire.patient(delivery.patience):
        return wire.receive(delivery.replies)


def _read(delivery: Delivery, replies: list[Reply]) -> Outcome:
    try:
        return delivery.answered(replies, time.monotonic())
    except FenceKitError as error:
        return error
