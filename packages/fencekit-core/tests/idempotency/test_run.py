"""`guard.run`: begin, run or replay."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from fencekit.errors import (
    IdempotencyExhausted,
    IdempotencyFailed,
    IdempotencyInProgress,
    IdempotencyNotOwned,
    IdempotencyPayloadMismatch,
    IdempotencyResultMissing,
)
from fencekit.idempotency import AsyncIdempotencyGuard
from harness.claims import Record
from harness.guards import Guards, Work
from harness.plain import PlainLock
from harness.statistics import CommandStats

HOUR = timedelta(hours=1)
_numbers = itertools.count()


@pytest.mark.parametrize(
    "result",
    [None, 0, 1.5, "é", [], {"b": 1, "a": [True, None]}, 2**70],
    ids=["None", "0", "1.5", "str", "list", "dict", "big"],
)
def test_the_work_is_done_once_and_its_result_replayed(guards: Guards, result: Any) -> None:
    work = Work(result)
    first = guards.call("run", "job", work, ttl=HOUR)
    again = guards.call("run", "job", work, ttl=HOUR)
    assert work.done == 1
    assert first == again == result
    assert repr(first) == repr(again)


def test_first_run_and_replay_are_equal_also_for_tuples(guards: Guards) -> None:
    work = Work({"pair": (1, 2)})
    assert guards.call("run", "job", work, ttl=HOUR) == {"pair": [1, 2]}
    assert guards.call("run", "job", work, ttl=HOUR) == {"pair": [1, 2]}


async def test_a_coroutine_is_awaited(async_redis_client: Any) -> None:
    guard = AsyncIdempotencyGuard(async_redis_client)

    async def work() -> int:
        return 7

    assert await guard.run("job", work, ttl=HOUR) == 7
    assert await guard.run("job", work, ttl=HOUR) == 7


def test_an_exception_propagates_and_is_a_failed_attempt(guards: Guards, record: Record) -> None:
    error = ValueError("no funds")
    with pytest.raises(ValueError, match="no funds") as caught:
        guards.call("run", "job", Work(error=error), ttl=HOUR)
    assert caught.value is error
    assert record.state == "retryable"
    assert record.fields["error"] == "ValueError: no funds"
    assert guards.call("run", "job", Work(7), ttl=HOUR) == 7
    assert record.fields["attempts"] == "2"


def test_attempts_run_out(guards: Guards, record: Record) -> None:
    work = Work(error=ValueError("poison"))
    for _ in range(3):
        with pytest.raises(ValueError, match="poison"):
            guards.call("run", "job", work, ttl=HOUR, max_attempts=3)
    with pytest.raises(IdempotencyExhausted) as caught:
        guards.call("run", "job", work, ttl=HOUR, max_attempts=3)
    assert (caught.value.key, caught.value.attempts) == ("job", 3)
    assert work.done == 3
    assert record.state == "exhausted"


def test_a_terminal_failure_is_not_tried_again(guards: Guards) -> None:
    with guards.begin("job", ttl=HOUR) as claim:
        claim.fail(ValueError("no funds"), terminal=True)
    work = Work(7)
    with pytest.raises(IdempotencyFailed) as caught:
        guards.call("run", "job", work, ttl=HOUR)
    assert caught.value.error == "ValueError: no funds"
    assert "no funds" not in str(caught.value)
    assert work.done == 0


def test_a_running_attempt_is_in_progress(guards: Guards, record: Record) -> None:
    record.begin("a", owner="you", lease=9_000)
    work = Work(7)
    with pytest.raises(IdempotencyInProgress) as caught:
        guards.call("run", "job", work, ttl=HOUR)
    assert 8_000 < caught.value.retry_after_ms <= 9_000
    assert caught.value.owner_id == "you"
    assert work.done == 0


def test_a_lapsed_attempt_is_taken_over(guards: Guards, record: Record) -> None:
    record.begin("a", owner="you")
    record.lapse()
    assert guards.call("run", "job", Work(7), ttl=HOUR) == 7
    assert record.complete("a", owner="you")[:2] == [0, "x"]


def test_idempotency_payload_mismatch(guards: Guards) -> None:
    """`pay("o1", 5)`, then `pay("o1", 500)` with the key on the order only."""
    charge = Work("receipt")
    pay = {"ttl": HOUR, "payload": {"order": "o1", "amount": Decimal(5)}}
    assert guards.call("run", "job", charge, **pay) == "receipt"
    assert guards.call("run", "job", charge, **pay) == "receipt"
    pay["payload"] = {"order": "o1", "amount": Decimal(500)}
    with pytest.raises(IdempotencyPayloadMismatch) as caught:
        guards.call("run", "job", charge, **pay)
    assert caught.value.key == "job"
    assert charge.done == 1
    assert guards.call("get_result", "job") == "receipt"


def test_idempotency_powertools_5705(guards: Guards) -> None:
    """aws-powertools/powertools-lambda-typescript#5705: an identical replay is no mismatch."""
    work = Work([1])
    for payload in ({"a": 1, "b": [2.0]}, {"b": [2], "a": 1}):
        assert guards.call("run", "job", work, ttl=HOUR, payload=payload) == [1]
    assert work.done == 1


