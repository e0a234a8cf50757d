"""The async driver: performs operations and flows on the running event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from fencekit.drivers.aio_keeper import AsyncLeaseKeeper
from fencekit.drivers.aio_wake import AsyncWaiter
from fencekit.drivers.client import Client, describe
from fencekit.drivers.eviction import warn_of_eviction
from fencekit.drivers.loop_state import LoopState, Parcel
from fencekit.errors import FenceKitError
from fencekit.protocol.operation import AwaitMail, Flow, Now, Operation, Reply

__all__ = ["AsyncDriver"]

T = TypeVar("T")

_drivers: weakref.WeakKeyDictionary[Any, AsyncDriver] = weakref.WeakKeyDictionary()
_drivers_lock = threading.Lock()


class AsyncDriver:
    """Performs what the protocol asks for, on connections made like the given client's.

    One for each client, with a state of its own for each event loop, so that one lock object
    serves any number of loops, at once or one after the other.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.pid = os.getpid()
        self.policy_seen = False
        self._states: dict[asyncio.AbstractEventLoop, LoopState] = {}
        self._parents: list[object] = []

    @classmethod
    def of(cls, client: Any) -> AsyncDriver:
        """The driver of a client.

        Raises:
            TypeError: not an async client of redis-py or valkey-py.
        """
        with _drivers_lock:
            try:
                driver = _drivers.get(client)
            except TypeError:  # what cannot be referred to weakly is no client, and is told so
                driver = None
            if driver is None:
                driver = cls(describe(client, "async"))
                _drivers[client] = driver
                # Driver and states refer to each other: without this their connections would stay
                # open until the garbage collector comes round.
                weakref.finalize(client, driver.abandon).atexit = False
            return driver

    @property
    def is_cluster(self) -> bool:
        """Whether keys of two names may live on different nodes."""
        return self.client.kind == "cluster"

    @property
    def keeper(self) -> AsyncLeaseKeeper:
        """The lease keeper of the running loop."""
        return self.state().keeper

    def state(self) -> LoopState:
        """The state that belongs to the running loop."""
        loop = asyncio.get_running_loop()
        state = self._states.get(loop)
        if state is None:
            # Loops that were closed without shutdown_asyncgens leave theirs behind.
            for other in list(self._states):  # a copy: another thread's loop may be added
                if other.is_closed():
                    self._states.pop(other, None)
            state = self._states[loop] = LoopState(self, loop)
        return state

    def forget(self, state: LoopState) -> None:
        """A loop has ended."""
        if self._states.get(state.loop) is state:
            del self._states[state.loop]

    async def execute(self, operation: Operation[T]) -> T:
        """Perform one operation and return its outcome.

        Raises:
            StoreUnavailable: nothing was sent.
            StoreRefused: the server answered with an error.
            OutcomeUnknown: it was sent and not answered.
        """
        return operation.parse((await self.state().submit(operation)).reply)

    async def execute_many(self, operations: Sequence[Operation[T]]) -> list[T | FenceKitError]:
        """Perform operations in one pipeline for each node; one's error is its own."""
        state = self.state()
        futures = [state.submit(operation) for operation in operations]
        if futures:
            await asyncio.wait(futures)
        outcomes: list[T | FenceKitError] = []
        for operation, future in zip(operations, futures, strict=True):
            try:
                outcomes.append(operation.parse(future.result().reply))
            except FenceKitError as error:
                outcomes.append(error)
        return outcomes

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end; an error of a step is thrown into the flow.

        Cancelled, the caller goes at once; what the flow does to tidy up is sent before anything
        that the caller sends next, and goes on in the background.

        Raises:
            whatever the flow raises.
        """
        state = self.state()
        listening: dict[str, AsyncWaiter] = {}
        failed = True
        parcel: Parcel | None = None
        try:
            step = next(flow)
            while True:
                try:
                    if isinstance(step, Operation):
                        parcel = state.send(step)
                        result = await parcel.future
                    elif isinstance(step, AwaitMail):
                        result = await step.box.receive(step.seconds)
                    elif isinstance(step, Now):
                        result = state.loop.time()
                    else:
                        result = await state.perform(step, listening)
                except asyncio.CancelledError as cancelled:
                    state.finish(flow, cancelled, parcel)
                    raise
                except Exception as error:  # noqa: BLE001 - the flow decides
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
        except StopIteration as stop:
            failed = False
            done: T = stop.value
            return done
        finally:
            for waiter in listening.values():
                state.hub.leave(waiter, None, failed=failed)

    async def call(self, *command: str) -> Reply:
        """Send one plain command, once; a reply, or None where there is none.

        For questions whose answer is only good to know (INFO), never for the protocol.
        """
        try:
            return await self.state().ask(None, *command)
        except FenceKitError:
            return None

    async def look_at_policy(self, name: str) -> None:
        """Warn, once for each client, of a server that may evict what is held under a name.

        Before anything is taken: nothing may come between a grant and its handle, where a
        cancellation would leave the lock to nobody.
        """
        if not self.policy_seen:
            self.policy_seen = True
            warn_of_eviction(await self.call("INFO", "memory"), name)

    async def aclose(self) -> None:
        """Close every connection of the running loop; the next use starts afresh."""
        state = self._states.get(asyncio.get_running_loop())
        if state is not None:
            await state.settle()
            await state.close()

    def abandon(self) -> None:
        """Have each loop close what it has here, without waiting.

        Called when the client is gone, possibly by the garbage collector in the middle of anything,
        and in any thread.
        """
        for loop, state in list(self._states.items()):
            # A loop that is closed has closed them, or nobody can.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(state.abandon)

    def forked(self) -> None:
        """Start afresh in a forked child: the loops and connections are the parent's."""
        self.pid = os.getpid()
        self._parents.append(self._states)  # kept, or their transports would complain and close
        self._states = {}
        self.policy_seen = False


def _after_fork() -> None:
    global _drivers_lock  # noqa: PLW0603 - the parent's may be held by a thread that is not here
    _drivers_lock = threading.Lock()
    for driver in list(_drivers.values()):
        driver.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
