"""Replies that are lost, commands that arrive late, servers that go away.

How these bite: a guard of SET NX whose reply is lost believes that somebody else runs the work
(`test_the_lost_reply_bites_a_plain_set_nx`), and each late copy is let through by the script
without its rule (tests/lua/test_claim_late_copies.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis

from fencekit.drivers import delivery
from fencekit.errors import (
    IdempotencyInProgress,
    IdempotencyNotOwned,
    OutcomeUnknown,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from fencekit.protocol import idempotency as protocol
from fencekit.protocol.claim import BeginOutcome
from harness import clients
from harness.claims import Record
from harness.faults import (
    Cut,
    Delay,
    DropCommand,
    DropReply,
    Duplicate,
    HoldBack,
    containing,
    named,
)
from harness.guards import Guards, Work
from harness.plain import PlainLock
from harness.proxy import Proxy
from harness.servers import Server

HOUR = timedelta(hours=1)

BEGIN, COMPLETE = containing(protocol.BEGIN.sha), containing(protocol.COMPLETE.sha)
EVAL = named("EVALSHA", "EVAL")


@pytest.fixture
def far(make_guards: Callable[..., Guards], proxy: Proxy) -> Guards:
    """A guard behind a proxy, warmed up, so that every script is known to the server."""
    near = make_guards()
    with near.begin("warm-up", ttl=HOUR) as claim:
        claim.renew()
        claim.complete()
    for end in ("fail", "release"):
        with near.begin("warm-up-2", ttl=HOUR) as claim:
            getattr(claim, end)(*(["Oops"] if end == "fail" else []))
    guards = make_guards(proxy.url, client={"socket_timeout": 0.5})
    guards.call("status", "warm-up")
    return guards


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everybody give up within a second."""
    monkeypatch.setattr(delivery, "_BUDGET", 0.4)
    monkeypatch.setattr(protocol, "_COMPLETE_SECONDS", 0.3)


# lost reply, all operations


def test_idempotency_lost_reply_begin(far: Guards, proxy: Proxy, record: Record) -> None:
    lost = proxy.add(DropReply(BEGIN))
    with far.begin("job", ttl=HOUR) as claim:
        assert lost.fired == 1
        assert claim.outcome is BeginOutcome.BEGUN
        assert (claim.attempt, claim.fence) == (1, record.last)
        claim.complete(7)
    assert record.state == "done"


def test_idempotency_lost_reply_reclaim(far: Guards, proxy: Proxy, record: Record) -> None:
    record.begin("a", owner="you")
    record.lapse()
    proxy.add(DropReply(BEGIN))
    with far.begin("job", ttl=HOUR) as claim:
        assert claim.outcome is BeginOutcome.RECLAIMED, "its first, true outcome"
        assert claim.attempt == 2
        claim.complete()


def test_idempotency_lost_reply_complete(far: Guards, proxy: Proxy, record: Record) -> None:
    lost = proxy.add(DropReply(COMPLETE))
    work = Work(7)
    assert far.call("run", "job", work, ttl=HOUR) == 7
    assert lost.fired == 1
    assert work.done == 1
    assert record.state == "done"
    assert record.fields["ended"].count(":") == 1


@pytest.mark.parametrize("end", ["fail", "release", "renew"])
def test_lost_reply_of_the_others(far: Guards, proxy: Proxy, record: Record, end: str) -> None:
    claim = far.begin("job", ttl=HOUR, renew=False)
    lost = proxy.add(DropReply(EVAL))
    getattr(claim, end)(*(["Oops"] if end == "fail" else []))
    assert lost.fired == 1
    assert record.fields["attempts"] == ("0" if end == "release" else "1")
    if end == "renew":
        claim.complete()