@pytest.mark.parametrize(
    ("result", "options", "marker"),
    [
        (Decimal("1.5"), {}, "unserialisable"),
        ("x" * 100, {"max_result_bytes": 99}, "too-large"),
        ({"personal": "data"}, {"store_result": False}, "not-kept"),
    ],
    ids=["Decimal", "large", "not kept"],
)
def test_idempotency_memo_cannot_be_stored(
    make_guards: Callable[..., Guards],
    record: Record,
    result: Any,
    options: dict[str, Any],
    marker: str,
) -> None:
    """The work is not repeated because of its memo, however often it is tried."""
    guards = make_guards(**options)
    work = Work(result)
    assert guards.call("run", "job", work, ttl=HOUR) == result, "who ran it has its result"
    for _ in range(3):
        with pytest.raises(IdempotencyResultMissing):
            guards.call("run", "job", work, ttl=HOUR)
    assert work.done == 1
    assert record.state == "done"
    assert record.fields["encoding"] == marker
    assert record.fields["result"] == ""


def test_a_result_that_is_not_kept_is_warned_of_without_its_content(
    make_guards: Callable[..., Guards], caplog: pytest.LogCaptureFixture
) -> None:
    guards = make_guards(max_result_bytes=9)
    guards.call("run", "job", Work("x" * 10), ttl=HOUR)
    guards.call("run", "job2", Work({1, 2}), ttl=HOUR)
    make_guards(store_result=False).call("run", "quiet", Work("x" * 10), ttl=HOUR)
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert [("'job'" in w, "too-large" in w, "a str" in w) for w in warnings[:1]] == [(True,) * 3]
    assert [("'job2'" in w, "unserialisable" in w, "a set" in w) for w in warnings[1:]] == [
        (True,) * 3
    ]
    assert "xxx" not in caplog.text


def test_results_and_errors_are_never_logged(
    guards: Guards, record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "4111-1111"  # noqa: S105
    guards.call("run", "job", Work({"card": secret}), ttl=HOUR)
    record.clear()
    with pytest.raises(ValueError, match=secret):
        guards.call("run", "job", Work(error=ValueError(secret)), ttl=HOUR)
    record.clear()
    with pytest.raises(ValueError, match=secret):
        guards.call("run", "job", _loses_then(record, ValueError(secret)), ttl=HOUR)
    record.clear()
    with pytest.raises(IdempotencyNotOwned) as caught:
        guards.call("run", "job", _loses_then(record, secret), ttl=HOUR)
    assert secret not in str(caught.value)
    assert secret not in caplog.text


def _loses_then(record: Record, outcome: Any) -> Callable[[], Any]:
    """Work that is reclaimed while it runs."""

    def work() -> Any:
        record.lapse()
        record.begin(f"thief {next(_numbers)}", owner="you")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return work


def test_work_that_was_taken_over_is_told_and_changes_nothing(
    guards: Guards, record: Record
) -> None:
    with pytest.raises(IdempotencyNotOwned, match="took the work over"):
        guards.call("run", "job", _loses_then(record, 7), ttl=HOUR)
    assert record.fields["owner"] == "you"
    assert record.state == "running"


def test_the_bodys_exception_wins_over_that_of_a_lost_attempt(
    guards: Guards, record: Record
) -> None:
    with pytest.raises(ZeroDivisionError):
        guards.call("run", "job", _loses_then(record, ZeroDivisionError()), ttl=HOUR)
    assert record.state == "running"
    assert "error" not in record.fields


def test_begin_complete_and_replay_are_one_command_each(
    guards: Guards, commandstats: CommandStats
) -> None:
    guards.call("run", "warm-up", Work(), ttl=HOUR)
    guards.call("run", "warm-up", Work(), ttl=HOUR)
    commandstats.restart()
    guards.call("run", "job", Work(7), ttl=HOUR)
    assert commandstats.total("evalsha") == 2
    guards.call("run", "job", Work(7), ttl=HOUR)
    assert commandstats.total("evalsha") == 3
    assert commandstats.total("eval") == 0


def test_the_memo_is_kept_for_its_ttl_from_completion(guards: Guards, record: Record) -> None:
    guards.call("run", "job", Work(7), ttl=timedelta(seconds=50), lease=timedelta(seconds=500))
    assert 49_000 < record.pttl <= 50_000


def test_the_same_test_fails_on_a_plain_set_nx(redis_client: Any) -> None:
    """What a guard of SET NX does with work that fails: it never runs again, and is not done."""
    plain = PlainLock(redis_client, "job", 60_000)
    work = Work(error=ValueError("once"))
    if plain.acquire():
        with pytest.raises(ValueError, match="once"):
            work()
    work.error = None
    if plain.acquire():
        work()
    with pytest.raises(AssertionError):
        assert work.done == 2
