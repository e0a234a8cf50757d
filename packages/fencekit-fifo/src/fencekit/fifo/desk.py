"""Who waits in this process: places, messages for them, and the beat of each name.

One desk for each hub and prefix, so for each process, or event loop, that shares a client. It
reads no socket: the hub tells it of messages, the keeper sends its beats, flows tell it of replies.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from fencekit.drivers.keeper import Kept
from fencekit.drivers.switchboard import Ear
from fencekit.drivers.wake import POLL
from fencekit.errors import FenceKitError
from fencekit.fifo import protocol
from fencekit.fifo.offers import Offer, ServerClock, TakeUp
from fencekit.fifo.protocol import RECHECK, Holder, Terms, Ticket
from fencekit.fifo.rhythm import Beat, Errand
from fencekit.keys import Names, names, process_channel
from fencekit.protocol.lock import Claimant
from fencekit.protocol.operation import Answer, Operation, Reply
from fencekit.protocol.renewal import margin

__all__ = ["Box", "Desk", "Hub", "Keeper", "Post", "Room"]

Post: TypeAlias = Callable[[Operation[Any], Callable[[Answer], None]], None]

# How much later than the holder's expiry the lock is looked at, seconds: the key must be gone.
_SLACK = 0.002
# Two replies about one expiry say the same within this, seconds.
_SPREAD = 0.01
# What is not known of a stranger's lock, milliseconds: a month, as locks have by default.
_RETENTION_MS = 30 * 24 * 3600 * 1000


class Hub(Protocol):
    """What is needed of the hub of either colour."""

    def subscribe(self, channel: str, ear: Ear, until: float) -> Any:
        """Have an ear told of messages; returns when they can arrive, or at a time."""

    def unsubscribe(self, channel: str, ear: Ear) -> None:
        """Keep the channel no longer."""

    def hears(self, channel: str) -> bool:
        """Whether messages arrive."""
        raise NotImplementedError


class Keeper(Protocol):
    """What is needed of the keeper of either colour."""

    def care(self, kept: Kept) -> None:
        """Take into care what schedules itself."""


class Box:
    """The mailbox of one waiter; the colours add how it is opened and waited for."""

    def __init__(self, desk: Desk, ticket: Ticket) -> None:
        self.desk = desk
        self.ticket = ticket
        self.until = math.inf
        self.mail: list[Offer | str] = []
        self.offered = 0

    @property
    def attempt(self) -> str:
        """Which attempt waits here."""
        return self.ticket.claimant.attempt

    @property
    def ready(self) -> bool:
        """Whether messages arrive in this process already."""
        return self.desk.ready

    def put(self, mail: Offer | str) -> None:
        """Put a message in, and wake the waiter."""
        self.mail.append(mail)
        self.signal()

    def signal(self) -> None:
        """Have the waiter look at its mail."""
        raise NotImplementedError

    def queued(self, answer: Answer, holder: Holder, *, revived: bool) -> None:
        """It has a place."""
        self.desk.queued(self, answer, holder, revived=revived)

    def heard(self, answer: Answer, holder: Holder) -> None:
        """A reply said who holds the lock."""
        self.desk.heard(self.ticket.terms, answer, holder)

    def entered(self) -> None:
        """It holds the lock."""
        self.desk.entered(self.attempt)

    def close(self) -> None:
        """It waits no more."""
        self.desk.unregister(self)


class Room:
    """The local waiters of one lock.

    Attributes:
        terms: of the lock object they came by.
        boxes: all of them, by attempt.
        line: those known to have a place, in order of arrival.
        clock: the server's, where this lock lives.
        opened: one of them has subscribed the channels, and not only begun to.
        beat: the next beat.
    """

    def __init__(self, desk: Desk, terms: Terms) -> None:
        self.desk = desk
        self.terms = terms
        self.boxes: dict[str, Box] = {}
        self.line: dict[str, Box] = {}
        self.clock = ServerClock()
        self.opened = False
        self._asked: Box | None = None
        self.beat = Beat(self, desk.clock() + terms.beat_ms / 1000)
        desk.keeper.care(self.beat)

    def beat_operation(self) -> Operation[Reply]:
        """The beat as it is now."""
        with self.desk.lock:
            self._asked = next(iter(self.line.values()), None)
            oldest = None if self._asked is None else self._asked.ticket.claimant
            return protocol.beat_operation(self.terms, self.desk.channel, oldest)

    def beaten(self, answer: Answer) -> float:
        """Take in the reply to a beat; returns the seconds until the next."""
        holder = Holder.read(*answer.reply[1:5])
        asked, self._asked = self._asked, None
        if answer.reply[0] == protocol.REVIVED or (
            answer.reply[0] == protocol.MISSING and asked is not None and self._waits(asked)
        ):
            self.recheck()
        self.desk.heard(self.terms, answer, holder)
        if holder.owner_id:
            # Just after the holder's lease, if nobody renews it.
            return min(self.pause, holder.ttl_ms / 1000 + _SLACK)
        return self.pause

    def _waits(self, box: Box) -> bool:
        """Whether a waiter has had no offer since it was asked about: one that has may be gone."""
        return box.attempt in self.line and not box.offered

    @property
    def pause(self) -> float:
        """Seconds from one beat to the next; while no messages arrive, it is all there is."""
        beat = self.terms.beat_ms / 1000
        return beat if self.desk.ready else min(beat, POLL)

    def recheck(self) -> None:
        """Places may be gone: each waiter asks again, in order of arrival."""
        line, self.line = self.line, {}
        for box in line.values():
            box.put(RECHECK)

    def hurry(self) -> None:
        """Beat now: the lock may be free."""
        if not self.beat.hurry():
            self._beat_at(self.desk.clock())

    def watch(self) -> None:
        """Beat oftener while no messages arrive, which shows only after the room was opened."""
        at = self.desk.clock() + self.pause
        if self.beat.rhythm.at > at:
            self._beat_at(at)

    def expect(self, answer: Answer, holder: Holder) -> None:
        """Beat when the lease of a stranger is over, if the next beat would come later.

        Strangers may have shorter leases than the pause between our beats. While a beat is under
        way its own answer says when to look.
        """
        at = answer.sent_at + holder.ttl_ms / 1000 + _SLACK
        rhythm = self.beat.rhythm
        if at < rhythm.at - _SPREAD and rhythm.flying_until < self.desk.clock():
            self._beat_at(at)

    def _beat_at(self, at: float) -> None:
        self.beat.dropped = True
        self.beat = Beat(self, at)
        self.desk.keeper.care(self.beat)


class Desk:
    """All rooms of a process, and its wake channel.

    Safe from any thread; what it calls (mailboxes, hub, keeper) never calls back into it while it
    holds a lock of its own.
    """

    def __init__(
        self,
        prefix: str,
        hub: Hub,
        keeper: Keeper,
        clock: Callable[[], float],
        post: Post | None,
    ) -> None:
        """Open a desk.

        Args:
            prefix: of the keys.
            hub: tells of messages.
            keeper: sends beats.
            clock: monotonic seconds, the same that the driver uses.
            post: sends without waiting, before whoever is woken next runs, and tells an answer;
                None where there is no such way, and waiters confirm their take-up themselves.
        """
        self.channel = process_channel(prefix, os.urandom(8).hex())
        self.hub = hub
        self.keeper = keeper
        self.clock = clock
        self.lock = threading.RLock()
        self._prefix = prefix
        self._post = post
        self._rooms: dict[Terms, Room] = {}
        self._boxes: dict[str, Box] = {}
        self._holders: set[str] = set()

    @property
    def ready(self) -> bool:
        """Whether messages arrive."""
        return self.hub.hears(self.channel)

    def register(self, box: Box) -> bool:
        """A waiter is about to take a place; returns whether its channels need subscribing."""
        terms = box.ticket.terms
        with self.lock:
            room = self._rooms.get(terms)
            if room is None:
                room = self._rooms[terms] = Room(self, terms)
            room.boxes[box.attempt] = self._boxes[box.attempt] = box
            # Whoever has begun to subscribe may be cancelled in the middle of it.
            return not (room.opened and self.ready)

    def opened(self, box: Box) -> None:
        """A waiter has subscribed the channels for all of its room."""
        with self.lock:
            room = self._rooms.get(box.ticket.terms)
            if room is not None:
                room.opened = True

    def unregister(self, box: Box) -> None:
        """A waiter waits no more; the last one takes the subscriptions along."""
        terms = box.ticket.terms
        with self.lock:
            if self._boxes.pop(box.attempt, None) is None:
                return
            room = self._rooms[terms]
            del room.boxes[box.attempt]
            room.line.pop(box.attempt, None)
            if room.boxes:
                return
            del self._rooms[terms]
            room.beat.dropped = True
            if not any(other.names.wake == terms.names.wake for other in self._rooms):
                self.hub.unsubscribe(terms.names.wake, self.woken)
            if not self._rooms:
                self.hub.unsubscribe(self.channel, self.pushed)

    def queued(self, box: Box, answer: Answer, holder: Holder, *, revived: bool) -> None:
        """A waiter has a place."""
        with self.lock:
            room = self._rooms.get(box.ticket.terms)
            if room is None:
                return
            if revived:
                room.recheck()
            room.line[box.attempt] = box
            box.offered = 0
            if not self.ready:
                room.watch()
            self.heard(box.ticket.terms, answer, holder)

    def entered(self, attempt: str) -> None:
        """A waiter holds its lock."""
        with self.lock:
            self._holders.add(attempt)

    def left(self, attempt: str) -> None:
        """A holder holds its lock no more."""
        with self.lock:
            self._holders.discard(attempt)

    def heard(self, terms: Terms, answer: Answer, holder: Holder) -> None:
        """A reply said who holds a lock; it may be one who waits here."""
        with self.lock:
            room = self._rooms.get(terms)
            if room is not None:
                room.clock.note(answer.sent_at, holder.now_us)
            box = self._boxes.get(holder.attempt)
            if box is not None:
                deadline = answer.sent_at + holder.ttl_ms / 1000
                offer = Offer.make(holder.token, deadline, terms.offer, taken=holder.own)
                self._deliver(box, offer, self.clock())
            elif not holder.own:
                if room is not None and holder.owner_id and holder.attempt not in self._holders:
                    room.expect(answer, holder)
            elif holder.attempt not in self._holders:
                self._turn_away(terms.names, holder.owner_id, holder.attempt, terms.offer_ms)

    def pushed(self, channel: str, message: bytes | None) -> None:
        """A message has arrived for this process, or some may have been missed."""
        del channel
        with self.lock:
            if message is None:
                for room in list(self._rooms.values()):
                    room.hurry()
                return
            owner, attempt, token, granted_us, offer_ms, name = message.decode().split(" ", 5)
            if attempt in self._holders:
                return
            box = self._boxes.get(attempt)
            if box is None:
                self._turn_away(names(self._prefix, name), owner, attempt, int(offer_ms))
                return
            now, offer = self.clock(), int(offer_ms) / 1000
            granted = self._rooms[box.ticket.terms].clock.earliest(int(granted_us), now)
            self._deliver(box, Offer.make(int(token), granted + offer, offer), now)

    def woken(self, channel: str, message: bytes | None) -> None:
        """A plain lock of that name was released: our queue may be next."""
        if message is None:
            return  # the process's own channel is told as well
        with self.lock:
            for terms, room in list(self._rooms.items()):
                if terms.names.wake == channel:
                    room.hurry()

    def _deliver(self, box: Box, offer: Offer, now: float) -> None:
        if offer.token == box.offered:
            return
        box.offered = offer.token
        # Somebody with a shorter lease may have granted it: entered on later than this, it would
        # count as lost before it can be renewed.
        lease = box.ticket.terms.lease_ms / 1000
        offer.fresh_until = min(offer.fresh_until, offer.deadline - 2 * margin(lease))
        if self._post is not None and not offer.taken and now < offer.fresh_until:
            # Sent before the waiter runs: work that blocks right after has the whole lease.
            offer.take_up = TakeUp(lease)
            operation = protocol.renew_operation(box.ticket, offer.token)
            self._post(operation, offer.take_up.answered)
        box.put(offer)

    def _turn_away(self, keys: Names, owner: str, attempt: str, offer_ms: int) -> None:
        """Give back what was granted to nobody we know, so that the next need not wait for it."""
        terms = next(
            (terms for terms in self._rooms if terms.names == keys),
            Terms(keys, offer_ms, offer_ms, offer_ms, offer_ms, _RETENTION_MS, solo=False),
        )
        claimant = Claimant(keys, owner, attempt, terms.lease_ms, terms.retention_ms)
        stranger = Ticket(terms, claimant, self.channel)

        def settled(operation: Operation[Any], outcome: Answer | FenceKitError | None) -> None:
            del operation
            if isinstance(outcome, Answer):
                self.heard(terms, outcome, Holder.read(*outcome.reply[1:5]))

        operation = protocol.withdraw_operation(stranger, bury=False)
        self.keeper.care(Errand(keys.name, operation, settled, self.clock()))