def test_lost_reply_of_the_step_by_step_calls(far: Guards, proxy: Proxy) -> None:
    for key, match in (("a", BEGIN), ("b", COMPLETE)):
        proxy.add(DropReply(match))
        assert far.call("try_begin", key, ttl=HOUR) is True
        far.call("mark_done", key, result=key)
        assert far.call("get_result", key) == key
        proxy.clear()
    proxy.add(DropReply(containing(protocol.CLEAR.sha)))
    assert far.call("clear", "a") is True


def test_lost_reply_in_a_pipeline(far: Guards, proxy: Proxy) -> None:
    keys = [f"k{n}" for n in range(20)]
    proxy.add(DropReply(BEGIN, nth=7))
    claims = far.call("begin_many", keys, ttl=HOUR)
    assert [claim.outcome for claim in claims] == [BeginOutcome.BEGUN] * 20
    assert {claim.attempt for claim in claims} == {1}
    proxy.clear()
    proxy.add(DropReply(COMPLETE, nth=7))
    far.call("complete_many", [(claim, claim.key) for claim in claims])
    assert [far.call("get_result", key) for key in keys] == keys


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", ["begin", "complete"])
def test_many_wait_for_a_silent_server_no_longer_than_one(
    make_guards: Callable[..., Guards], server: Server, what: str
) -> None:
    """Found here: one after the other each was sent again, withdrawn, and completed for seconds."""
    guards = make_guards(client={"socket_timeout": 0.1})
    keys = [f"k{n}" for n in range(60)]
    claims = guards.call("begin_many", keys, ttl=HOUR, renew=False)
    calls = {
        "begin": lambda: guards.call("begin_many", [f"{key}-next" for key in keys], ttl=HOUR),
        "complete": lambda: guards.call("complete_many", [(claim, 7) for claim in claims]),
    }
    server.pause()
    began = time.monotonic()
    try:
        with pytest.raises(OutcomeUnknown):
            calls[what]()
        took = time.monotonic() - began
    finally:
        server.resume()
    assert took < 6  # and not sixty timeouts, of several copies each


@pytest.mark.usefixtures("impatient")
def test_what_had_begun_beside_one_that_did_not_is_given_back_together(
    make_guards: Callable[..., Guards], proxy: Proxy, record: Record
) -> None:
    guards = make_guards(proxy.url, client={"socket_timeout": 0.1})
    with guards.begin("warm-up", ttl=HOUR) as claim:
        claim.release()
    keys = [f"k{n}" for n in range(40)]
    proxy.add(HoldBack(containing("last"), nth=None, then="silence"))
    with pytest.raises(StoreError):
        guards.call("begin_many", ["job", *keys, "last"], ttl=HOUR)
    assert record.begin("next", max_attempts=1)[0] == "begun", "given back, uncounted"
    proxy.add(HoldBack(containing(protocol.RELEASE.sha), nth=None, then="silence"))
    began = time.monotonic()
    with pytest.raises(StoreError):
        guards.call("begin_many", [*keys, "last"], ttl=HOUR)
    assert time.monotonic() - began < 6  # and not forty timeouts, of several copies each


def test_the_lost_reply_bites_a_plain_set_nx(proxy: Proxy) -> None:
    with clients.opened(proxy.url, retry_on_timeout=False) as client:
        proxy.add(DropReply(named("SET")))
        plain = PlainLock(client, "job", 60_000)
        begun = False
        for _ in range(2):
            try:
                begun = plain.acquire()
            except redis.ConnectionError:
                continue
            break
        assert not begun, "its own record is in its way"


def test_every_command_twice(far: Guards, proxy: Proxy, record: Record) -> None:
    proxy.add(Duplicate(EVAL, nth=None))
    assert far.call("run", "job", lambda: 7, ttl=HOUR) == 7
    assert far.call("run", "job", lambda: 8, ttl=HOUR) == 7
    assert record.fields["attempts"] == "1"
    with far.begin("other", ttl=HOUR) as claim:
        claim.renew()
        claim.fail("Oops")
    with far.begin("other", ttl=HOUR) as claim:
        assert claim.attempt == 2
        claim.release()
    with far.begin("other", ttl=HOUR) as claim:
        assert claim.attempt == 2
        claim.complete()
    assert far.call("clear", "other") is True


