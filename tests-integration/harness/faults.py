"""Describe what goes wrong between a client and a server; a `Proxy` then makes it so.

    proxy.add(DropReply(named("EVALSHA")))              # done, but the client never hears of it
    proxy.add(Delay(0.3, named("EVALSHA")))             # replies late by 0.3 s
    proxy.add(DropCommand(containing("job:lock")))      # never done, and the client cannot know
    late = proxy.add(HoldBack(named("EVALSHA")))        # a packet that the network kept back
    late.deliver()
    proxy.add(Duplicate(named("EVALSHA"), nth=None))    # each one twice
    proxy.add(Cut(named("EVALSHA"), refuse_for=0.5))    # everybody's connection, or proxy.cut(0.5)

A fault strikes at the nth command that matches, counted from when it was added; with `nth=None` at
every one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.wire import Wire

__all__ = [
    "Command",
    "Cut",
    "Delay",
    "DropCommand",
    "DropReply",
    "Duplicate",
    "Fault",
    "HoldBack",
    "Match",
    "Route",
    "anything",
    "containing",
    "named",
]


@dataclass(frozen=True)
class Command:
    """A command as a client sent it.

    Attributes:
        args: Its words, the name included.
        raw: Its bytes on the wire.
        connection: The number of the proxy's connection it came by.
        at: When it came, on the monotonic clock.
    """

    args: tuple[bytes, ...]
    raw: bytes
    connection: int
    at: float

    @property
    def name(self) -> str:
        """The command's name in upper case."""
        return self.args[0].decode(errors="replace").upper() if self.args else ""


Match = Callable[[Command], bool]


def anything(_command: Command) -> bool:
    """Match every command."""
    return True


def named(*names: str) -> Match:
    """Match the commands of these names, such as EVALSHA."""
    wanted = {name.upper() for name in names}
    return lambda command: command.name in wanted


def containing(*texts: str | bytes) -> Match:
    """Match the commands in which one of these texts (a key, a script's sha) is part of a word."""
    wanted = [text.encode() if isinstance(text, str) else text for text in texts]
    return lambda command: any(text in word for text in wanted for word in command.args)


@dataclass
class Route:
    """What is to become of one command; each fault that strikes changes it.

    Attributes:
        command: The command.
        prelude: What the connection said to log in: HELLO, AUTH, SELECT.
        server: The server's address.
        delay: Seconds by which its reply comes late.
        copies: How often the server gets it.
        answer: Which copy's reply the client gets.
        lose_reply: Whether the connection is closed in place of the reply.
        forward: Whether the server gets it.
        then: What happens to the client's connection if the server does not get it.
        cut: Seconds for which all connections are closed and refused, or None for no cut.
    """

    command: Command
    prelude: tuple[bytes, ...]
    server: tuple[str, int]
    delay: float = 0.0
    copies: int = 1
    answer: int = 1
    lose_reply: bool = False
    forward: bool = True
    then: str = "close"
    cut: float | None = None
    replies: int = field(default=0, init=False)


class Fault(Protocol):
    """Something that changes the route of commands."""

    def plan(self, route: Route) -> None:
        """Change the route if the fault strikes at its command."""


class Trigger:
    """Tell at which commands a fault strikes, and when it has.

    Attributes:
        seen: How many commands matched.
        fired: How often the fault struck.
    """

    def __init__(self, match: Match = anything, *, nth: int | None = 1) -> None:
        """Strike at the nth match, or at every one."""
        self._match = match
        self._nth = nth
        self._struck = threading.Condition()
        self.seen = 0
        self.fired = 0

    def strikes(self, route: Route) -> bool:
        """Count the command and tell whether the fault strikes at it."""
        if not self._match(route.command):
            return False
        with self._struck:
            self.seen += 1
            if self._nth not in {None, self.seen}:
                return False
            self.fired += 1
            self._struck.notify_all()
            return True

    def wait(self, timeout: float = 5.0, *, times: int = 1) -> None:
        """Return once the fault has struck so often.

        Raises:
            TimeoutError: It has not within `timeout` seconds.
        """
        with self._struck:
            if not self._struck.wait_for(lambda: self.fired >= times, timeout):
                raise TimeoutError(f"the fault struck {self.fired} times, not {times}")


class DropReply(Trigger):
    """Let the server do it, swallow the reply and close the connection."""

    def plan(self, route: Route) -> None:
        """Lose the reply."""
        if self.strikes(route):
            route.lose_reply = True


class DropCommand(Trigger):
    """Close the connection before the server sees the command."""

    def plan(self, route: Route) -> None:
        """Do not forward."""
        if self.strikes(route):
            route.forward = False


class Delay(Trigger):
    """Hand replies over late, in their order; the server does its work in time."""

    def __init__(self, seconds: float, match: Match = anything, *, nth: int | None = None) -> None:
        """Delay by so many seconds: every match, if `nth` is omitted."""
        super().__init__(match, nth=nth)
        self.seconds = seconds

    def plan(self, route: Route) -> None:
        """Delay the reply."""
        if self.strikes(route):
            route.delay += self.seconds


class Duplicate(Trigger):
    """Deliver the command twice; the client gets the second reply, as one that re-sent would."""

    def __init__(self, match: Match = anything, *, nth: int | None = None, answer: int = 2) -> None:
        """Duplicate every match, if `nth` is omitted, and hand over the reply `answer`, 1 or 2."""
        super().__init__(match, nth=nth)
        self.answer = answer

    def plan(self, route: Route) -> None:
        """Send two copies."""
        if self.strikes(route):
            route.copies, route.answer = 2, self.answer


class Cut(Trigger):
    """Close every connection when the command comes, before the server sees it."""

    def __init__(
        self, match: Match = anything, *, nth: int | None = 1, refuse_for: float = 0.0
    ) -> None:
        """Refuse new connections for so many seconds afterwards."""
        super().__init__(match, nth=nth)
        self.refuse_for = refuse_for

    def plan(self, route: Route) -> None:
        """Cut."""
        if self.strikes(route):
            route.forward, route.cut = False, self.refuse_for


class HoldBack(Trigger):
    """Keep the command back, to deliver it to the server later, when the client has long gone.

    Attributes:
        held: The routes of the commands kept back and not yet delivered, the oldest first.
    """

    def __init__(
        self, match: Match = anything, *, nth: int | None = 1, then: str = "close"
    ) -> None:
        """Keep the command back.

        Args:
            match: Which commands.
            nth: At which match to strike; None for all.
            then: What the client sees: `close` closes its connection, `silence` never answers on
                it, and with `forward` the command passes as usual and a copy is kept.
        """
        super().__init__(match, nth=nth)
        if then not in {"close", "silence", "forward"}:
            raise ValueError(then)
        self._then = then
        self.held: list[Route] = []

    def plan(self, route: Route) -> None:
        """Keep the command."""
        if self.strikes(route):
            route.forward, route.then = self._then == "forward", self._then
            self.held.append(route)

    def deliver(self, timeout: float = 5.0) -> Any:
        """Send the oldest command kept back, logged in as its client was, and return the reply.

        Error replies are returned as `ReplyError`.

        Raises:
            LookupError: None is left.
            OSError: The server is down or did not answer within `timeout` seconds.
        """
        if not self.held:
            raise LookupError("no command is kept back")
        route = self.held.pop(0)
        with Wire(route.server, timeout=timeout) as wire:
            for raw in route.prelude:
                wire.send(raw)
                wire.receive()
            wire.send(route.command.raw)
            return wire.receive()


def now() -> float:
    """Return the time by which commands are stamped."""
    return time.monotonic()
