"""Any history of a lock, with late copies and lost records at any point, keeps what §3 promises.

Hypothesis makes histories; a small model knows what is true of each grant. It bites: for each of
several rules a history is kept that breaks a promise on the scripts without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencekit.protocol import lock
from fencekit.protocol.lock import Grant, Verdict
from harness import broken
from harness.lab import Lab

if TYPE_CHECKING:
    from fencekit.protocol.operation import Operation

_which = st.integers(0, 5)
_actions = st.one_of(
    st.tuples(st.just("acquire"), st.sampled_from(["me", "you"])),
    st.tuples(st.sampled_from(["release", "renew", "withdraw", "write"]), _which),
    st.tuples(st.just("late copy"), st.integers(0, 12)),
    st.tuples(st.sampled_from(["lapse", "force", "lose record", "advance"]), st.just(0)),
)
_histories = st.lists(_actions, min_size=3, max_size=25)


@dataclass
class Known:
    """What is true of one grant."""

    grant: Grant
    fate: str = "held"  # held, released, lost
    forgotten: bool = False  # the record was lost since it ended


@dataclass
class Model:
    """What is true of the lock."""

    lab: Lab
    grants: list[Known] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)  # attempts whose late copies are refused
    copies: list[Operation[Any]] = field(default_factory=list)
    blind: bool = False  # the record was lost, and no grant has made it anew

    @property
    def holder(self) -> Known | None:
        return next((known for known in self.grants if known.fate == "held"), None)

    def pick(self, index: int) -> Known | None:
        return self.grants[-1 - index % len(self.grants)] if self.grants else None

    def holds(self, attempt: str) -> bool:
        """Whether the lock is an attempt's, by whichever of its grants."""
        return self.holder is not None and self.holder.grant.claimant.attempt == attempt

    def end(self, fate: str) -> None:
        if self.holder is not None:
            self.holder.fate = fate

    def do(self, action: str, what: Any) -> None:
        method = getattr(self, "do_" + action.replace(" ", "_"))
        method(what)
        self.check()

    def do_acquire(self, owner: str) -> None:
        claimant = self.lab.claimant(owner)
        operation = lock.acquire_operation(claimant)
        self.copies.append(operation)
        reply = self.lab.arrive(operation)
        if reply[0] != 1:
            assert reply[0] == 0
            assert self.lab.holder is not None
            self.lab.withdraw(claimant)
            self.ended.add(claimant.attempt)
            return
        assert self.holder is None, "two holders"
        token = self.lab.token(int(reply[1]))
        highest = max((int(known.grant.token) for known in self.grants), default=0)
        assert token > highest, "tokens rise"
        self.grants.append(Known(Grant(claimant, token, 0.0, resent=True)))
        self.blind = False

    def do_release(self, index: int) -> None:
        known = self.pick(index)
        if known is None:
            return
        orphan = self.holder if known.fate != "held" else None
        if orphan is not None and self.holds(known.grant.claimant.attempt):
            # A late copy was granted the lock anew: the end of the attempt frees that as well.
            orphan.fate = "released"
        verdict = self.send(lock.release(known.grant))
        self.ended.add(known.grant.claimant.attempt)
        if known.fate == "held":
            assert verdict is Verdict.RELEASED
            known.fate = "released"
        elif known.fate == "lost":
            assert verdict is Verdict.LOST, "somebody else may have run"
        else:
            assert verdict is Verdict.RELEASED_BEFORE or known.forgotten

    def do_renew(self, index: int) -> None:
        known = self.pick(index)
        if known is not None:
            renewed = self.send(lock.renew(known.grant, 60_000))
            assert renewed is (known.fate == "held")
            self.blind = self.blind and not renewed

    def do_withdraw(self, index: int) -> None:
        known = self.pick(index)
        if known is not None:
            freed = self.holder if self.holds(known.grant.claimant.attempt) else None
            assert self.lab.withdraw(known.grant.claimant) is (freed is not None)
            self.copies.append(self.lab.sent[-1])
            self.ended.add(known.grant.claimant.attempt)
            if freed is not None:
                freed.fate = "released"

    def do_write(self, index: int) -> None:
        known = self.pick(index)
        if known is None:
            return
        passes = self.lab.passes(known.grant.token)
        self.copies.append(self.lab.sent[-1])
        if known.fate == "held":
            assert passes, "the holder may write"
        if not self.blind and known is not self.grants[-1]:
            assert not passes, "a stale writer is refused"
        if passes and known.fate == "held":
            self.blind = False

    def do_late_copy(self, index: int) -> None:
        if not self.copies:
            return
        operation = self.copies[-1 - index % len(self.copies)]
        before, state = self.lab.holder, self.lab.state
        self.lab.arrive(operation)
        name, args = operation.script.name, operation.args
        if name == "lock_acquire" and args[1] not in self.ended:
            self.adopt(str(args[1]), before)
        elif name == "lock_acquire":
            assert self.lab.holder == before, "a late copy is granted nothing"
        elif name in {"lock_release", "lock_withdraw"}:
            assert self.lab.holder == before, "the attempt has ended already"
            self.ended.add(str(args[1]))
        elif name == "lock_renew":
            assert self.lab.holder == before
        elif name == "lock_force":
            assert self.lab.holder == before
            assert self.lab.record == state["fence"]
        elif name == "fence_set" and self.lab.state != state:
            current = self.grants[-1].grant.token
            assert int(args[0]) == int(current) or self.blind

    def adopt(self, attempt: str, before: str | None) -> None:
        """A copy of an attempt that has not ended was granted the lock anew: nobody's grant."""
        after = self.lab.holder
        if after == before or after is None:
            return
        assert before is None
        claimant = next(
            known.grant.claimant for known in self.grants if known.grant.claimant.attempt == attempt
        )
        # It holds like any other, until it ends or its attempt does.
        self.grants.append(
            Known(Grant(claimant, self.lab.token(int(after.rpartition(":")[2])), 0.0, resent=True))
        )
        self.blind = False

    def do_lapse(self, _: int) -> None:
        if self.lab.holder is not None:
            self.lab.lapse()
            self.end("lost")

    def do_force(self, _: int) -> None:
        held = self.lab.holder is not None
        assert self.lab.force() is held
        if held:
            self.copies.append(self.lab.sent[-1])
            self.end("lost")

    def do_lose_record(self, _: int) -> None:
        if self.lab.record:
            self.lab.lose_record()
            self.blind = True
            for known in self.grants:
                known.forgotten = known.forgotten or known.fate != "held"

    def do_advance(self, _: int) -> None:
        self.lab.advance(5)
        self.copies.append(self.lab.sent[-1])

    def send(self, flow: Any) -> Any:
        result = self.lab.run(flow, sends=2)
        self.copies.append(self.lab.sent[-1])
        return result

    def check(self) -> None:
        """Compare the server with the model."""
        holder, known = self.lab.holder, self.holder
        if known is None:
            assert holder is None, "a lock that nobody has"
        else:
            assert holder is not None
            assert holder.endswith(f":{int(known.grant.token)}")
        for key in (self.lab.names.lock, self.lab.names.fence, self.lab.names.gone):
            assert self.lab.client.pttl(key) != -1, "everything expires"


