"""One lock's name under the hand: each command apart, each copy kept to arrive again later.

`lapse` takes the lock away as its expiry does and `lose_record` the record as an eviction does, so
that no test sleeps.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, TypeVar

from fencekit.keys import names
from fencekit.protocol import fence as gate
from fencekit.protocol import lock
from fencekit.protocol.fence import Passed
from fencekit.protocol.lock import Claimant, Grant, LockInfo, Refusal, Verdict
from fencekit.protocol.operation import Answer, Flow, Now, Operation
from fencekit.protocol.token import FenceToken

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Lab"]

T = TypeVar("T")

_MINUTE = 60_000
_numbers = itertools.count(1)


class Lab:
    """A name on a real server.

    Attributes:
        sent: every operation that was performed, oldest first: the copies that may arrive late.
    """

    def __init__(self, client: Any, name: str = "job") -> None:
        """Take a name; nothing is sent."""
        self.client = client
        self.names = names("fencekit", name)
        self.sent: list[Operation[Any]] = []

    def fresh(self) -> Lab:
        """Return a lab with another name on the same server."""
        return type(self)(self.client, f"job-{next(_numbers)}")

    # -- commands -----------------------------------------------------------------------------

    def arrive(self, operation: Operation[Any]) -> Any:
        """Let a copy arrive and return the raw reply."""
        script, keys, args = operation.script, operation.keys, operation.args
        return self.client.eval(script.source, len(keys), *keys, *args)

    def run(self, flow: Flow[T], *, sends: int = 1) -> T:
        """Drive a flow; every command is said to have been sent so often, and arrives once."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Operation):
                    self.sent.append(step)
                    sent_at = time.monotonic()
                    step = flow.send(Answer(self.arrive(step), sends=sends, sent_at=sent_at))
                else:
                    assert isinstance(step, Now)
                    step = flow.send(time.monotonic())
        except StopIteration as stop:
            result: T = stop.value
            return result

    def do(self, operation: Operation[T]) -> T:
        """Perform one operation."""
        self.sent.append(operation)
        return operation.parse(self.arrive(operation))

    # -- the lock -----------------------------------------------------------------------------

    def claimant(
        self, owner: str = "me", *, ttl_ms: int = _MINUTE, retention_ms: int = 60 * _MINUTE
    ) -> Claimant:
        """Return a new attempt."""
        return Claimant(self.names, owner, lock.new_attempt(), ttl_ms, retention_ms)

    def acquire(self, owner: str = "me", *, sends: int = 1, **terms: int) -> Grant:
        """Take the lock, which must be free."""
        outcome = self.run(lock.acquire(self.claimant(owner, **terms)), sends=sends)
        assert isinstance(outcome, Grant), outcome
        return outcome

    def refuses(self, owner: str = "me") -> bool:
        """Whether a new attempt is told that somebody else holds the lock."""
        return isinstance(self.run(lock.acquire(self.claimant(owner))), Refusal)

    def refuses_late(self, claimant: Claimant) -> bool:
        """Whether the acquire of an attempt that has ended is granted nothing."""
        return bool(self.arrive(lock.acquire_operation(claimant)) == [2])

    def renew(self, grant: Grant, ttl_ms: int = _MINUTE) -> bool:
        """Extend a lease."""
        return self.run(lock.renew(grant, ttl_ms))

    def release(self, grant: Grant) -> Verdict:
        """Give the lock back."""
        return self.run(lock.release(grant))

    def withdraw(self, claimant: Claimant) -> bool:
        """Undo an attempt."""
        return self.do(lock.withdraw_operation(claimant))

    def force(self) -> bool:
        """Free the lock whoever holds it."""
        return self.run(lock.force_release(self.names, _MINUTE))

    def force_of_what_is_held(self) -> Operation[Any]:
        """Return the command that would free the lock, not performed."""
        flow = lock.force_release(self.names, _MINUTE)
        read = next(flow)
        assert isinstance(read, Operation)
        force = flow.send(Answer(self.arrive(read)))
        assert isinstance(force, Operation)
        flow.close()
        return force

    def advance(self, at_least: int) -> int:
        """Lift the fence."""
        return self.run(lock.advance(self.names, at_least, 60 * _MINUTE))

    def inspect(self) -> LockInfo | None:
        """Read what is known."""
        return self.run(lock.inspect(self.names))

    # -- the gate -----------------------------------------------------------------------------

    def token(self, value: int) -> FenceToken:
        """Return a token of this name."""
        return FenceToken(int(value), resource=self.names.name)

    def passes(
        self, token: int, how: str = "set", *, value: str = "v", remote: bool = False
    ) -> bool:
        """Whether the gate lets a token write: `set`, `delete`, `hset`, `check` or `advance`."""
        shown = token if isinstance(token, FenceToken) else self.token(token)
        judgement = self.do(self.write(shown, how, value=value, remote=remote))
        return isinstance(judgement, Passed)

    def write(
        self, token: FenceToken, how: str, *, value: str = "v", remote: bool = False
    ) -> Operation[gate.Judgement]:
        """Return the operation of a write through the gate, not performed."""
        terms: tuple[str, FenceToken, int] = ("fencekit", token, _MINUTE)
        if how == "set":
            return gate.set_value(*terms, key=self.target, value=value, ttl_ms=0, remote=remote)
        if how == "delete":
            return gate.delete(*terms, key=self.target, remote=remote)
        if how == "hset":
            return gate.hset(*terms, key=f"{self.target}:h", mapping={"f": value}, remote=remote)
        return gate.check(*terms, remote=remote, advance=how == "advance")

    def current(self, *, remote: bool = False) -> int | None:
        """Return the highest token that the gate knows."""
        return self.do(gate.current("fencekit", self.names.name, remote=remote))

    @property
    def target(self) -> str:
        """The key that `write` writes to."""
        return f"target-of-{self.names.name}"

    # -- the server's side --------------------------------------------------------------------

    @property
    def record(self) -> dict[str, str]:
        """The fence record as it is stored."""
        return _texts(self.client.hgetall(self.names.fence).items())

    @property
    def holder(self) -> str | None:
        """The lock's value."""
        value = self.client.get(self.names.lock)
        return None if value is None else value.decode()

    @property
    def left_ms(self) -> int:
        """Milliseconds left of the lease; -2 when there is none."""
        return int(self.client.pttl(self.names.lock))

    @property
    def state(self) -> dict[str, Any]:
        """Everything that is stored for the name and its targets, but for the TTLs."""
        return {
            "lock": self.holder,
            "fence": self.record,
            "gone": sorted(self.client.zrange(self.names.gone, 0, -1)),
            "target": self.client.get(self.target),
            "hash": self.client.hgetall(f"{self.target}:h"),
        }

    def lapse(self) -> None:
        """Let the lease end."""
        assert self.client.delete(self.names.lock)

    def lose_record(self) -> None:
        """Lose the fence record."""
        assert self.client.delete(self.names.fence)

    def step_clock_back(self, microseconds: int = 3_600_000_000) -> int:
        """Make the record's last token look as if the clock had been ahead; returns that token."""
        ahead = int(self.record["last"]) + microseconds
        self.client.hset(self.names.fence, "last", ahead)
        return ahead


def _texts(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {field.decode(): value.decode() for field, value in pairs}
