"""The flows by hand: what is asked, in which order, without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from fencekit.cache import entry
from fencekit.cache.fill import Outcome, Terms, fill
from fencekit.cache.policy import Policy
from fencekit.cache.protocol import (
    ABANDON,
    BEGIN,
    CLOCK,
    GET,
    MGET,
    READ_TAG,
    STORE,
    Clock,
    Found,
    _age,
    look,
    moment,
)
from fencekit.errors import StoreUnavailable
from fencekit.protocol.operation import (
    Answer,
    AwaitWake,
    Call,
    Flow,
    Listen,
    Now,
    Operation,
    Together,
    Unlisten,
)

FINGERPRINT = b"abcdef"


def policy(**changes: Any) -> Policy:
    values: dict[str, Any] = {
        "prefix": "",
        "domain": "profile",
        "fingerprint": FINGERPRINT,
        "ttl_ms": 60_000,
        "negative_ms": 0,
        "grace_ms": 0,
        "lease_ms": 10_000,
        "jitter": 0.1,
        "beta": 0.0,
    }
    return Policy(**{**values, **changes})


class Watcher:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.told.append(name)


def terms(chosen: Policy | None = None) -> Terms[Any]:
    return Terms(chosen or policy(), Clock(), str.encode, cast("Any", Watcher()), is_cluster=False)


def raw(body: bytes = b"{}", soft_ms: int = 0, tags: bytes = b"") -> bytes:
    head = entry.head(FINGERPRINT, negative=False, tagged=bool(tags))
    return head + soft_ms.to_bytes(6, "big") + entry.rest(1.0, tags, body)


class Play:
    """Answers a flow step by step.

    Attributes:
        steps: what it asked, by name.
        result: what it returned.
    """

    def __init__(self, flow: Flow[Any], answers: dict[str, Any]) -> None:
        self.steps: list[str] = []
        self.result: Any = None
        self._answers = {name: list(values) for name, values in answers.items()}
        self.operations: list[Operation[Any]] = []
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._answer(step)
                except BaseException as error:  # noqa: BLE001 - the flow decides
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as stop:
            self.result = stop.value

    def _answer(self, step: Any) -> Any:
        if isinstance(step, Now):
            return 100.0
        if isinstance(step, Together):
            return [self._reply(operation) for operation in step.operations]
        if isinstance(step, Operation):
            answer = self._reply(step)
            if isinstance(answer, Exception):
                raise answer
            return answer
        self.steps.append(type(step).__name__)
        if isinstance(step, Call):
            return step.function()
        return None

    def _reply(self, operation: Operation[Any]) -> Any:
        name = operation.script.name
        self.steps.append(name)
        self.operations.append(operation)
        reply = self._answers[name].pop(0)
        return reply if isinstance(reply, Exception) else Answer(reply, sent_at=100.0)


MISS = Found(None, b"", 0)


def test_a_hit_without_tags_is_one_get() -> None:
    play = Play(look(policy().subject("1"), policy(), Clock()), {"GET": [raw()]})
    assert play.steps == ["GET"]
    assert play.operations[0].keys == (":profile:1",)
    assert play.result.entry.body == b"{}"


def test_a_hit_with_tags_is_a_get_and_one_mget() -> None:
    subject = policy().subject("1", ["a", "b"])
    digest = entry.digest([b"n1", b"n2"])
    answers = {"GET": [raw(tags=digest)], "MGET": [[b"n1", b"n2"]]}
    play = Play(look(subject, policy(), Clock()), answers)
    assert play.steps == ["GET", "MGET"]
    assert play.operations[1].keys == ("{:profile}:tag:a", "{:profile}:tag:b")
    assert play.result.entry is not None


@pytest.mark.parametrize("nonces", [[b"n1", None], [b"n1", b"other"], [None, None]])
def test_a_missing_or_new_nonce_is_a_miss(nonces: list[bytes | None]) -> None:
    subject = policy().subject("1", ["a", "b"])
    digest = entry.digest([b"n1", b"n2"])
    answers = {"GET": [raw(tags=digest)], "MGET": [nonces]}
    assert Play(look(subject, policy(), Clock()), answers).result.entry is None


def test_the_clock_is_asked_only_for_what_is_to_be_refreshed_and_only_once() -> None:
    clock, subject = Clock(), policy().subject("1")
    soft = raw(soft_ms=5_000)
    play = Play(look(subject, policy(), clock), {"GET": [soft], "clock_read": [4_000]})
    assert play.steps == ["GET", CLOCK.name]
    assert play.result.age == "fresh"
    assert Play(look(subject, policy(), clock), {"GET": [soft]}).steps == ["GET"]
    late = Play(look(subject, policy(), Clock()), {"GET": [soft], "clock_read": [5_000]})
    assert late.result.age == "stale"


def test_xfetch_refreshes_early_with_a_probability_that_rises() -> None:
    one = entry.Entry(negative=False, soft_ms=100_000, cost=1.0, body=b"")
    shares = [
        sum(_age(one, now, 1.0) == "early" for _ in range(2_000)) / 2_000
        for now in (90_000, 99_000, 99_900)
    ]
    # The share is exp(-left / (cost × beta)): 0.00005, 0.37, 0.90.
    assert shares[0] < 0.01
    assert 0.3 < shares[1] < 0.45
    assert shares[2] > 0.85
    assert _age(one, 99_999, 0.0) == "fresh"
    assert _age(one, 100_000, 0.0) == "stale"


def test_a_fill_takes_the_ticket_loads_and_stores() -> None:
    it = terms()
    subject = it.policy.subject("1")
    play = Play(
        fill(subject, it, MISS, lambda: "value"), {"fill_begin": [[1, b"T"]], "fill_store": [[1]]}
    )
    assert play.steps == [BEGIN.name, "Call", STORE.name]
    assert play.operations[1].args[0] == b"T"
    assert play.operations[1].keys == (":profile:1", "{:profile:1}:fill")
    assert play.result == Outcome(play.result.as_of, b"value", "value", loaded=True)


def test_tags_are_read_before_the_load() -> None:
    it = terms()
    subject = it.policy.subject("1", ["a"])
    play = Play(
        fill(subject, it, MISS, lambda: "value"),
        {"fill_begin": [[1, b"T"]], "tag_read": [b"n"], "fill_store": [[1]]},
    )
    assert play.steps == [BEGIN.name, READ_TAG.name, "Call", STORE.name]


def as_of_of(load: Callable[[], Any], **replies: Any) -> tuple[int, int, Outcome]:
    """The moments just before and during the load, and the outcome."""
    it = terms()
    during: list[int] = []

    def noted() -> Any:
        during.append(moment())
        return load()

    before = moment()
    play = Play(fill(it.policy.subject("1"), it, MISS, noted), replies)
    return before, during[0], play.result


def test_what_was_stored_holds_for_whoever_asked_before_the_store() -> None:
    _, during, outcome = as_of_of(lambda: "v", fill_begin=[[1, b"T"]], fill_store=[[1]])
    assert outcome.as_of > during


def test_what_was_not_stored_holds_only_for_whoever_asked_before_the_load() -> None:
    for replies in (
        {"fill_begin": [[1, b"T"]], "fill_store": [[0]]},
        {"fill_begin": [[3]]},
        {
            "fill_begin": [[1, b"T"]],
            "fill_store": [StoreUnavailable("away")],
            "fill_abandon": [[1]],
        },
        {"fill_begin": [StoreUnavailable("away")]},
    ):
        before, during, outcome = as_of_of(lambda: "v", **replies)
        assert before < outcome.as_of < during


def test_what_was_stored_under_tags_is_known_as_of_their_reading() -> None:
    it = terms()
    play = Play(
        fill(it.policy.subject("1", ["a"]), it, MISS, lambda: str(moment())),
        {"fill_begin": [[1, b"T"]], "tag_read": [b"n"], "fill_store": [[1]]},
    )
    assert play.result.as_of < int(play.result.value)


def test_a_failed_load_gives_the_ticket_back() -> None:
    it = terms()

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        Play(
            fill(it.policy.subject("1"), it, MISS, fail),
            {"fill_begin": [[1, b"T"]], "fill_abandon": [[1]]},
        )


def test_a_none_is_stored_only_as_a_negative_entry() -> None:
    it = terms()
    play = Play(
        fill(it.policy.subject("1"), it, MISS, lambda: None),
        {"fill_begin": [[1, b"T"]], "fill_abandon": [[1]]},
    )
    assert play.steps == [BEGIN.name, "Call", ABANDON.name]
    it = terms(policy(negative_ms=5_000))
    play = Play(
        fill(it.policy.subject("1"), it, MISS, lambda: None),
        {"fill_begin": [[1, b"T"]], "fill_store": [[1]]},
    )
    assert play.steps == [BEGIN.name, "Call", STORE.name]
    assert play.result.body is None


def test_a_loser_listens_asks_again_and_waits_for_the_winner() -> None:
    it = terms()
    play = Play(
        fill(it.policy.subject("1"), it, MISS, lambda: "never"),
        {"fill_begin": [[0, 9_000], [0, 9_000], [2]], "GET": [raw(b"won")]},
    )
    assert play.steps == [
        BEGIN.name,
        Listen.__name__,
        BEGIN.name,
        AwaitWake.__name__,
        BEGIN.name,
        GET.name,
        Unlisten.__name__,
    ]
    assert play.result.body == b"won"
    assert cast("Any", it.watcher).told == ["waited"]


def test_a_loser_with_a_stale_value_serves_it_at_once() -> None:
    it = terms()
    stale = Found(entry.Entry(False, 1, 0.0, b"old"), b"seen", moment(), "stale")  # noqa: FBT003
    play = Play(
        fill(it.policy.subject("1"), it, stale, lambda: "never"), {"fill_begin": [[0, 9_000]]}
    )
    assert play.steps == [BEGIN.name]
    assert (play.result.body, play.result.stale) == (b"old", True)


def test_on_hold_it_loads_and_does_not_store() -> None:
    it = terms()
    play = Play(fill(it.policy.subject("1"), it, MISS, lambda: "v"), {"fill_begin": [[3]]})
    assert play.steps == [BEGIN.name, "Call"]
    assert MGET.read_only