def play(client: Any, history: list[tuple[str, Any]]) -> None:
    model = Model(Lab(client).fresh())
    for action, what in history:
        model.do(action, what)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(_histories)
def test_every_history_keeps_the_promises(
    redis_client: Any, history: list[tuple[str, Any]]
) -> None:
    play(redis_client, history)


HISTORIES = {
    "LAPSED_IS_NOTED": "acquire, lapse, acquire, release 0, release 1",
    "GRANT_SETS_THE_FLOOR": "acquire, lapse, lose record, acquire, release 1",
    "FIRST_GRANT_SETS_THE_FLOOR": "acquire, lapse, lose record, advance, acquire, release 1",
    "LOCK_PROVES_ONLY_ITS_TOKEN": (
        "acquire, lapse, acquire, lose record, advance, renew 0, release 1"
    ),
    "LATE_RELEASE_WITHDRAWS": "acquire, lapse, late copy 0, release 1",
    "GONE_IS_REFUSED": "acquire, release 0, late copy 1",
    "RELEASE_IS_CHECKED": "acquire, lapse, acquire, release 1",
    "RENEW_IS_CHECKED": "acquire, lapse, acquire, renew 1",
    "STALE_IS_REFUSED": "acquire, lapse, acquire, write 1",
    "FORCE_IS_CHECKED": "acquire, force, acquire, late copy 1",
    "FORCE_LEAVES_IT_OPEN": "acquire, force, release 0",
}


@pytest.mark.parametrize("rule", HISTORIES)
def test_a_history_that_needs_a_rule_breaks_without_it(redis_client: Any, rule: str) -> None:
    """The model bites."""
    history = [_action(words.split()) for words in HISTORIES[rule].split(", ")]
    play(redis_client, history)
    with getattr(broken, rule).removed(), pytest.raises(AssertionError):
        play(redis_client, history)


def _action(words: list[str]) -> tuple[str, Any]:
    if words == ["acquire"]:
        return "acquire", "me"
    if words[-1].isdigit():
        return " ".join(words[:-1]), int(words[-1])
    return " ".join(words), 0
