"""The sync driver: performs operations and flows with blocking sockets, from any thread."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, TypeVar

from fencekit.drivers.client import Address, Client, describe
from fencekit.drivers.cluster import SlotTable
from fencekit.drivers.delivery import Delivery, WireLost
from fencekit.drivers.eviction import warn_of_eviction
from fencekit.drivers.keeper import LeaseKeeper
from fencekit.drivers.pipelines import deliver_all, send_all
from fencekit.drivers.pool import WirePool
from fencekit.drivers.wake import Waiter, WakeHub
from fencekit.errors import FenceKitError
from fencekit.protocol.operation import (
    Answer,
    AwaitMail,
    AwaitWake,
    Call,
    Flow,
    Listen,
    Now,
    OpenMail,
    Operation,
    Routes,
    Sleep,
    Step,
    Together,
    Unlisten,
)
from fencekit.protocol.resp import pack

__all__ = ["SyncDriver"]

T = TypeVar("T")

_drivers: weakref.WeakKeyDictionary[Any, SyncDriver] = weakref.WeakKeyDictionary()
_drivers_lock = threading.Lock()


class SyncDriver:
    """Performs what the protocol asks for, on connections made like the given client's.

    One for each client, shared by every lock, gate and guard that was given the client, together
    with its wake hub and its lease keeper.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._start()

    def _start(self) -> None:
        self.pid = os.getpid()
        self._pools: dict[Address | None, WirePool] = {}
        self._pool_lock = threading.Lock()
        self._slots = SlotTable(self.client) if self.client.kind == "cluster" else None
        self._learning = threading.Lock()
        self.hub = WakeHub(self)
        self.keeper = LeaseKeeper(self)
        self.policy_seen = False

    @classmethod
    def of(cls, client: Any) -> SyncDriver:
        """The driver of a client.

        Raises:
            TypeError: not a sync client of redis-py or valkey-py.
        """
        with _drivers_lock:
            try:
                driver = _drivers.get(client)
            except TypeError:  # what cannot be referred to weakly is no client, and is told so
                driver = None
            if driver is None:
                driver = cls(describe(client, "sync"))
                _drivers[client] = driver
                # Driver, hub and keeper refer to each other: without this their connections would
                # stay open until the garbage collector comes round.
                weakref.finalize(client, driver.abandon).atexit = False
            return driver

    @property
    def is_cluster(self) -> bool:
        """Whether keys of two names may live on different nodes."""
        return self._slots is not None

    def execute(self, operation: Operation[T]) -> T:
        """Perform one operation and return its outcome.

        Raises:
            StoreUnavailable: nothing was sent.
            StoreRefused: the server answered with an error.
            OutcomeUnknown: it was sent and not answered.
        """
        return operation.parse(self._deliver(self._delivery(operation)).reply)

    def execute_many(self, operations: Sequence[Operation[T]]) -> list[T | FenceKitError]:
        """Perform operations in one pipeline for each node; one's error is its own."""
        return [
            answer if isinstance(answer, FenceKitError) else operation.parse(answer.reply)
            for operation, answer in zip(operations, self.trace_many(operations), strict=True)
        ]

    def trace_many(self, operations: Sequence[Operation[Any]]) -> list[Answer | FenceKitError]:
        """Perform operations as `execute_many` does, and return the whole answers, unparsed."""
        return deliver_all(self, [self._delivery(operation) for operation in operations])

    def try_many(
        self, operations: Sequence[Operation[Any]], *, timeout: float
    ) -> list[Answer | FenceKitError | None]:
        """Send operations once, in one pipeline for each node; None where no answer came.

        Args:
            operations: what to send.
            timeout: how long each connection and each answer may take, seconds.
        """
        deliveries = [self._delivery(operation) for operation in operations]
        return send_all(self, deliveries, timeout=timeout)

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end; an error of a step is thrown into the flow.

        Raises:
            whatever the flow raises.
        """
        listening: dict[str, Waiter] = {}
        failed = True
        try:
            step = next(flow)
            while True:
                try:
                    result = self._perform(step, listening)
                except BaseException as error:  # noqa: BLE001 - the flow decides
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
        except StopIteration as stop:
            failed = False
            done: T = stop.value
            return done
        finally:
            for waiter in listening.values():
                self.hub.leave(waiter, None, failed=failed)

    def call(self, *command: str, address: Address | None = None) -> Any:
        """Send one plain command, once; a reply or None where there is none.

        For questions whose answer is only good to know (INFO), never for the protocol.
        """
        pool = self.pool(address or self.any_node())
        try:
            wire = pool.take()
        except WireLost:
            return None
        try:
            wire.send(pack(*command))
            reply = wire.receive(1)[0]
        except WireLost:
            pool.drop(wire)
            return None
        except BaseException:
            pool.drop(wire)
            raise
        pool.give(wire)
        return reply

    def look_at_policy(self, name: str) -> None:
        """Warn, once for each client, of a server that may evict what is held under a name."""
        if not self.policy_seen:
            self.policy_seen = True
            warn_of_eviction(self.call("INFO", "memory"), name)

    def trim(self) -> None:
        """Close the connections that a rush has left idle."""
        for pool in list(self._pools.values()):
            pool.trim()

    def close(self) -> None:
        """Close every connection and end the threads; the next use starts afresh."""
        self.keeper.close()
        self.hub.close()
        for pool in list(self._pools.values()):
            pool.close()

    def abandon(self) -> None:
        """Close what is idle and tell the threads to end, without a lock and without waiting.

        Called when the client is gone, possibly by the garbage collector in the middle of anything.
        """
        self.keeper.abandon()
        self.hub.abandon()
        for pool in list(self._pools.values()):
            pool.abandon()

    def forked(self) -> None:
        """Start afresh in a forked child: connections, threads and locks are the parent's."""
        self._start()

    def _perform(self, step: Step, listening: dict[str, Waiter]) -> Any:
        if isinstance(step, Operation):
            return self._deliver(self._delivery(step))
        if isinstance(step, Now):
            return time.monotonic()
        if isinstance(step, Together):
            return self.trace_many(step.operations)
        if isinstance(step, Routes):
            return self._routes(step.stem)
        if isinstance(step, Call):
            return step.function()
        return self._wait(step, listening)

    def _wait(self, step: Step, listening: dict[str, Waiter]) -> Any:
        if isinstance(step, AwaitMail):
            return step.box.receive(step.seconds)
        if isinstance(step, OpenMail):
            return step.box.open()
        if isinstance(step, AwaitWake):
            return self.hub.wait(listening[step.channel], step.seconds, step.alarm)
        if isinstance(step, Listen):
            listening[step.channel] = self.hub.join(step.channel, step.until)
            return None
        if isinstance(step, Unlisten):
            self.hub.leave(listening.pop(step.channel), step.alarm, failed=False)
            return None
        if isinstance(step, Sleep):
            time.sleep(step.seconds)
            return None
        msg = f"not a step: {step!r}"
        raise TypeError(msg)

    def _delivery(self, operation: Operation[Any]) -> Delivery:
        return Delivery(operation, time.monotonic(), fails_over=self.client.kind != "single")

    def _deliver(self, delivery: Delivery) -> Answer:
        while True:
            try:
                outcome = self._send_copy(delivery)
            except WireLost as lost:
                self.mistrust_slots(delivery.at)
                outcome = delivery.lost(lost, time.monotonic())
            if isinstance(outcome, Answer):
                return outcome
            if outcome:
                time.sleep(outcome)

    def _send_copy(self, delivery: Delivery) -> Answer | float:
        pool = self.pool(self.route(delivery))
        wire = pool.take()
        try:
            delivery.leaving(time.monotonic())
            wire.send(delivery.packed())
            if delivery.operation.replication is None:
                replies = wire.receive(delivery.replies)
            else:
                with wire.patient(delivery.patience):
                    replies = wire.receive(delivery.replies)
        except BaseException:
            # Also an interrupt in the middle: what it would still answer is nobody's.
            pool.drop(wire)
            raise
        try:
            return delivery.answered(replies, time.monotonic())
        finally:
            if delivery.reconnect:
                delivery.reconnect = False
                pool.drop(wire)
                pool.close()
            else:
                pool.give(wire)

    def mistrust_slots(self, failed: Address | None) -> None:
        """A node could not be reached."""
        if self._slots is not None:
            self._slots.stale(failed)

    def route(self, delivery: Delivery) -> Address | None:
        """The node that the next copy goes to; None where there is but one.

        Raises:
            WireLost: no node of the cluster answered.
        """
        if self._slots is None:
            return None
        if delivery.node is None and not delivery.asking:
            self._learn_slots(self._slots, delivery.operation.keys[0])
        return self._slots.route(delivery)

    def _learn_slots(self, slots: SlotTable, key: str) -> None:
        if slots.question(key) is None:
            return
        with self._learning:  # one thread asks, and the others find the answer
            while (question := slots.question(key)) is not None:
                slots.answer(question, self.call("CLUSTER", "SLOTS", address=question))

    def _routes(self, stem: str) -> list[str]:
        if self._slots is None:
            return [stem]
        self._learn_slots(self._slots, stem)
        return self._slots.routes(stem)

    def pool(self, address: Address | None) -> WirePool:
        """The connections to a node."""
        pool = self._pools.get(address)
        if pool is None:
            with self._pool_lock:
                pool = self._pools.setdefault(address, WirePool(self.client, address))
        return pool

    def any_node(self) -> Address | None:
        """A node to listen on: publishing reaches every node of a cluster."""
        return None if self._slots is None else self._slots.any_node()


def _after_fork() -> None:
    global _drivers_lock  # noqa: PLW0603 - the parent's may be held by a thread that is not here
    _drivers_lock = threading.Lock()
    for driver in list(_drivers.values()):
        driver.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
