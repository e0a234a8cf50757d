"""What the async driver has on one event loop: parcels under way, lanes, a hub and a keeper."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fencekit.drivers.aio_keeper import AsyncLeaseKeeper
from fencekit.drivers.aio_wake import AsyncWaiter, AsyncWakeHub
from fencekit.drivers.client import Address
from fencekit.drivers.cluster import SlotTable
from fencekit.drivers.delivery import Delivery, WireLost
from fencekit.drivers.keeper import TIMEOUT as KEEPER_TIMEOUT
from fencekit.drivers.lane import Lane, Question
from fencekit.errors import FenceKitError, OutcomeUnknown, StoreError, StoreUnavailable
from fencekit.protocol.operation import (
    Answer,
    AwaitWake,
    Call,
    Flow,
    Listen,
    OpenMail,
    Operation,
    Reply,
    Routes,
    Sleep,
    Step,
    Together,
    Unlisten,
)

if TYPE_CHECKING:
    from fencekit.drivers.aio import AsyncDriver

__all__ = ["LoopState", "Parcel"]

# Connections for operations that wait for replicas: WAIT holds up what is behind it.
_REPLICATED_LANES = 8
# How long a tidying step may still take when its loop is shutting down, seconds.
_LAST_CHANCE = 1.0


class Parcel:
    """One operation under way, and the future that its caller awaits."""

    __slots__ = ("_hear", "_once", "_state", "due", "future", "lane", "load")

    def __init__(
        self,
        state: LoopState,
        load: Delivery | Question,
        future: asyncio.Future[Any],
        *,
        once: bool = False,
        hear: Callable[[Answer], None] | None = None,
    ) -> None:
        self._state = state
        self._once = once
        self._hear = hear
        self.load = load
        self.future = future
        self.lane: Lane | None = None
        self.due = 0.0

    def answered(self, replies: list[Reply]) -> None:
        """Replies have come."""
        load = self.load
        if isinstance(load, Question):
            self._done(replies[0])
            return
        try:
            outcome = load.answered(replies, self._state.loop.time())
        except FenceKitError as error:
            self.fail(error)
            return
        if load.reconnect:
            load.reconnect = False
            self._state.reconnect(self.lane)
        if isinstance(outcome, Answer):
            if self._hear is not None:
                self._hear(outcome)
            self._done(outcome)
        else:
            self._again(outcome)

    def lost(self, lost: WireLost) -> None:
        """The connection broke, or was never made."""
        load = self.load
        if isinstance(load, Delivery):
            self._state.mistrust_slots(load.at)
        if self._once or isinstance(load, Question):
            self.fail(StoreUnavailable(f"no answer ({lost})"))
            return
        try:
            self._again(load.lost(lost, self._state.loop.time()))
        except FenceKitError as error:
            self.fail(error)

    def abandon(self) -> None:
        """Send no further copy: what its caller sends to tidy up must be the last word."""
        self._once = True

    def _again(self, pause: float) -> None:
        loop = self._state.loop
        if loop.is_closed():
            return
        if pause:
            loop.call_later(pause, self._resend)
        else:
            self._resend()

    def _resend(self) -> None:
        if self._state.ended:
            self.fail(StoreUnavailable("the event loop has ended"))
        elif not (self._once and self.future.done()):
            self._state.dispatch(self)

    def _done(self, result: Any) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        """It could not be done."""
        # Where the caller has gone, nobody is left to tell.
        if not self.future.done():
            self.future.set_exception(error)


class LoopState:
    """What a driver has on one event loop: its lanes, its hub, its keeper."""

    def __init__(self, driver: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        self.client = driver.client
        self.loop = loop
        self.hub = AsyncWakeHub(self)
        self.keeper = AsyncLeaseKeeper(self)
        self._driver = driver
        self._lanes: dict[tuple[str, Address | None], Lane] = {}
        # Given up for another connection, as long as they owe answers.
        self._retired: set[Lane] = set()
        self._slots = SlotTable(driver.client) if driver.is_cluster else None
        self._learning = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._fails_over = self.client.kind != "single"
        # What is sent for nobody: it was settled before.
        self._nobody: asyncio.Future[Any] = loop.create_future()
        self._nobody.set_result(None)
        self.ended = False
        self._closed = False
        # A loop that ends closes its async generators: this one closes our connections.
        self._closer = self._close_with_loop()
        with suppress(StopIteration):
            self._closer.asend(None).send(None)

    def submit(self, operation: Operation[Any]) -> asyncio.Future[Answer]:
        """Send an operation; the future is settled whoever still waits for it."""
        return self.send(operation).future

    def send(
        self, operation: Operation[Any], hear: Callable[[Answer], None] | None = None
    ) -> Parcel:
        """Send an operation; the parcel has its future.

        Args:
            operation: what to send.
            hear: told the answer as soon as it has come, a turn of the loop before whoever awaits
                the future, and also when nobody does any more. It must not raise.
        """
        return self._send(operation, self.loop.create_future(), hear)

    def post(self, operation: Operation[Any], hear: Callable[[Answer], None]) -> None:
        """Send an operation that nobody waits for; an answer is told as by `send`."""
        self._send(operation, self._nobody, hear)

    def _send(
        self,
        operation: Operation[Any],
        future: asyncio.Future[Any],
        hear: Callable[[Answer], None] | None,
    ) -> Parcel:
        delivery = Delivery(operation, self.loop.time(), fails_over=self._fails_over)
        parcel = Parcel(self, delivery, future, hear=hear)
        self.dispatch(parcel)
        return parcel

    def see_through(self, parcel: Parcel) -> None:
        """Have a parcel go on whose caller was cancelled, and a loop that ends wait for it."""
        parcel.future = self.loop.create_future()
        self._spawn(self._see_through(parcel.future))

    async def _see_through(self, future: asyncio.Future[Answer]) -> None:
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:  # the loop is shutting down
            if self.ended:
                return
            await asyncio.wait([future], timeout=_LAST_CHANCE)
        if future.done() and not future.cancelled():
            future.exception()  # there is nobody to tell

    def submit_once(self, operation: Operation[Any]) -> asyncio.Future[Answer]:
        """Send an operation on the keeper's lane, and no further copy when it breaks."""
        future: asyncio.Future[Answer] = self.loop.create_future()
        delivery = Delivery(operation, self.loop.time())
        self.dispatch(Parcel(self, delivery, future, once=True), "keeper")
        return future

    def dispatch(self, parcel: Parcel, purpose: str = "") -> None:
        """Put a parcel on the lane to where its key lives."""
        if self._closed:
            # A connection made now would be nobody's to close.
            parcel.fail(_closed(parcel.load))
            return
        load = parcel.load
        if not isinstance(load, Delivery):
            msg = "a question goes to a lane by itself"
            raise TypeError(msg)
        address: Address | None = None
        if self._slots is not None:
            if load.node is None and not load.asking:
                try:
                    question = self._slots.question(load.operation.keys[0])
                except WireLost as lost:
                    parcel.lost(lost)
                    return
                if question is not None:
                    task = self._spawn(self._route(parcel, purpose))
                    # Cancelled (all tasks are, when a loop ends), it has left the parcel behind.
                    task.add_done_callback(
                        lambda done: (
                            parcel.lost(WireLost("cancelled", sent=False))
                            if done.cancelled()
                            else None
                        )
                    )
                    return
            address = self._slots.route(load)
        if load.operation.replication is not None:
            purpose = self._replicated_lane(address)
        parcel.lane = self._lane(purpose, address)
        parcel.lane.submit(parcel)

    async def perform(self, step: Step, listening: dict[str, AsyncWaiter]) -> Any:
        """Perform a step that `AsyncDriver.run` does not perform itself: it is not in a hurry."""
        if isinstance(step, Together):
            return await self.trace_many(step.operations)
        if isinstance(step, Routes):
            return await self._routes(step.stem)
        if isinstance(step, Call):
            result = step.function()
            return await result if inspect.isawaitable(result) else result
        return await self._wait(step, listening)

    async def _wait(self, step: Step, listening: dict[str, AsyncWaiter]) -> Any:
        if isinstance(step, OpenMail):
            return await step.box.open()
        if isinstance(step, AwaitWake):
            return await self.hub.wait(listening[step.channel], step.seconds, step.alarm)
        if isinstance(step, Listen):
            listening[step.channel] = await self.hub.join(step.channel, step.until)
            return None
        if isinstance(step, Unlisten):
            self.hub.leave(listening.pop(step.channel), step.alarm, failed=False)
            return None
        if isinstance(step, Sleep):
            await asyncio.sleep(step.seconds)
            return None
        msg = f"not a step: {step!r}"
        raise TypeError(msg)

    def finish(
        self, flow: Flow[Any], cancelled: asyncio.CancelledError, parcel: Parcel | None
    ) -> None:
        """Let a cancelled flow tidy up in the background, its first command sent here and now.

        Args:
            flow: what was cancelled.
            cancelled: what to throw into it.
            parcel: the last that it sent, perhaps not answered. It goes on by itself if the flow
                has nothing to tidy up.
        """
        try:
            step = flow.throw(cancelled)
        except (StopIteration, asyncio.CancelledError):
            return
        if isinstance(step, Operation):
            if parcel is not None:
                parcel.abandon()
            self._spawn(self._finish(flow, self.submit(step)))
        else:
            flow.close()

    async def _finish(self, flow: Flow[Any], future: asyncio.Future[Answer]) -> None:
        while True:
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # the loop is shutting down
                if self.ended:
                    flow.close()
                    return
                await asyncio.wait([future], timeout=_LAST_CHANCE)
            try:
                step = flow.send(future.result()) if future.done() else flow.throw(TimeoutError())
            except (StopIteration, asyncio.CancelledError, TimeoutError):
                return
            except FenceKitError as error:
                try:
                    step = flow.throw(error)
                except (StopIteration, asyncio.CancelledError, FenceKitError):
                    return
            if not isinstance(step, Operation):
                flow.close()
                return
            future = self.submit(step)

    async def trace_many(
        self, operations: Sequence[Operation[Any]]
    ) -> list[Answer | FenceKitError]:
        """Send operations in one pipeline for each node and return the answers, unparsed."""
        futures = [self.submit(operation) for operation in operations]
        if futures:
            await asyncio.wait(futures)
        answers: list[Answer | FenceKitError] = []
        for future in futures:
            try:
                answers.append(future.result())
            except FenceKitError as error:
                answers.append(error)
        return answers

    async def ask(self, address: Address | None, *command: str) -> Reply:
        """Send one plain command on the ordinary lane.

        Raises:
            StoreUnavailable: no answer.
        """
        if self._closed:
            raise _closed(None)
        if address is None and self._slots is not None:
            address = self._slots.any_node()
        future: asyncio.Future[Reply] = self.loop.create_future()
        self._lane("", address).submit(Parcel(self, Question(*command), future))
        return await future

    def mistrust_slots(self, failed: Address | None) -> None:
        """A node could not be reached."""
        if self._slots is not None:
            self._slots.stale(failed)

    def reconnect(self, lane: Lane | None) -> None:
        """The server at the end of a lane is not the one to talk to any more."""
        for place, other in self._lanes.items():
            if other is lane:
                del self._lanes[place]
                self._retired = {one for one in self._retired if one.busy} | {other}
                other.retire()
                return

    def any_node(self) -> Address | None:
        """A node to listen on: publishing reaches every node of a cluster."""
        return None if self._slots is None else self._slots.any_node()

    async def settle(self) -> None:
        """Wait for what is being tidied up in the background."""
        while self._background:
            await asyncio.wait(set(self._background))

    async def close(self) -> None:
        """Close the connections and forget the loop."""
        if tasks := self._shut():
            await asyncio.wait(tasks, timeout=_LAST_CHANCE)

    def abandon(self) -> None:
        """Close the connections of a driver that nobody uses any more, after its last words."""
        if not self._background:
            self._shut()
            return
        for task in self._background:
            task.add_done_callback(lambda _: self._background or self._shut())

    def _shut(self) -> list[asyncio.Task[None]]:
        """Close the connections and forget the loop; returns connections in the making."""
        self._closed = True
        self._driver.forget(self)
        self.keeper.close()
        lanes = (*self._lanes.values(), *self._retired)
        connecting = [self.hub.close(), *(lane.close() for lane in lanes)]
        self._lanes.clear()
        return [task for task in connecting if task is not None]

    async def _route(self, parcel: Parcel, purpose: str) -> None:
        """Ask for the slot table, then dispatch."""
        slots, load = self._slots, parcel.load
        if slots is None or not isinstance(load, Delivery):
            return
        try:
            await self._learn_slots(slots, load.operation.keys[0])
        except WireLost as lost:
            parcel.lost(lost)
            return
        self.dispatch(parcel, purpose)

    async def _learn_slots(self, slots: SlotTable, key: str) -> None:
        async with self._learning:  # one task asks, and the others find the answer
            while (question := slots.question(key)) is not None:
                try:
                    reply = await self.ask(question, "CLUSTER", "SLOTS")
                except StoreUnavailable:
                    reply = None
                slots.answer(question, reply)

    async def _routes(self, stem: str) -> list[str]:
        if self._slots is None:
            return [stem]
        await self._learn_slots(self._slots, stem)
        return self._slots.routes(stem)

    def _lane(self, purpose: str, address: Address | None) -> Lane:
        lane = self._lanes.get((purpose, address))
        if lane is None:
            timeout = self.client.timeout
            if purpose == "keeper":
                timeout = min(timeout, KEEPER_TIMEOUT)
            lane = self._lanes[purpose, address] = Lane(self.loop, self.client, timeout, address)
        return lane

    def _replicated_lane(self, address: Address | None) -> str:
        """The least busy of the lanes that WAIT may hold up."""
        best, least = "wait-0", -1
        for index in range(_REPLICATED_LANES):
            lane = self._lanes.get((f"wait-{index}", address))
            busy = 0 if lane is None else lane.busy
            if least < 0 or busy < least:
                best, least = f"wait-{index}", busy
            if busy == 0:
                break
        return best

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            # All tasks have been cancelled by now, and some of them have left a word to be sent.
            if self._background:
                await asyncio.wait(set(self._background), timeout=_LAST_CHANCE)
            self.ended = True
            for task in self._background:
                task.cancel()
            await self.close()


def _closed(load: object) -> StoreError:
    """What to say of an operation whose driver was closed under it."""
    msg = "the driver was closed, or its event loop ended"
    sends = load.sends if isinstance(load, Delivery) else 0
    return OutcomeUnknown(msg, sends=sends) if sends else StoreUnavailable(msg)
