"""Who of the local waiters is woken: bookkeeping for the wake hubs of both colours.

Of the waiters of one channel in one process only the first is woken by a message, and only the
first heeds the alarm (the holder's expiry): a release or an expiry starts one try, not a herd. A
wake that its receiver could not use goes on to the next.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["BaseWaiter", "Channel", "Switchboard"]


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
        alarm_at: monotonic second at which the first should look by itself, or None.
        confirmed: the server has confirmed the subscription on the present connection.
        idle_since: monotonic second since which nobody has been waiting, or None.
    """

    def __init__(self) -> None:
        self.waiters: OrderedDict[W, None] = OrderedDict()
        self.alarm_at: float | None = None
        self.confirmed = False
        self.idle_since: float | None = None

    @property
    def first(self) -> W | None:
        """The waiter whose turn is next."""
        return next(iter(self.waiters), None)


class Switchboard(Generic[W]):
    """All channels of one hub. Not locked: the hub does that."""

    def __init__(self) -> None:
        self.channels: dict[str, Channel[W]] = {}

    def join(self, waiter: W) -> Channel[W]:
        """Add a waiter at the end of its channel."""
        channel = self.channels.get(waiter.channel)
        if channel is None:
            channel = self.channels[waiter.channel] = Channel()
        channel.waiters[waiter] = None
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
            channel.idle_since = now
            channel.alarm_at = None
            return
        if waiter.pending or (failed and waiter.used) or (was_first and alarm_at is None):
            heir.pending = True
            heir.signal()
        elif was_first:
            channel.alarm_at = alarm_at
            heir.signal()

    def message(self, name: str) -> None:
        """A wake has arrived on a channel."""
        channel = self.channels.get(name)
        if channel is not None and (first := channel.first) is not None:
            first.pending = True
            first.signal()

    def wake_all(self) -> None:
        """Have every waiter look for itself: wakes may have been missed."""
        for channel in self.channels.values():
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

    def look_at(self, waiter: W, deadline: float) -> float:
        """The monotonic second at which a sleeping waiter should look by itself."""
        channel = self.channels[waiter.channel]
        if channel.first is waiter and channel.alarm_at is not None:
            return min(deadline, channel.alarm_at)
        return deadline

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
