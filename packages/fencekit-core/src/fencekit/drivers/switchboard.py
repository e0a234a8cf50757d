"""Who of the local waiters is woken: bookkeeping for the wake hubs of both colours.

Of the waiters of one channel in one process only the first is woken by a message, and only the
first heeds the alarm (the holder's expiry) or looks now and then where messages cannot arrive: a
release or an expiry starts one try, not a herd. A wake that its receiver could not use goes on to
the next.

Besides waiters a channel may have *ears*: functions that are told every message with its content.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias, TypeVar

__all__ = ["BaseWaiter", "Channel", "Ear", "Switchboard", "tell"]

_log = logging.getLogger("fencekit.wake")

# Told a channel and what was published there; None when messages may have been missed.
Ear: TypeAlias = Callable[[str, "bytes | None"], object]


class BaseWaiter:
    """One flow that listens on one channel.

    Attributes:
        channel: its name.
        pending: a wake has come that was not used yet.
        used: the last wait ended with a wake, and nothing was waited for since.
    """

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.pending = False
        self.used = False

    def signal(self) -> None:
        """Have the waiter look at its state again."""
        raise NotImplementedError


W = TypeVar("W", bound=BaseWaiter)


class Channel(Generic[W]):
    """The local waiters of one channel, in order of arrival.

    Attributes:
        waiters: an ordered set.
        ears: who is told of messages; the value says whether the ear still wants them. One that
            does not keeps the channel no longer than an idle one is kept.
        alarm_at: monotonic second at which the first should look by itself, or None.
        asked: the present connection, or the next, asks for the subscription.
        confirmed: the server has confirmed the subscription on the present connection.
        missed: somebody relies on it who has not been listening all the while: a connection was
            lost, or was not there when they joined. All look when it is confirmed.
        idle_since: monotonic second since which nobody has been waiting, or None.
    """

    def __init__(self) -> None:
        self.waiters: OrderedDict[W, None] = OrderedDict()
        self.ears: dict[Ear, bool] = {}
        self.alarm_at: float | None = None
        self.asked = False
        self.confirmed = False
        self.missed = False
        self.idle_since: float | None = None

    @property
    def first(self) -> W | None:
        """The waiter whose turn is next."""
        return next(iter(self.waiters), None)

    @property
    def used(self) -> bool:
        """Whether anybody wants to hear of it."""
        return bool(self.waiters) or any(self.ears.values())


class Switchboard(Generic[W]):
    """All channels of one hub. Not locked: the hub does that."""

    def __init__(self) -> None:
        self.channels: dict[str, Channel[W]] = {}

    def join(self, waiter: W) -> Channel[W]:
        """Add a waiter at the end of its channel."""
        channel = self._channel(waiter.channel)
        channel.waiters[waiter] = None
        return channel

    def subscribe(self, name: str, ear: Ear) -> Channel[W]:
        """Have an ear told of the messages of a channel."""
        channel = self._channel(name)
        channel.ears[ear] = True
        return channel

    def unsubscribe(self, name: str, ear: Ear, now: float) -> None:
        """Keep a channel for an ear no longer; it is told until the channel is given up."""
        channel = self.channels.get(name)
        if channel is not None and ear in channel.ears:
            channel.ears[ear] = False
            if not channel.used:
                channel.idle_since = now

    def _channel(self, name: str) -> Channel[W]:
        channel = self.channels.get(name)
        if channel is None:
            channel = self.channels[name] = Channel()
        channel.idle_since = None
        return channel

    def leave(self, waiter: W, alarm_at: float | None, now: float, *, failed: bool) -> None:
        """Remove a waiter, and hand on what it was woken for or charged with."""
        channel = self.channels[waiter.channel]
        if waiter not in channel.waiters:
            return
        was_first = channel.first is waiter
        del channel.waiters[waiter]
        heir = channel.first
        if heir is None:
            channel.idle_since = None if channel.used else now
            channel.alarm_at = None
            return
        if waiter.pending or (failed and waiter.used) or (was_first and alarm_at is None):
            heir.pending = True
            heir.signal()
        elif was_first:
            channel.alarm_at = alarm_at
            heir.signal()

    def message(self, name: str) -> list[tuple[str, Ear]]:
        """A message has arrived on a channel; returns the ears to tell of it."""
        channel = self.channels.get(name)
        if channel is None:
            return []
        if (first := channel.first) is not None:
            first.pending = True
            first.signal()
        return [(name, ear) for ear in channel.ears]

    def confirm(self, name: str) -> list[tuple[str, Ear]]:
        """The server has confirmed a subscription; returns the ears that may have missed some.

        Waiters that may have missed some look for themselves: not before, because what they then
        asked could have been answered ahead of the subscription.
        """
        channel = self.channels.get(name)
        if channel is None:
            return []
        channel.confirmed = True
        if not channel.missed:
            return []
        channel.missed = False
        self._have_all_look(channel)
        return [(name, ear) for ear in channel.ears]

    def disconnected(self) -> list[tuple[str, Ear]]:
        """The connection was lost, or could not be made; returns all ears.

        Every waiter that relied on it looks for itself. Where none was made again and again, the
        first of a channel looks now and then, and the others sleep.
        """
        for channel in self.channels.values():
            if channel.confirmed:
                self._have_all_look(channel)
            channel.confirmed = channel.asked = False
            channel.missed = True
        return [(name, ear) for name, channel in self.channels.items() for ear in channel.ears]

    @staticmethod
    def _have_all_look(channel: Channel[W]) -> None:
        """Have every waiter of a channel look for itself: wakes may have been missed."""
        for waiter in channel.waiters:
            waiter.pending = True
            waiter.signal()

    def begin_wait(self, waiter: W, alarm_at: float) -> None:
        """A waiter goes to sleep, knowing when the holder's lease is over."""
        waiter.used = False
        channel = self.channels[waiter.channel]
        if channel.first is waiter:
            channel.alarm_at = alarm_at

    def take_wake(self, waiter: W) -> bool:
        """Use up a wake, if there is one."""
        if not waiter.pending:
            return False
        waiter.pending = False
        waiter.used = True
        return True

    def look_at(self, waiter: W, deadline: float, poll_at: float) -> float:
        """The monotonic second at which a sleeping waiter should look by itself.

        Args:
            waiter: who sleeps.
            deadline: when its time is over.
            poll_at: when the first should look, as long as messages cannot arrive.
        """
        channel = self.channels[waiter.channel]
        if channel.first is not waiter:
            return deadline
        if channel.alarm_at is not None:
            deadline = min(deadline, channel.alarm_at)
        return deadline if channel.confirmed else min(deadline, poll_at)

    def idle(self, before: float) -> list[str]:
        """Forget the channels on which nobody has waited since ``before``, and name them."""
        names = [
            name
            for name, channel in self.channels.items()
            if channel.idle_since is not None and channel.idle_since <= before
        ]
        for name in names:
            del self.channels[name]
        return names


def tell(ears: Iterable[tuple[str, Ear]], message: bytes | None) -> None:
    """Tell ears of a message; the hub outlives their errors."""
    for name, ear in ears:
        try:
            ear(name, message)
        except Exception:  # noqa: BLE001 - one listener's trouble is not the hub's
            _log.exception("a listener on %r raised", name)
