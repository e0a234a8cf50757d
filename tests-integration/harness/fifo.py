"""Drive the FIFO queue's scripts by hand, whole or with one rule taken out.

Waiters are named by labels, processes too; a process that does not listen has no subscriber, so its
messages are counted by nobody. Replies come back as text.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from fencekit.fifo import protocol
from fencekit.fifo.protocol import Holder, Terms, Ticket
from fencekit.keys import names, process_channel
from fencekit.protocol.lock import Claimant
from harness.claims import without

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencekit.protocol.operation import Operation
    from fencekit.protocol.script import Script

_Test = TypeVar("_Test", bound="Callable[..., None]")

__all__ = ["LEASE", "OFFER", "RETENTION", "Queue", "falls_without", "make_terms", "make_ticket"]

LEASE, OFFER, RETENTION, ALIVE = 60_000, 5_000, 600_000, 15_000


def make_terms(name: str = "invoices", *, alive: int = ALIVE, offer: int = OFFER) -> Terms:
    """Return the terms of a lock as the library would make them."""
    return protocol.terms(
        names("fencekit", name),
        lease_ms=LEASE,
        offer_ms=offer,
        alive_ms=alive,
        beat_ms=offer // 2,
        retention_ms=RETENTION,
        solo=True,
    )


def make_ticket(label: str = "a", process: str = "p", terms: Terms | None = None) -> Ticket:
    """Return a waiter that a person can tell apart."""
    terms = terms or make_terms()
    attempt = hashlib.md5(label.encode(), usedforsecurity=False).hexdigest()
    claimant = Claimant(terms.names, label, attempt, terms.lease_ms, terms.retention_ms)
    return Ticket(terms, claimant, process_channel("fencekit", process))


class Queue:
    """One lock's queue, and processes that listen.

    Attributes:
        client: A sync client that returns bytes.
        terms: Of all waiters.
    """

    def __init__(
        self,
        client: Any,
        name: str = "invoices",
        *,
        terms: Terms | None = None,
        changed: dict[str, Script] | None = None,
    ) -> None:
        """Act on this name, with some of the scripts changed."""
        self.client = client
        self.terms = terms or make_terms(name)
        self._changed = changed or {}
        self._ears: dict[str, Any] = {}

    def without(self, script: str, rule: str, instead: str = "") -> Queue:
        """Return a fresh queue of another name whose script lacks a rule."""
        whole: Script = getattr(protocol, script.removeprefix("fifo_").upper())
        broken = {**self._changed, script: without(whole, rule, instead)}
        self.close()
        self.client.flushall()
        return Queue(self.client, changed=broken)

    def ticket(self, label: str, process: str = "p") -> Ticket:
        """Return a waiter of this queue."""
        return make_ticket(label, process, self.terms)

    def listen(self, *processes: str) -> None:
        """Have processes listen to their channels."""
        for process in processes:
            ear = self.client.pubsub(ignore_subscribe_messages=True)
            ear.subscribe(process_channel("fencekit", process))
            while ear.get_message(timeout=0.2) is not None:
                pass
            self._ears[process] = ear

    def deafen(self, process: str) -> None:
        """Have a process listen no more."""
        self._ears.pop(process).close()

    def messages(self, process: str) -> list[str]:
        """What a process was told since the last call."""
        heard = []
        while (message := self._ears[process].get_message(timeout=0.05)) is not None:
            heard.append(message["data"].decode())
        return heard

    def close(self) -> None:
        """End all listening."""
        for process in list(self._ears):
            self.deafen(process)

    def look(self, label: str, process: str = "p") -> list[Any]:
        """Try once, without a place."""
        return self.run(protocol.look_operation(self.ticket(label, process)))

    def acquire(self, label: str, process: str = "p", *, queues: bool = True) -> list[Any]:
        """Try, and take a place."""
        return self.run(protocol.acquire_operation(self.ticket(label, process), queues=queues))

    def renew(self, label: str, token: int, process: str = "p") -> list[Any]:
        """Take up an offer, or renew."""
        return self.run(protocol.renew_operation(self.ticket(label, process), token))

    def release(
        self, label: str, token: int, process: str = "p", *, bury: bool = False
    ) -> list[Any]:
        """Give back."""
        ticket = self.ticket(label, process)
        return self.run(protocol.release_operation(ticket, token, bury=bury))

    def withdraw(self, label: str, process: str = "p", *, bury: bool = False) -> list[Any]:
        """Abandon."""
        return self.run(protocol.withdraw_operation(self.ticket(label, process), bury=bury))

    def beat(self, process: str = "p", oldest: str | None = None) -> list[Any]:
        """Send a process's beat."""
        claimant = None if oldest is None else self.ticket(oldest).claimant
        channel = process_channel("fencekit", process)
        return self.run(protocol.beat_operation(self.terms, channel, claimant))

    def run(self, operation: Operation[Any]) -> list[Any]:
        """Run an operation's script, changed or not."""
        script = self._changed.get(operation.script.name, operation.script)
        reply = self.client.eval(
            script.source, len(operation.keys), *operation.keys, *operation.args
        )
        return [one.decode() if isinstance(one, bytes) else one for one in reply]

    @property
    def holder(self) -> str:
        """Whose label the lock has; empty when it is free."""
        value = self.client.get(self.terms.names.lock) or b""
        return Holder.read(0, value, b"0").owner_id

    @property
    def token(self) -> int:
        """The token in the lock; 0 when it is free."""
        value = self.client.get(self.terms.names.lock) or b""
        return Holder.read(0, value, b"0").token

    @property
    def left_ms(self) -> int:
        """Milliseconds left of the lock."""
        return int(self.client.pttl(self.terms.names.lock))

    @property
    def queued(self) -> list[str]:
        """The labels in the queue, in order."""
        entries = self.client.xrange(self.terms.names.queue)
        return [fields[b"w"].decode().partition(":")[0] for _, fields in entries]

    def kill(self, process: str) -> None:
        """Let a process's window be over since a second, as if it had not beaten for long."""
        seconds, _ = self.client.time()
        channel = process_channel("fencekit", process)
        self.client.zadd(self.terms.names.members, {channel: (seconds - 1) * 1000})

    def lapse(self) -> None:
        """Let the lease or offer be over."""
        self.client.delete(self.terms.names.lock)


def falls_without(script: str, rule: str, instead: str = "") -> Callable[[_Test], _Test]:
    """Run a test twice: it passes as it stands, and fails when the script lacks that rule."""

    def decorate(test: _Test) -> _Test:
        @functools.wraps(test)
        def both(queue: Queue, **params: Any) -> None:
            test(queue, **params)
            broken = queue.without(script, rule, instead)
            try:
                with pytest.raises(AssertionError):
                    test(broken, **params)
            finally:
                broken.close()

        return cast("_Test", both)

    return decorate
