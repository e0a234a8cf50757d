"""The wake hub of the sync driver: one subscribed connection and one thread for all waiters.

The connection is read by one of the waiters, the *reader*, so that a wake need not be passed from
one thread to another: that would cost a quarter of a hand-off. The hub's thread connects, keeps the
connection alive, and reads whenever nobody waits.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fencekit.drivers.delivery import WireLost
from fencekit.drivers.interrupts import is_interrupt
from fencekit.drivers.switchboard import BaseWaiter, Channel, Ear, Switchboard, tell
from fencekit.drivers.wire import Wire, readable
from fencekit.protocol.operation import Reply
from fencekit.protocol.resp import ErrorReply, pack

if TYPE_CHECKING:
    from fencekit.drivers.sync import SyncDriver

__all__ = ["Waiter", "WakeHub"]

_log = logging.getLogger("fencekit.wake")

# The hub's own timeout: how long a silent server is believed to be there after a PING, seconds.
TIMEOUT = 2.0
PING_EVERY = 5.0
# How often connections are looked for that a rush has left behind, seconds.
TRIM_EVERY = 0.5
# How long a subscription outlives its last waiter: a name that is fought over keeps it.
LINGER = 2.0
# Without a subscription (the server is away, or forbids it) the first waiter of each channel looks.
POLL = 0.5
RECONNECT_FIRST, RECONNECT_LONGEST = 0.02, 1.0
# One sleep at most; longer waits are several.
LONGEST_SLEEP = 600.0


class Waiter(BaseWaiter):
    """A thread that waits.

    Attributes:
        nudge: what wakes it while it reads for all; None while it does not.
    """

    def __init__(self, channel: str) -> None:
        super().__init__(channel)
        self.nudge: Nudge | None = None
        self._bell = threading.Lock()
        self._bell.acquire()

    def signal(self) -> None:
        """Wake the thread, or its next sleep."""
        if self.nudge is not None:
            self.nudge.give()
        elif self._bell.locked():  # else it rings already
            with suppress(RuntimeError):  # and another was quicker
                self._bell.release()

    def sleep(self, seconds: float) -> None:
        """Sleep until signalled or the time is over."""
        self._bell.acquire(timeout=min(seconds, LONGEST_SLEEP))


class Nudge:
    """Wakes a thread that waits for a connection."""

    def __init__(self) -> None:
        self._here, self._there = os.pipe()
        os.set_blocking(self._here, False)
        os.set_blocking(self._there, False)

    def __del__(self) -> None:
        # Whoever waits refers to us.
        os.close(self._here)
        os.close(self._there)

    def fileno(self) -> int:
        """What becomes readable by a nudge."""
        return self._here

    def give(self) -> None:
        """Wake the thread that waits, or its next wait."""
        with suppress(BlockingIOError):  # it was nudged often enough
            os.write(self._there, b"!")

    def wait(self, wire: Wire, seconds: float) -> None:
        """Wait until something has arrived, until nudged, or the time is over."""
        if self in readable((wire, self), min(seconds, LONGEST_SLEEP)):
            os.read(self._here, 64)


class WakeHub:
    """Wakes waiting threads when a name they wait for is released.

    A wake is only an optimisation: whoever is woken tries again, and whoever is not looks when the
    holder's lease is over. After every reconnect all waiters look for themselves.
    """

    def __init__(self, driver: SyncDriver) -> None:
        self._driver = driver
        self._board: Switchboard[Waiter] = Switchboard()
        self._lock = threading.Lock()
        self._confirmed = threading.Condition(self._lock)
        self._wire: Wire | None = None
        self._lost: WireLost | None = None  # how the reader found the present connection
        self._heard_at = 0.0
        self._nudge: Nudge | None = None  # made with the thread: most clients never wait
        self._reader: Waiter | None = None
        self._sleepers: dict[Waiter, None] = {}
        self._joining = 0
        self._relieved = threading.Condition(self._lock)
        self._has_ears = False
        self._untold: list[tuple[list[tuple[str, Ear]], bytes | None]] = []
        self._thread: threading.Thread | None = None
        self._closing = False
        self._refused = False
        self._cut_off = False  # the last attempt to connect has failed
        self._pause = RECONNECT_FIRST
        # What satellites keep beside the hub: it goes when the hub does, as after a fork.
        self.guests: dict[str, Any] = {}

    def join(self, channel: str, until: float = math.inf) -> Waiter:
        """Listen on a channel; returns when wakes can arrive, or cannot for now, or at a time."""
        waiter = Waiter(channel)
        with self._lock:
            state = self._board.join(waiter)
            try:
                self._attend(channel, state, until)
            except BaseException:
                # Interrupted, or no thread to be had: nobody must wait behind one who has gone.
                self._board.leave(waiter, None, time.monotonic(), failed=True)
                raise
            # Who joins looks once more by itself; only what comes after that is a wake.
            waiter.pending = False
        return waiter

    def subscribe(self, channel: str, ear: Ear, until: float = math.inf) -> None:
        """Have an ear told of every message; returns as `join` does.

        The ear is called in the hub's thread, also with None whenever messages may have been
        missed. Interrupted, it stays subscribed: others may rely on the same ear, and whoever keeps
        it knows.
        """
        with self._lock:
            state = self._board.subscribe(channel, ear)
            # Ears hear at once, whoever waits: from now on the hub's thread reads.
            self._has_ears = True
            self._relieved.notify()
            self._attend(channel, state, until)

    def unsubscribe(self, channel: str, ear: Ear) -> None:
        """End a subscription; messages may arrive for some seconds more."""
        with self._lock:
            self._board.unsubscribe(channel, ear, time.monotonic())

    def hears(self, channel: str) -> bool:
        """Whether messages on a channel arrive here now."""
        state = self._board.channels.get(channel)
        return state is not None and state.confirmed

    def leave(self, waiter: Waiter, alarm: float | None, *, failed: bool) -> None:
        """End a wait."""
        now = time.monotonic()
        with self._lock:
            if self._reader is waiter or waiter in self._sleepers:  # interrupted twice
                self._retire(waiter)
            self._board.leave(waiter, None if alarm is None else now + alarm, now, failed=failed)

    def wait(self, waiter: Waiter, seconds: float, alarm: float) -> bool:
        """Sleep until woken, the alarm of the first waiter, or the end of the time.

        The lock is only ever held by a ``with`` of its own: were it let go of inside of one, an
        interrupt would end the ``with`` without it.
        """
        now = time.monotonic()
        deadline, begun = now + seconds, False
        wire: Wire | None = None
        try:
            while True:
                with self._lock:
                    if begun:
                        self._back(waiter, wire)
                    else:
                        self._board.begin_wait(waiter, now + alarm)
                        begun = True
                    if self._board.take_wake(waiter):
                        self._retire(waiter)
                        return True
                    left = self._board.look_at(waiter, deadline, now + POLL) - time.monotonic()
                    if left <= 0:
                        self._retire(waiter)
                        return False
                    wire = self._post(waiter)
                if wire is None:
                    waiter.sleep(left)
                elif waiter.nudge is not None:
                    try:
                        waiter.nudge.wait(wire, left)
                    except (ValueError, OSError) as error:
                        if is_interrupt(error):
                            raise
                        # The hub's thread has closed it since we let go of the lock.
        except BaseException:
            with self._lock:
                self._retire(waiter)
            raise

    def _post(self, waiter: Waiter) -> Wire | None:
        """Have a waiter read for all, where nobody does: the connection; or else sleep: None."""
        wire, nudge = self._wire, self._nudge
        reads = self._reader in {None, waiter} and not self._has_ears
        if wire is None or nudge is None or self._lost is not None or not reads:
            if self._reader is waiter:
                self._reader = None
            self._sleepers[waiter] = None
            return None
        self._reader, waiter.nudge = waiter, nudge
        return wire

    def _back(self, waiter: Waiter, wire: Wire | None) -> None:
        """A waiter is back from its post, and has read if that was the connection."""
        self._sleepers.pop(waiter, None)
        waiter.nudge = None
        if wire is not None and self._wire is wire:
            try:
                self._take_in(wire)
            except WireLost as lost:
                self._lost = lost
            except BaseException as error:  # interrupted: what it had read is heard by nobody
                self._lost = WireLost(error, sent=True)
                self._relieved.notify()
                raise
            if self._lost is not None or self._untold:  # the hub's thread sees to it
                self._relieved.notify()

    def _retire(self, waiter: Waiter) -> None:
        """A waiter waits no more; another one reads."""
        waiter.nudge = None
        self._sleepers.pop(waiter, None)
        if self._reader is waiter:
            self._reader = None
        if self._reader is None:
            self._appoint()

    def _appoint(self) -> None:
        """Have one that sleeps read from now on, or else the hub's thread.

        Where nobody waits the thread need not know at once: it looks by itself now and then, and
        the next to wait is the reader again.
        """
        for sleeper in self._sleepers:
            sleeper.signal()
            return
        if self._joining:
            self._relieved.notify()

    def close(self) -> None:
        """End the thread and close the connection."""
        with self._lock:
            thread, self._closing = self._thread, True
            wire = self._wire
            self._relieved.notify()
        if wire is not None:
            wire.shut()
        if thread is not None and thread is not threading.current_thread():
            thread.join(TIMEOUT)

    def abandon(self) -> None:
        """Have the thread end by itself, and the connection with it; waits for no lock."""
        self._closing = True
        if self._lock.acquire(blocking=False):
            self._relieved.notify()
            self._lock.release()
        if self._wire is not None:
            self._wire.shut()

    def _attend(self, channel: str, state: Channel[Waiter], until: float = math.inf) -> None:
        """Have the server asked for a channel, and wait for it to confirm, while it may."""
        self._closing = False  # whoever closes it meanwhile does so for those before us
        if self._thread is None:
            self._start()
        elif not state.confirmed and not state.asked:
            state.asked = True
            self._send("SUBSCRIBE", channel)
        if not state.confirmed:
            self._joining += 1
            self._relieved.notify()
            try:
                self._confirmed.wait_for(
                    lambda: state.confirmed or self._refused or self._cut_off,
                    min(TIMEOUT, until - time.monotonic()),
                )
            finally:
                self._joining -= 1
            if not state.confirmed:
                state.missed = True

    def _start(self) -> None:
        self._cut_off = False
        self._nudge = self._nudge or Nudge()
        thread = threading.Thread(target=self._serve, name="fencekit-wake", daemon=True)
        thread.start()  # may fail, and the next to come must then try again
        self._thread = thread

    def _send(self, command: str, *channels: str) -> None:
        """Send on the present connection, if there is one; its reader sees to errors."""
        if self._wire is not None:
            try:
                self._wire.limit(TIMEOUT)
                self._wire.send(pack(command, *channels))
            except (WireLost, OSError) as error:
                if is_interrupt(error):
                    raise

    def _serve(self) -> None:
        while self._goes_on():
            try:
                client, node = self._driver.client, self._driver.any_node()
                wire = Wire(client, min(client.timeout, TIMEOUT), node)
                self._resubscribe(wire)
                self._listen(wire)
            except WireLost as lost:
                _log.debug("wake hub: %s", lost)
            except Exception:  # noqa: BLE001 - the hub must outlive everything
                _log.exception("wake hub: unexpected error")
            with self._lock:
                if self._wire is not None:
                    self._wire.close()
                self._wire = self._lost = None
                self._cut_off = True
                self._confirmed.notify_all()
                if self._reader is not None:  # or it might go on waiting for a number closed
                    self._reader.signal()
                ears = self._board.disconnected()
                ended = self._closing or not self._board.channels
                if ended:
                    self._thread = None
            tell(ears, None)
            if ended:
                return
            time.sleep(self._pause)
            self._pause = min(self._pause * 2, RECONNECT_LONGEST)

    def _goes_on(self) -> bool:
        """Whether the thread is still wanted; if not, who comes next starts another."""
        with self._lock:
            if not self._closing:
                return True
            self._thread = None
            return False

    def _resubscribe(self, wire: Wire) -> None:
        with self._lock:
            self._wire = wire
            self._refused = self._cut_off = False
            for channel in self._board.channels.values():
                channel.asked = True
            if self._board.channels:
                wire.send(pack("SUBSCRIBE", *self._board.channels))

    def _listen(self, wire: Wire) -> None:
        asked, silent_since = False, time.monotonic()
        while not self._closing:
            with self._lock:
                relieved = self._reader is None or self._has_ears
                if not relieved:
                    self._relieved.wait(TRIM_EVERY)
            if relieved:
                readable((wire,), TRIM_EVERY)
            with self._lock:
                if self._lost is not None:
                    raise self._lost
                heard = self._take_in(wire)
                untold, self._untold = self._untold, []
                heard_at = self._heard_at
            for ears, content in untold:
                tell(ears, content)
            if heard_at > silent_since:
                asked, silent_since = False, heard_at
            if heard:
                continue
            # Those that wait need no connections, and there may be many.
            self._driver.trim()
            if time.monotonic() - silent_since < (TIMEOUT if asked else PING_EVERY):
                continue
            if asked:
                raise WireLost("no answer to PING", sent=True)
            asked, silent_since = self._tidy(), time.monotonic()
            if not asked:
                return

    def _tidy(self) -> bool:
        """Give up idle channels and ask whether the server is there; False when nobody waits."""
        with self._lock:
            idle = self._board.idle(time.monotonic() - LINGER)
            if not self._board.channels:
                return False
            if idle:
                self._send("UNSUBSCRIBE", *idle)
            self._send("PING")
            return True

    def _take_in(self, wire: Wire) -> bool:
        """Hear what has arrived, if anything has; the ears are told by the hub's thread."""
        messages = wire.arrived()
        if messages:
            self._heard_at = time.monotonic()
        for message in messages:
            ears, content = self._hear(message)
            if ears:
                self._untold.append((ears, content))
        return bool(messages)

    def _hear(self, message: Reply) -> tuple[list[tuple[str, Ear]], bytes | None]:
        if isinstance(message, ErrorReply):
            if not self._refused:
                _log.warning(
                    "the server refuses the wake channel (%s): one waiter of each name looks "
                    "every %s s; allow the channel to the ACL user",
                    message.text,
                    POLL,
                    extra={"event": "fencekit.wake.refused", "fencekit": {}},
                )
            self._refused = True
            self._confirmed.notify_all()
        elif isinstance(message, list):  # no +PONG, where the server let us subscribe to nothing
            kind, name = message[0], message[1].decode()
            if kind == b"message":
                return self._board.message(name), message[2]
            if kind == b"subscribe":
                # Not before: some proxies accept connections and close them at SUBSCRIBE.
                self._pause = RECONNECT_FIRST
                self._confirmed.notify_all()
                return self._board.confirm(name), None
        return [], None
