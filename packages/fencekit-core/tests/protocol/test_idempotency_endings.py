"""Ending, renewing, reading and clearing, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from fencekit.errors import OutcomeUnknown, StoreRefused, StoreUnavailable
from fencekit.keys import names
from fencekit.protocol import idempotency as protocol
from fencekit.protocol.batch import side_by_side
from fencekit.protocol.claim import Announcement, BeginOutcome, Begun, RecordState, Terms
from fencekit.protocol.memo import Memo
from fencekit.protocol.operation import Answer, Now, Operation, Sleep, Together
from fencekit.protocol.token import FenceToken
from harness.flows import Play

NAMES = names("fencekit", "job")
MEMO = Memo("json", b"7")


def begun(*, resent: bool = False) -> Begun:
    return Begun(
        Terms(NAMES, "me", lease_ms=1_000, ttl_ms=9_000),
        "a" * 32,
        BeginOutcome.BEGUN,
        token=FenceToken(7, resource="job", record="claim"),
        number=1,
        sent_at=100.0,
        resent=resent,
    )


def test_complete_is_one_command() -> None:
    play = Play(protocol.complete(begun(), MEMO, published=b"p"))
    operation = play.script("claim_complete")
    assert operation.keys == ("fencekit:{job}:idem",)
    assert operation.args == ("me", "a" * 32, 9_000, "json", b"7", b"p")
    assert play.answer([1]).result is None
    assert Play(protocol.complete(begun(), MEMO)).answer([2]).result is None


TOLD = Announcement("notice", b"told", 5, b"t ", b"won")


def test_complete_and_announce_are_one_command() -> None:
    attempt = begun()
    play = Play(protocol.complete(attempt, MEMO, ttl_ms=500, announcement=TOLD))
    operation = play.script("claim_announce")
    assert operation.keys == ("fencekit:{job}:idem", "notice")
    assert operation.args == ("me", "a" * 32, 500, "json", b"7", b"t ", b"told", 5, b"won")
    assert play.answer([1, 1]).result is None
    assert attempt.announced


@pytest.mark.parametrize(
    ("reply", "announced"),
    [([1, 0], False), ([1, 2], None), ([2], None), ([0, b"x", b"done"], None)],
)
def test_only_what_was_said_to_be_announced_counts_as_announced(
    reply: list[Any], *, announced: bool | None
) -> None:
    attempt = begun()
    Play(protocol.complete(attempt, MEMO, announcement=TOLD)).answer(reply)
    assert attempt.announced is announced


@pytest.mark.parametrize("code", ["NOPERM", "CROSSSLOT"])
def test_what_is_refused_together_is_asked_for_without_the_announcement(code: str) -> None:
    attempt = begun()
    play = Play(protocol.complete(attempt, MEMO, published=b"p", announcement=TOLD))
    play.throw(StoreRefused(code, f"{code} of these keys"))
    assert play.script("claim_complete").args[-1] == b"p"
    assert play.answer([1]).result is None
    assert attempt.announced is False


def test_what_is_refused_alone_as_well_says_nothing_of_the_two_together() -> None:
    attempt = begun()
    play = Play(protocol.complete(attempt, MEMO, announcement=TOLD))
    for asked in (Operation, Now):
        play.throw(StoreRefused("READONLY", "a replica"))
        play.asks(asked)
    play.send(100.0)
    play.asks(Sleep)
    play.send()
    assert play.answer([1]).result is None
    assert attempt.announced is None


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("no answer", sends=4), StoreUnavailable("no connection")]
)
def test_what_breaks_the_connection_together_is_asked_for_alone(error: Exception) -> None:
    """Red where a text too long for the server keeps its work from being recorded."""
    attempt = begun()
    play = Play(protocol.complete(attempt, MEMO, announcement=TOLD))
    play.throw(error)
    play.script("claim_complete")
    assert play.answer([2]).result is None
    assert attempt.announced is None


def test_the_memo_may_be_kept_for_another_time() -> None:
    play = Play(protocol.complete(begun(), MEMO, ttl_ms=500))
    assert play.script("claim_complete").args[2] == 500
    play = Play(protocol.complete(begun(resent=True), MEMO, ttl_ms=500))
    assert play.script("claim_complete").args[2] == 120_000


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ([0, b"x", b"done"], "took the work over"),
        ([0, b"e", b"exhausted"], "no attempt was left"),
        ([0, b"k", b""], "cleared"),
        ([0, b"w", b"running"], "withdrawn"),
        ([0, b"f", b"retryable"], "failed already"),
        ([0, b"", b""], "no record of it"),
        ([0, b"", b"running"], "running, by another attempt"),
    ],
)
def test_why_an_end_was_not_applied(reply: list[Any], reason: str) -> None:
    found = Play(protocol.complete(begun(), MEMO)).answer(reply).result
    assert found is not None
    assert reason in found
    for operation in (protocol.fail(begun(), "Oops"), protocol.release(begun())):
        assert reason in str(operation.parse(reply))


@pytest.mark.parametrize(
    "error",
    [
        OutcomeUnknown("no answer", sends=4),
        StoreUnavailable("no connection"),
        StoreRefused("OOM", "OOM out of memory"),
    ],
)
def test_after_the_effect_a_store_error_is_not_the_end(error: Exception) -> None:
    play = Play(protocol.complete(begun(), MEMO))
    first = play.script("claim_complete")
    play.throw(error)
    play.asks(Now)
    play.send(100.0)
    assert play.asks(Sleep).seconds < 1
    play.send()
    assert play.script("claim_complete") is first, "the same attempt, the same command"
    assert play.answer([2]).result is None


def test_at_last_the_outcome_is_unknown() -> None:
    play = Play(protocol.complete(begun(), MEMO))
    now, tries = 100.0, 1
    play.throw(OutcomeUnknown("no answer", sends=2))
    while now < 103:
        play.send(now)
        now += play.asks(Sleep).seconds
        play.send()
        play.script("claim_complete")
        tries += 1
        play.throw(OutcomeUnknown("no answer", sends=2))
    with pytest.raises(OutcomeUnknown, match="'job' is recorded as done") as caught:
        play.send(now)
    assert caught.value.sends == 2 * tries
    assert 4 < tries < 20
    assert now < 104


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("cancelled")])
def test_a_completion_that_is_interrupted_lets_go_at_once(error: BaseException) -> None:
    with pytest.raises(type(error)):
        Play(protocol.complete(begun(), MEMO)).throw(error)


def test_a_completion_is_tried_ever_more_slowly_for_three_seconds() -> None:
    play = Play(protocol.complete(begun(), MEMO))
    pauses = []
    for _ in range(6):
        play.throw(OutcomeUnknown("no answer", sends=1)).send(100.0)
        pauses.append(play.asks(Sleep).seconds)
        play.send()
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5, 0.5])
    play.throw(OutcomeUnknown("no answer", sends=1))
    with pytest.raises(OutcomeUnknown) as unknown:
        play.send(103.0)  # not a moment longer
    assert unknown.value.sends == 7


def test_fail_and_release_are_one_command() -> None:
    fail = protocol.fail(begun(), "Oops", terminal=True)
    assert fail.script.name == "claim_fail"
    assert fail.args == ("me", "a" * 32, 9_000, "Oops", 1)
    assert protocol.fail(begun(), "Oops").args[4] == 0
    release = protocol.release(begun(), ttl_ms=5)
    assert release.script.name == "claim_release"
    assert release.args == ("me", "a" * 32, 5)


def test_a_renewal_moves_the_deadline_and_never_back() -> None:
    attempt = begun()
    play = Play(protocol.renew(attempt))
    assert play.script("claim_renew").args == ("me", "a" * 32, 1_000, 9_000)
    assert play.answer([1, 1_000], sent_at=100.5).result is None
    assert attempt.deadline == pytest.approx(101.5)
    Play(protocol.renew(attempt, 5_000)).answer([1, 5_000], sent_at=101.0)
    assert attempt.deadline == pytest.approx(106.0)
    assert attempt.lease_ms == 5_000
    Play(protocol.renew(attempt, 10)).answer([1, 4_000], sent_at=101.5)
    assert attempt.deadline == pytest.approx(106.0)
    assert "took the work over" in str(
        Play(protocol.renew(attempt)).answer([0, b"x", b"running"]).result
    )


def test_what_the_keeper_sends_is_read_as_milliseconds_or_lost() -> None:
    operation = protocol.renew_operation(begun())
    assert operation.parse([1, 900]) == 900
    assert operation.parse([0, b"x", b"running"]) is None


def test_reading_a_record() -> None:
    operation = protocol.read(NAMES)
    assert operation.parse([None, None, None, 0, b"9", None, None, None, None, 120_000]) is None
    status = operation.parse([b"running", b"me", b"2", 300, b"7", None, b"Oops", b"t", None, 9_000])
    assert status is not None
    assert (status.key, status.state, status.owner_id) == ("job", RecordState.RUNNING, "me")
    assert (status.attempts, status.lease_ms, status.fence) == (2, 300, 7)
    assert (status.encoding, status.error, status.expires_ms) == (None, "Oops", 9_000)
    assert (status.task_id, status.published) == ("t", b"")
    published = operation.parse([b"done", b"me", None, 0, None, b"json", None, b"", b"p", 9_000])
    assert published is not None
    assert (published.attempts, published.fence, published.published) == (0, 0, b"p")
    assert protocol.read_memo(NAMES).parse([b"done", b"json", b"7"]) == (RecordState.DONE, MEMO)
    assert protocol.read_memo(NAMES).parse([None, None, None]) == (None, Memo("", b""))


RECORD = [b"done", b"me", b"1", 0, b"7", b"json", None, b"", b"", 9_000]


def test_clearing_reads_and_then_clears_what_it_read() -> None:
    play = Play(protocol.clear(NAMES))
    play.script("claim_read")
    play.answer(RECORD)
    assert play.script("claim_clear").args == (7,)
    assert play.answer([1]).result is True


def test_clearing_nothing_sends_nothing_more() -> None:
    assert Play(protocol.clear(NAMES)).answer([None] * 3 + [0] + [None] * 5 + [-2]).result is False


def test_clearing_what_changed_meanwhile_looks_again() -> None:
    play = Play(protocol.clear(NAMES))
    play.answer(RECORD).answer([0])
    play.script("claim_read")
    play.answer([*RECORD[:4], b"8", *RECORD[5:]])
    assert play.script("claim_clear").args[0] == 8


def test_a_clear_whose_first_copy_was_lost_leaves_the_next_record_alone() -> None:
    assert Play(protocol.clear(NAMES)).answer(RECORD).answer([0], sends=2).result is True


def test_many_completions_are_sent_again_together() -> None:
    flows = [protocol.complete(begun(), MEMO) for _ in range(3)]
    play = Play(side_by_side(flows))
    assert len(play.asks(Together).operations) == 3
    lost = OutcomeUnknown("no answer", sends=2)
    play.send([lost, Answer([1]), lost]).asks(Now)
    play.send(1.0).asks(Sleep)
    assert len(play.send().asks(Together).operations) == 2
    play.send([Answer([1]), StoreUnavailable("no answer, again")]).asks(Now)
    play.send(1.1).asks(Sleep)
    play.send()
    assert play.send([Answer([2])]).result == [None, None, None]
