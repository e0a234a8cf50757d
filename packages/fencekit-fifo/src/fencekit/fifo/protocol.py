"""The FIFO lock's algorithms: acquire (with queueing), take-up, beat, release, withdraw.

The queue is a stream, and its order is the order in which the server received the waiters. The
lock, fence and gone keys are those of `fencekit.DistributedLock`: locks of one prefix and name
exclude each other and share the fence.

A waiter is granted the lock by an *offer*, a short lease that stands until it is taken up. The
offer is pushed to the waiter's process, or named in the reply to a command of that process. It
leaves the place in the queue as it is; whoever dies with it costs the others one offer. A process
that waits *beats*: that keeps its places alive, advances a free lock, and says who holds it, so
whatever message is lost, the beat repairs it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from fencekit.errors import (
    FenceKitError,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
)
from fencekit.fifo.commands import (
    ACQUIRE,
    BEAT,
    LOOK,
    MISSING,
    RELEASE,
    RENEW,
    REVIVED,
    STATS,
    WITHDRAW,
    Holder,
    Terms,
    Ticket,
    acquire_operation,
    beat_operation,
    look_operation,
    release_operation,
    renew_operation,
    terms,
    turn,
    withdraw_operation,
)
from fencekit.fifo.offers import Offer, TakeUp
from fencekit.protocol.lock import Claimant, Grant, Refusal, Return, Verdict, left_something
from fencekit.protocol.operation import (
    Answer,
    AwaitMail,
    Flow,
    Mailbox,
    Now,
    OpenMail,
    Operation,
    Reply,
    trace,
)
from fencekit.protocol.token import FenceToken

__all__ = [
    "ACQUIRE",
    "BEAT",
    "LOOK",
    "MISSING",
    "RECHECK",
    "RELEASE",
    "RENEW",
    "REVIVED",
    "STATS",
    "WITHDRAW",
    "FifoGrant",
    "Holder",
    "Place",
    "Release",
    "Terms",
    "Ticket",
    "acquire",
    "acquire_operation",
    "beat_operation",
    "look_operation",
    "release",
    "release_operation",
    "renew_operation",
    "terms",
    "turn",
    "withdraw_operation",
]


# What a waiter is told when its place may be gone: ask again, and keep it if it is there.
RECHECK: Final = "recheck"


class FifoGrant(Grant):
    """A lock that was granted in its turn.

    Attributes:
        before: how many were queued before it when it took its place.
        take_up: the take-up under way, where it was entered on a fresh offer.
        queued: it had to wait.
    """

    __slots__ = ("before", "queued", "take_up")

    def __init__(
        self,
        claimant: Claimant,
        token: int,
        deadline: float,
        *,
        resent: bool = False,
        before: int = 0,
        queued: bool = False,
        take_up: TakeUp | None = None,
    ) -> None:
        minted = FenceToken._minted(token, claimant.names.name, "lock")  # noqa: SLF001 - ours
        super().__init__(claimant, minted, deadline, resent=resent)
        self.before = before
        self.queued = queued
        self.take_up = take_up


class Place(Mailbox, Protocol):
    """A waiter's mailbox, and what the flow tells its process.

    Attributes:
        until: monotonic second after which there is nothing to wait for.
    """

    until: float

    @property
    def ready(self) -> bool:
        """Whether offers can arrive, without `open` having to wait."""
        raise NotImplementedError

    def queued(self, answer: Answer, holder: Holder, *, revived: bool) -> None:
        """It has a place; who holds the lock; whether its process counted as dead."""

    def heard(self, answer: Answer, holder: Holder) -> None:
        """A reply said who holds the lock."""

    def entered(self) -> None:
        """It holds the lock: a message that still names it is old."""

    def close(self) -> None:
        """It waits no more."""


def acquire(ticket: Ticket, place: Place, wait: float | None) -> Flow[FifoGrant | Refusal]:
    """Take the lock in turn, waiting up to ``wait`` seconds, or for ever.

    A process that is not subscribed yet first looks whether the lock is free; it must be able to
    hear of its turn before it takes a place, or its turn would be given to the next.

    Raises:
        StoreUnavailable: the server could not be reached; nothing is held, no place is kept.
        StoreRefused: the server answered with an error; nothing is held, no place is kept.
        OutcomeUnknown: no answer, not even to the withdraw: the lock may be held until the lease
            is over.
    """
    asking = _Asking(ticket, place)
    try:
        deadline = None if wait is None else (yield Now()) + wait
        grant: FifoGrant | None = None
        if wait == 0 or not place.ready:
            grant = yield from asking.ask(look_operation(ticket))
        if grant is None and wait == 0:
            # Whoever is queued may be dead: this buries them.
            grant = yield from asking.ask(acquire_operation(ticket, queues=False))
        if grant is None and wait != 0:
            if deadline is not None:
                place.until = deadline
            yield OpenMail(place)
            while grant is None:
                asking.listed = True
                grant = yield from asking.ask(acquire_operation(ticket))
                if grant is None:
                    left = None if deadline is None else max(deadline - (yield Now()), 0.0)
                    mail = yield AwaitMail(place, left)
                    if mail is None:
                        break
                    if isinstance(mail, Offer):
                        grant = yield from asking.take_up(mail)
    except GeneratorExit:
        place.close()
        raise
    except FenceKitError as error:
        yield from asking.failed(error)
        raise
    except BaseException:
        # Cancelled, or interrupted: what was sent may have been carried out.
        yield from asking.give_up()
        raise
    if grant is None:
        yield from asking.give_up()
        return Refusal(asking.holder.ttl_ms, asking.holder.owner_id)
    if asking.listed:
        place.entered()
    place.close()
    return grant


class _Asking:
    """What one acquire knows of itself: what was sent, what was answered.

    Attributes:
        listed: it was known to its process, which may have been sent messages for it.
        queued: it has a place, as far as is known.
        holder: who was last seen to hold the lock.
    """

    def __init__(self, ticket: Ticket, place: Place) -> None:
        self._ticket = ticket
        self._place = place
        self._before = 0
        self._resent = False  # a copy that was never answered may still arrive
        self._flying = False  # a command is under way, and its outcome is not ours yet
        self._refused = False  # at least one answer was no
        self.listed = False
        self.queued = False
        self.holder = Holder("", "", 0, 0, 0)

    def ask(self, operation: Operation[Reply]) -> Flow[FifoGrant | None]:
        """Try once; None when it is not granted."""
        self._flying = True
        answer = yield from trace(operation)
        self._flying = False
        self._resent = self._resent or answer.sends > 1
        reply = answer.reply
        if reply[0] == 1:
            deadline = answer.sent_at + self._ticket.claimant.ttl_ms / 1000
            return self._grant(int(reply[1]), deadline, before=int(reply[2]))
        if reply[0] == 0:
            self._refused = True
            if len(reply) > 1:
                self.holder = Holder.read(*reply[1:5])
                self._take_place(answer, before=int(reply[5]), revived=reply[6] == 1)
            return None
        msg = "the attempt was withdrawn already"  # only if a flow goes on after its withdraw
        raise StoreRefused("GONE", msg)

    def _take_place(self, answer: Answer, *, before: int, revived: bool) -> None:
        if before >= 0:
            self.queued, self._before = True, before
            self._place.queued(answer, self.holder, revived=revived)

    def take_up(self, offer: Offer) -> Flow[FifoGrant | None]:
        """Enter on an offer that is fresh, or ask whether it stands; None when it does not."""
        if offer.taken and (yield Now()) < offer.fresh_until:
            return self._grant(offer.token, offer.deadline)
        take_up = offer.take_up
        if take_up is not None and not take_up.refused:
            if take_up.deadline is not None:
                return self._grant(offer.token, take_up.deadline, take_up=take_up)
            if (yield Now()) < offer.fresh_until:
                return self._grant(offer.token, offer.deadline, take_up=take_up)
        operation = renew_operation(self._ticket, offer.token)
        answer = yield from trace(operation)
        if operation.parse(answer.reply) is None:
            return None
        return self._grant(offer.token, answer.sent_at + self._ticket.claimant.ttl_ms / 1000)

    def give_up(self) -> Flow[bool]:
        """Withdraw what may have been done, if the server can be reached; False when it cannot."""
        place = self._place
        place.close()
        if not (self.queued or self._flying or self._resent):
            return True
        operation = withdraw_operation(self._ticket, bury=self._flying or self._resent)
        try:
            answer = yield from trace(operation)
        except FenceKitError:
            return False
        place.heard(answer, Holder.read(*answer.reply[1:5]))
        return True

    def failed(self, error: FenceKitError) -> Flow[None]:
        """Tidy up after an error, and raise a truer one where there is one.

        Raises:
            StoreUnavailable: the outcome was unknown, and was undone.
            OutcomeUnknown: something may have been done, and could not be undone.
        """
        if not self.queued and not self._resent and not left_something(error):
            self._place.close()
            return
        withdrawn = yield from self.give_up()
        if withdrawn and isinstance(error, OutcomeUnknown):
            msg = f"{error}; the attempt was withdrawn, and nothing is held"
            raise StoreUnavailable(msg) from error
        if not withdrawn and not isinstance(error, OutcomeUnknown):
            msg = f"{error}; but the withdraw was not answered, and the lock may be held"
            raise OutcomeUnknown(msg) from error

    def _grant(
        self, token: int, deadline: float, *, before: int = 0, take_up: TakeUp | None = None
    ) -> FifoGrant:
        return FifoGrant(
            self._ticket.claimant,
            token,
            deadline,
            resent=self._resent,
            before=self._before or before,
            queued=self._refused,
            take_up=take_up,
        )


class Release(Return):
    """One release: what is sent, and what is made of its answer.

    Attributes:
        operation: what is sent.
    """

    __slots__ = ("_hear", "operation")

    def __init__(
        self, ticket: Ticket, grant: FifoGrant, hear: Callable[[Answer, Holder], None]
    ) -> None:
        """Make one.

        Args:
            ticket: the holder's.
            grant: what is given back.
            hear: told who holds the lock now, where anybody is queued.
        """
        super().__init__(grant)
        self.operation = release_operation(ticket, grant.token, bury=grant.resent)
        self._hear = hear

    def hear(self, answer: Answer) -> None:
        """Pass on who is next: it may be a waiter of this process."""
        if len(answer.reply) > 1:  # else nobody is queued
            self._hear(answer, Holder.read(*answer.reply[1:5]))

    def settle(self, answer: Answer) -> Verdict:
        """What became of the grant."""
        return self.verdict(Verdict(answer.reply[0]), answer)


def release(
    ticket: Ticket, grant: FifoGrant, hear: Callable[[Answer, Holder], None]
) -> Flow[Verdict]:
    """Give the lock back and offer it to the next; the verdict is the same however often.

    Raises:
        StoreUnavailable: the server could not be reached; repeat the release.
        StoreRefused: the server answered with an error; repeat the release.
        OutcomeUnknown: no answer; repeat the release to learn the verdict.
    """
    release = Release(ticket, grant, hear)
    try:
        answer = yield from trace(release.operation)
    except GeneratorExit:
        raise
    except FenceKitError as error:
        release.failed(error)
        raise
    except BaseException:
        # Interrupted. The answer may name the next waiter of this process and would be read by
        # nobody: ask again.
        with suppress(FenceKitError):
            release.hear((yield from trace(release.operation)))
        raise
    release.hear(answer)
    return release.settle(answer)