# copies that arrive after everything else


@pytest.mark.parametrize("end", ["complete", "fail", "release"])
@pytest.mark.parametrize("then", ["nothing", "clear", "a new attempt"])
def test_a_copy_of_begin_that_arrives_late_starts_nothing(
    far: Guards, proxy: Proxy, record: Record, end: str, then: str
) -> None:
    late = proxy.add(HoldBack(BEGIN, then="close"))
    with far.begin("job", ttl=HOUR) as claim:
        assert claim.attempt == 1
        getattr(claim, end)(*(["Oops"] if end == "fail" else []))
    if then != "nothing":
        record.clear()
    if then == "a new attempt":
        record.begin("new", owner="you")
    before = record.fields
    assert late.deliver()[0] in {b"ended", b"done", b"running"}
    assert record.fields == before


def test_a_record_outlives_the_copies_of_its_begin(
    far: Guards, proxy: Proxy, record: Record
) -> None:
    late = proxy.add(HoldBack(BEGIN, then="close"))
    far.call("run", "job", lambda: 7, ttl=timedelta(milliseconds=50))
    time.sleep(0.08)
    late.deliver()
    assert record.state == "done"


@pytest.mark.usefixtures("impatient")
def test_a_begin_that_nobody_answers_is_withdrawn(
    far: Guards, proxy: Proxy, record: Record
) -> None:
    held = proxy.add(HoldBack(BEGIN, nth=None, then="silence"))
    with pytest.raises(StoreUnavailable, match="nothing has begun"):
        far.begin("job", ttl=HOUR)
    proxy.remove(held)
    while held.held:
        assert held.deliver()[0] == b"ended"
    assert record.state is None
    assert far.begin("job", ttl=HOUR, renew=False).attempt == 1


def test_a_begin_that_was_in_the_way_and_sent_twice_starts_nothing_later(
    far: Guards, proxy: Proxy, record: Record
) -> None:
    record.begin("a", owner="you")
    late = proxy.add(HoldBack(BEGIN, then="close"))
    assert far.begin("job", ttl=HOUR).outcome is BeginOutcome.IN_PROGRESS
    record.release("a", owner="you")
    assert late.deliver() == [b"ended", b"w"]
    assert record.state == "retryable"


@pytest.mark.parametrize("end", ["complete", "fail", "release"])
def test_a_copy_of_an_end_that_arrives_late_changes_nothing(
    far: Guards, proxy: Proxy, record: Record, end: str
) -> None:
    claim = far.begin("job", ttl=HOUR, renew=False)
    late = proxy.add(HoldBack(EVAL, then="close"))
    getattr(claim, end)(*(["Oops"] if end == "fail" else []))
    record.clear()
    record.begin("new", owner="you")
    before = record.fields
    assert late.deliver()[0] in {0, 2}
    assert record.fields == before


# servers that go away


def test_a_short_outage_after_the_effect_is_waited_out(far: Guards, proxy: Proxy) -> None:
    work = Work(7)
    cut = proxy.add(Cut(COMPLETE, refuse_for=0.7))
    assert far.call("run", "job", work, ttl=HOUR) == 7
    assert cut.fired == 1
    assert far.call("run", "job", Work(8), ttl=HOUR) == 7
    assert work.done == 1


@pytest.mark.usefixtures("impatient")
def test_after_the_effect_no_answer_is_unknown_and_the_record_stays_running(
    far: Guards, proxy: Proxy, record: Record
) -> None:
    work = Work()
    lost = proxy.add(DropCommand(COMPLETE, nth=None))
    with pytest.raises(OutcomeUnknown, match="'job' is recorded as done"):
        far.call("run", "job", work, ttl=HOUR)
    assert work.done == 1
    assert record.state == "running", "not failed: nobody is told to run it again"
    proxy.remove(lost)
    with pytest.raises(IdempotencyInProgress):
        far.call("run", "job", work, ttl=HOUR)


