"""The record against a small model: every command, in any order, repeated and late.

The model knows attempts, not hashes. A copy of any command that was ever sent may arrive again at
any time. After each step the server's record is compared with the model's, and the promises are
asked of the server itself: an attempt that ended never runs again, tokens rise, the gate lets only
the running attempt write, and a memo changes only where somebody cleared or lost it.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from fencekit.protocol.script import Script
from harness.claims import Record, attempt, without

KEPT = 16


@dataclass
class Model:
    """What the record is, without a server."""

    state: str | None = None
    running: str = ""
    count: int = 0
    began: str = "begun"
    live: bool = False
    fingerprint: str = ""
    result: str = ""
    error: str = ""
    exists: bool = False
    ended: dict[str, str] = field(default_factory=dict)

    def begin(self, label: str, fingerprint: str, limit: int, reclaim: str) -> list[Any]:
        if fingerprint and self.fingerprint and fingerprint != self.fingerprint:
            return ["mismatch"]
        if self.state == "done":
            return ["done", self.result]
        if self.state in {"failed", "exhausted"}:
            return [self.state, self.error]
        if label in self.ended:
            return ["ended", self.ended[label]]
        began = "begun"
        if self.state == "running":
            if label == self.running:
                self.live = True
                return [self.began, self.count]
            if self.live or reclaim == "none":
                return ["running", self.running]
            began = "reclaimed"
        if limit and self.count >= limit:
            if began == "reclaimed":
                self._end(self.running, "e")
            self.state = "exhausted"
            return ["exhausted", self.error]
        if began == "reclaimed":
            self._end(self.running, "x")
        self.state, self.running, self.began, self.live = "running", label, began, True
        self.count += 1
        self.exists = True
        self.fingerprint = self.fingerprint or fingerprint
        return [began, self.count]

    def finish(self, label: str, how: str) -> list[Any]:
        """Complete, fail, fail for good ("F") or release."""
        letter = how.lower()
        if self.state != "running" or label != self.running:
            ended = self.ended.get(label, "")
            return [2] if ended == letter else [0, ended, self.state or ""]
        self._end(label, letter)
        if how == "c":
            self.state, self.result, self.error = "done", label, ""
        elif how == "r":
            self.state, self.count = "retryable", self.count - 1
        else:
            self.state, self.error = "failed" if how == "F" else "retryable", label
        return [1]

    def renew(self, label: str) -> list[Any]:
        if self.state != "running" or label != self.running:
            return [0, self.ended.get(label, ""), self.state or ""]
        self.live = True
        return [1]

    def withdraw(self, label: str) -> list[Any]:
        if label in self.ended:
            return [0]
        mine = self.state == "running" and label == self.running
        self._end(label, "w")
        self.exists = True
        if not mine:
            return [0]
        self.state, self.count = "retryable", self.count - 1
        if not self.count and not self.error:
            self.state, self.running, self.fingerprint = None, "", ""
        return [1]

    def clear(self) -> list[Any]:
        if self.state == "running":
            self._end(self.running, "k")
        self.state, self.running, self.count, self.fingerprint = None, "", 0, ""
        self.result = self.error = ""
        return [1]

    def lose(self) -> None:
        self.__init__()  # type: ignore[misc]

    def _end(self, label: str, how: str) -> None:
        self.ended[label] = how
        while len(self.ended) > KEPT:
            del self.ended[next(iter(self.ended))]


class Machine(RuleBasedStateMachine):
    """Sends commands to a server and to the model."""

    def __init__(self, client: Any, changed: dict[str, Script]) -> None:
        super().__init__()
        self.record = Record(client, uuid.uuid4().hex, changed)
        self.model = Model()
        self.labels: list[str] = []
        self.numbers = itertools.count()
        self.sent: list[tuple[str, tuple[Any, ...]]] = []
        self.tokens: dict[str, int] = {}
        self.highest = 0

    labels_known = precondition(lambda self: self.labels)

    @rule(
        fingerprint=st.sampled_from(["", "", "f1", "f2"]),
        limit=st.sampled_from([0, 0, 2]),
        reclaim=st.sampled_from(["any", "any", "none"]),
    )
    def begin(self, fingerprint: str, limit: int, reclaim: str) -> None:
        label = f"a{next(self.numbers)}"
        self.labels.append(label)
        self.send("begin", label, fingerprint, limit, reclaim)

    @labels_known
    @rule(data=st.data(), how=st.sampled_from(["c", "f", "F", "r"]))
    def finish(self, data: st.DataObject, how: str) -> None:
        self.send("finish", self.some(data), how)

    @labels_known
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        self.send("renew", self.some(data))

    @labels_known
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.send("withdraw", self.some(data))

    @rule()
    def withdraw_what_never_arrived(self) -> None:
        label = f"a{next(self.numbers)}"
        self.labels.append(label)
        self.sent.append(("begin", (label, "", 0, "any")))  # it may arrive later
        self.send("withdraw", label)

    @precondition(lambda self: self.model.state is not None)
    @rule()
    def clear(self) -> None:
        self.send("clear", self.record.last)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def a_copy_arrives_late(self, data: st.DataObject) -> None:
        name, args = data.draw(st.sampled_from(self.sent))
        self.perform(name, args)

    @precondition(lambda self: any(name == "clear" for name, _ in self.sent))
    @rule(data=st.data())
    def a_clear_arrives_late(self, data: st.DataObject) -> None:
        """Of all copies the one that could do most harm, and too seldom drawn among the others."""
        seen = [args for name, args in self.sent if name == "clear"]
        self.perform("clear", data.draw(st.sampled_from(seen)))

    @precondition(lambda self: self.model.state == "running")
    @rule()
    def the_lease_ends(self) -> None:
        self.record.lapse()
        self.model.live = False

    @precondition(lambda self: self.model.exists)
    @rule()
    def the_record_is_lost(self) -> None:
        self.record.drop()
        self.model.lose()
        # No copy from before is about any more: what is forgotten cannot be refused.
        self.sent.clear()
        self.labels.clear()
        self.tokens.clear()

    def some(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.labels[-4:]))

    def send(self, name: str, *args: Any) -> None:
        self.sent.append((name, args))
        self.perform(name, args)

    def perform(self, name: str, args: tuple[Any, ...]) -> None:
        found = getattr(self, f"_{name}")(*args)
        if name == "clear":
            current = self.model.state is not None and args[0] == self.fence
            repeated = self.model.state is None and self.fence == args[0] + 1
            expected = self.model.clear() if current else [int(repeated)]
        else:
            expected = getattr(self.model, name)(*args)
        assert found == expected, (name, args)
        self.compare()

    def _begin(self, label: str, fingerprint: str, limit: int, reclaim: str) -> list[Any]:
        self.fence = self.last()
        reply = self.record.begin(
            label, fingerprint=fingerprint, max_attempts=limit, reclaim=reclaim
        )
        code = reply[0]
        if code in {"begun", "reclaimed"}:
            token = reply[1]
            assert self.tokens.setdefault(label, token) == token, "one fence for an attempt"
            assert token >= self.highest
            self.highest = token
            return [code, reply[2]]
        if code == "running":
            return [code, self.label_of(reply[3])]
        if code == "done":
            return [code, reply[2]]
        return [code] if code == "mismatch" else [code, reply[1]]

    def _finish(self, label: str, how: str) -> list[Any]:
        if how == "c":
            return self.record.complete(label, label)
        if how == "r":
            return self.record.release(label)
        return self.record.fail(label, label, terminal=how == "F")

    def _renew(self, label: str) -> list[Any]:
        reply = self.record.renew(label)
        return [1] if reply[0] == 1 else reply

    def _withdraw(self, label: str) -> list[Any]:
        return self.record.withdraw(label)

    def _clear(self, seen: int) -> list[Any]:
        self.fence = self.last()
        return self.record.clear(seen)

    def last(self) -> int:
        return int(self.record.fields.get("last", 0))

    def label_of(self, found: str) -> str:
        return next(label for label in self.labels if attempt(label) == found)

    def compare(self) -> None:
        model, fields = self.model, self.record.fields
        assert fields.get("state") == model.state
        if model.state is not None:
            assert int(fields["attempts"]) == model.count
            assert fields.get("error", "") == model.error
            assert fields["fingerprint"] == model.fingerprint
            assert self.record.pttl > 0
        if model.state == "running":
            assert fields["attempt"] == attempt(model.running)
            assert fields["open"] == fields["last"] == str(self.tokens[model.running])
        ended = fields.get("ended", "")
        assert ended == "".join(f"{attempt(one)}:{how} " for one, how in model.ended.items())
        last = int(fields.get("last", 0))
        assert last >= self.highest or not self.tokens
        for label, token in self.tokens.items():
            writes = model.state == "running" and label == model.running
            assert self.record.passes(token) == writes, label


def explore(client: Any, changed: dict[str, Script], examples: int, **options: Any) -> None:
    run_state_machine_as_test(
        lambda: Machine(client, changed),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            **options,
        ),
    )


def test_the_record_does_what_the_model_does(redis_client: Any) -> None:
    explore(redis_client, {}, 80)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "rule", "instead"),
    [
        ("claim_begin", "if how then", "if false then"),
        ("claim_begin", "math.max((last or 0) + 1, now_us)", "(last or 0) + 1"),
        ("claim_begin", "if now < lease_until then", "if false then"),
        ("claim_complete", "r[1] == 'running' and r[2] == owner and r[3] == attempt", "r[1]"),
        ("claim_complete", "'last', r[5] + 1,", "'last', r[5],"),
        ("claim_release", "math.max(tonumber(r[4]) - 1, 0)", "tonumber(r[4])"),
        ("claim_withdraw", "if how_ended(r[6], attempt) then", "if false then"),
        ("claim_clear", "if not r[1] or last ~= seen then", "if not r[1] then"),
        ("claim_clear", "ended = with_ended(ended, r[2], 'k')", ""),
        ("claim_fail", "-ENDED_BYTES", "-35"),
    ],
    ids=str,
)
def test_the_model_notices_a_rule_that_is_missing(
    redis_client: Any, script: str, rule: str, instead: str
) -> None:
    broken = without(Script.load("fencekit", script), rule, instead)
    with pytest.raises((AssertionError, StopIteration)):
        explore(redis_client, {script: broken}, 400, phases=[Phase.generate], print_blob=False)