@pytest.mark.usefixtures("impatient")
def test_completing_again_after_no_answer(far: Guards, proxy: Proxy, record: Record) -> None:
    with far.begin("job", ttl=HOUR) as claim:
        lost = proxy.add(DropReply(COMPLETE, nth=None))
        with pytest.raises(OutcomeUnknown):
            claim.complete(7)
        assert record.state == "done"
        proxy.remove(lost)
        claim.complete(7)
        assert claim.result == 7


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("caught", [True, False])
def test_a_with_left_after_no_answer_never_records_a_failure(
    far: Guards,
    proxy: Proxy,
    record: Record,
    caught: bool,  # noqa: FBT001
) -> None:
    lost = proxy.add(DropCommand(COMPLETE, nth=None))
    try:
        with far.begin("job", ttl=HOUR) as claim:
            try:
                claim.complete(7)
            except OutcomeUnknown:
                if not caught:
                    raise
                proxy.remove(lost)
    except OutcomeUnknown:
        assert not caught
    # Left in peace, it is tried once more: the effect has happened.
    assert record.state == ("done" if caught else "running")


@pytest.mark.usefixtures("impatient")
def test_the_bodys_exception_wins_over_a_store_error(
    far: Guards, proxy: Proxy, record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    def work() -> None:
        proxy.add(DropCommand(EVAL, nth=None))
        raise KeyError("the body's")

    with pytest.raises(KeyError, match="the body's"):
        far.call("run", "job", work, ttl=HOUR, renew=False)
    proxy.clear()
    assert record.state == "running"
    assert "could not be recorded" in caplog.text
    assert "the body's" not in caplog.text


@pytest.mark.usefixtures("impatient")
def test_an_outage_before_the_effect_runs_nothing(
    far: Guards, proxy: Proxy, record: Record
) -> None:
    proxy.cut(refuse_for=3)
    work = Work()
    with pytest.raises(StoreError):
        far.call("run", "job", work, ttl=HOUR)
    assert work.done == 0
    assert record.fields == {}


def test_out_of_memory(guards: Guards, redis_client: Any, record: Record) -> None:
    with guards.begin("job", ttl=HOUR) as claim:
        redis_client.config_set("maxmemory", "1kb")
        try:
            with pytest.raises(StoreRefused) as caught:
                guards.begin("other", ttl=HOUR)
            assert caught.value.code == "OOM"
            claim.renew()
            claim.complete("x" * 1_000)
        finally:
            redis_client.config_set("maxmemory", "0")
    assert record.state == "done"


def test_scripts_flushed_between_any_two_commands(guards: Guards, redis_client: Any) -> None:
    with guards.begin("job", ttl=HOUR) as claim:
        for act in (claim.renew, claim.renew, lambda: claim.complete(7)):
            redis_client.script_flush()
            act()
    redis_client.script_flush()
    assert guards.begin("job", ttl=HOUR).result == 7
    redis_client.script_flush()
    claims = guards.call("begin_many", ["a", "b"], ttl=HOUR)
    redis_client.script_flush()
    guards.call("complete_many", [(claim, 1) for claim in claims])
    redis_client.script_flush()
    assert guards.call("get_result", "a") == 1
    redis_client.script_flush()
    assert guards.call("clear", "a") is True


def test_a_record_that_is_lost_in_mid_run_fails_closed(
    guards: Guards, redis_client: Any, record: Record
) -> None:
    with pytest.raises(IdempotencyNotOwned, match="no record of it"):
        guards.call("run", "job", redis_client.flushall, ttl=HOUR)
    assert record.fields == {}


def test_slow_replies_change_nothing(far: Guards, proxy: Proxy) -> None:
    proxy.add(Delay(0.1))
    assert far.call("run", "job", lambda: 7, ttl=HOUR) == 7
