"""Spans last as long as what they are about, metrics count each thing once.

Shown to fail: with spans that begin when they are made, without the memory of losses that were told
(a lease that was lost and then released counts twice), without the context of the grant (a loss
that the keeper found has no parent), and with the resource among the attributes of metrics.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from fencekit import (
    AsyncDistributedLock,
    DistributedLock,
    FencedOutError,
    FenceGate,
    IdempotencyGuard,
    IdempotencyNotOwned,
    LockNotAcquired,
    LockNotOwned,
    otel,
)
from fencekit.drivers.aio import AsyncDriver
from fencekit.hooks import FenceKitHooks
from fencekit.keys import names
from harness.waiting import eventually

from .conftest import Collected

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"
LEASE, HOUR = timedelta(seconds=30), timedelta(hours=1)
SHORT = timedelta(milliseconds=300)
WAITING = {"ttl": LEASE, "wait": LEASE}


def lasted(span: Any) -> float:
    seconds: float = (span.end_time - span.start_time) / 1e9
    return seconds


def test_a_hold_is_a_span_as_long_as_the_hold_below_the_span_it_began_in(
    collected: Collected, hooks: FenceKitHooks, redis_client: Any
) -> None:
    lock = DistributedLock(redis_client, hooks=hooks)
    tracer = collected.tracers.get_tracer("app")
    before = time.time_ns()
    with tracer.start_as_current_span("request") as request:
        handle = lock.acquire("invoices", ttl=LEASE, owner_id="worker-1")
    granted = time.time_ns()
    time.sleep(0.2)
    with tracer.start_as_current_span("elsewhere"):
        lock.release(handle)
    (hold,) = collected.spans("fencekit.lock.hold")
    assert 0.2 <= lasted(hold) < 20
    assert hold.start_time is not None
    assert before < hold.start_time <= granted
    assert hold.parent is not None
    assert hold.parent.span_id == request.get_span_context().span_id
    assert hold.attributes == {
        "fencekit.resource": "invoices",
        "fencekit.token": int(handle.token),
        "fencekit.owner_id": "worker-1",
        "fencekit.outcome": "released",
    }
    assert hold.status.status_code is StatusCode.UNSET
    (point,) = collected.points("fencekit.lock.hold.duration").values()
    assert (point.count, point.attributes) == (1, {"fencekit.outcome": "released"})
    assert abs(point.sum - lasted(hold)) < 0.01
    assert max(point.explicit_bounds) == 3600


def test_a_wait_is_a_span_as_long_as_the_wait(
    collected: Collected, hooks: FenceKitHooks, redis_client: Any
) -> None:
    lock = DistributedLock(redis_client, hooks=hooks)
    began = time.monotonic()
    first = lock.acquire("job", ttl=LEASE, owner_id="worker-1")
    granted = time.monotonic()
    waiter = threading.Thread(target=lock.acquire, args=("job",), kwargs=WAITING)
    waiter.start()
    wake = names("fencekit", "job").wake
    eventually(lambda: redis_client.pubsub_numsub(wake)[0][1] == 1, timeout=10)
    time.sleep(0.2)  # after it has asked, however busy the machine is
    first.release()
    waiter.join()
    ended = time.monotonic()
    at_once, waited = collected.spans("fencekit.lock.acquire")
    assert lasted(at_once) <= granted - began
    assert 0.2 <= lasted(waited) <= ended - granted
    assert collected.count("fencekit.lock.grants") == 2
    (point,) = collected.points("fencekit.lock.wait.duration").values()
    assert point.count == 2
    assert abs(point.sum - lasted(at_once) - lasted(waited)) < 0.01


def test_a_refusal_is_counted_and_names_the_holder(
    collected: Collected, hooks: FenceKitHooks, redis_client: Any
) -> None:
    lock = DistributedLock(redis_client, hooks=hooks)
    handle = lock.acquire("job", ttl=LEASE, owner_id="worker-1")
    with pytest.raises(LockNotAcquired):
        lock.acquire("job", ttl=LEASE, owner_id="worker-2")
    assert collected.count("fencekit.lock.refusals") == 1
    assert collected.count("fencekit.lock.grants") == 1
    assert collected.count("fencekit.lock.wait.duration", "refused") == 1
    granted, refused = collected.spans("fencekit.lock.acquire")
    assert granted.attributes == {
        "fencekit.resource": "job",
        "fencekit.token": int(handle.token),
        "fencekit.owner_id": "worker-1",
        "fencekit.outcome": "granted",
    }
    assert refused.attributes == {
        "fencekit.resource": "job",
        "fencekit.owner_id": "worker-2",
        "fencekit.holder": "worker-1",
        "fencekit.outcome": "refused",
    }


def assert_lost_once(collected: Collected, kind: str, span_name: str) -> Any:
    assert collected.count("fencekit.lease.lost", kind) == 1
    (span,) = collected.spans(span_name)
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["fencekit.outcome"] == "lost"
    return span


def test_a_lease_whose_release_finds_it_lost_is_counted_once(
    collected: Collected, hooks: FenceKitHooks, redis_client: Any
) -> None:
    lock = DistributedLock(redis_client, hooks=hooks)
    handle = lock.acquire("job", ttl=LEASE)
    lock.force_release("job")
    for _ in range(2):
        with pytest.raises(LockNotOwned):
            lock.release(handle)
    assert_lost_once(collected, "lock", "fencekit.lock.hold")
    assert collected.count("fencekit.lock.hold.duration", "lost") == 1


def test_a_lease_that_the_keeper_finds_lost_is_counted_once_below_its_own_span(
    collected: Collected, hooks: FenceKitHooks, redis_client: Any
) -> None:
    lock = DistributedLock(redis_client, hooks=hooks)
    with collected.tracers.get_tracer("app").start_as_current_span("request") as request:
        handle = lock.acquire("job", ttl=SHORT, renew=True)
    lock.force_release("job")
    eventually(lambda: collected.spans("fencekit.lock.hold"))
    with pytest.raises(LockNotOwned):
        lock.release(handle)
    span = assert_lost_once(collected, "lock", "fencekit.lock.hold")
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id
    assert lasted(span) < 20


def test_leases_whose_end_is_never_told_are_forgotten(
    collected: Collected, monkeypatch: pytest.MonkeyPatch, hooks: FenceKitHooks, redis_client: Any
) -> None:
    monkeypatch.setattr("fencekit.otel.telemetry._REMEMBERED", 3)
    lock = DistributedLock(redis_client, hooks=hooks)
    handles = [lock.acquire(f"job-{number}", ttl=LEASE) for number in range(5)]
    telemetry: Any = hooks.on_acquired
    assert len(telemetry.__self__._open) == 3
    for handle in handles:
        handle.release()
    assert collected.count("fencekit.lock.hold.duration", "released") == 5
    assert telemetry.__self__._open == telemetry.__self__._known_lost == {}


def test_a_refused_write_is_counted_and_told_to_the_span_it_happened_in(
    collected: Collected, hooks: FenceKitHooks, redis_client: Any
) -> None:
    lock = DistributedLock(redis_client)
    gate = FenceGate(redis_client, hooks=hooks)
    stale = lock.acquire("job", ttl=LEASE)
    stale.release()
    fresh = lock.acquire("job", ttl=LEASE)
    gate.set_if_fresh(fresh.token, "status", "new")
    with (
        collected.tracers.get_tracer("app").start_as_current_span("write"),
        pytest.raises(FencedOutError),
    ):
        gate.set_if_fresh(stale.token, "status", "old")
    assert collected.count("fencekit.fence.rejections") == 1
    assert collected.count("fencekit.fence.passes") == 1
    (span,) = collected.spans("write")
    (event,) = (event for event in span.events if event.name == "fencekit.fence.rejected")
    assert event.attributes == {
        "fencekit.resource": "job",
        "fencekit.token": int(stale.token),
        "fencekit.current_token": int(fresh.token),
    }


def test_claims_are_counted_by_their_answer_and_timed(
    collected: Collected, hooks: FenceKitHooks, redis_client: Any
) -> None:
    guard = IdempotencyGuard(redis_client, hooks=hooks)
    guard.run("charge", lambda: time.sleep(0.1), ttl=HOUR)
    with collected.tracers.get_tracer("app").start_as_current_span("redelivery") as span:
        guard.run("charge", lambda: 1, ttl=HOUR)
    dead = guard.begin("mail", ttl=HOUR, lease=timedelta(milliseconds=50), renew=False)
    time.sleep(0.06)
    with guard.begin("mail", ttl=HOUR) as claim:
        assert claim.reclaimed
        assert not guard.begin("mail", ttl=HOUR).started
        claim.complete()
    with pytest.raises(IdempotencyNotOwned):
        dead.complete()
    outcomes = {outcome for (outcome,) in collected.points("fencekit.claim.outcomes")}
    assert outcomes == {"begun", "already_done", "reclaimed", "in_progress"}
    assert collected.count("fencekit.claim.outcomes", "already_done") == 1
    assert collected.count("fencekit.claim.outcomes", "reclaimed") == 1
    assert collected.count("fencekit.claim.run.duration", "completed") == 2
    assert collected.count("fencekit.claim.run.duration", "lost") == 1
    assert collected.count("fencekit.lease.lost", "claim") == 1
    charge, mail, lost = collected.spans("fencekit.claim.run")
    assert 0.1 <= lasted(charge) < 20
    assert mail.attributes is not None
    assert mail.attributes["fencekit.attempt"] == 2
    assert mail.attributes["fencekit.reclaimed"] is True
    assert lost.status.status_code is StatusCode.ERROR
    del span
    (redelivery,) = collected.spans("redelivery")
    assert [event.name for event in redelivery.events] == ["fencekit.claim.replayed"]


def test_what_is_personal_never_leaves(
    collected: Collected, hooks: FenceKitHooks, redis_client: Any
) -> None:
    guard = IdempotencyGuard(redis_client, hooks=hooks)
    guard.run("charge:1", lambda: {"card": "4711"}, ttl=HOUR, payload={"name": "Ada"})
    with pytest.raises(ValueError, match="Grace"), guard.begin("charge:2", ttl=HOUR):
        raise ValueError("Grace")
    told = " ".join(span.to_json() for span in collected.all_spans())
    assert "charge:1" in told
    for secret in ("4711", "Ada", "Grace"):
        assert secret not in told


def test_metrics_tell_groups_and_never_names(collected: Collected, redis_client: Any) -> None:
    told = otel.hooks(group=lambda name: name.partition(":")[0], **collected.providers)
    lock, guard = DistributedLock(redis_client, hooks=told), IdempotencyGuard(redis_client)
    for number in range(3):
        lock.acquire(f"batch:{number}", ttl=LEASE).release()
    del guard
    assert collected.count("fencekit.lock.grants", "batch") == 3
    for metric in collected.metrics().values():
        for point in metric.data.data_points:
            assert set(point.attributes) <= {"fencekit.group", "fencekit.outcome"}
    with pytest.raises(TypeError, match=r"^group must be callable, not str$"):
        otel.hooks(group="batch")  # type: ignore[arg-type]


async def test_the_async_twins_report_alike(
    collected: Collected, hooks: FenceKitHooks, async_redis_client: Any
) -> None:
    lock = AsyncDistributedLock(async_redis_client, hooks=hooks)
    with collected.tracers.get_tracer("app").start_as_current_span("request") as request:
        async with lock.hold("job", ttl=LEASE):
            pass
    await AsyncDriver.of(async_redis_client).aclose()
    (hold,) = collected.spans("fencekit.lock.hold")
    assert hold.parent is not None
    assert hold.parent.span_id == request.get_span_context().span_id


def test_a_fifo_lock_reports_as_other_locks_do(
    collected: Collected, hooks: FenceKitHooks, redis_client: Any
) -> None:
    fifo = pytest.importorskip("fencekit.fifo")
    with fifo.SyncFifoLock(redis_client, "line", hooks=hooks).hold():
        pass
    assert collected.count("fencekit.lock.grants") == 1
    assert collected.count("fencekit.lock.hold.duration", "released") == 1


def test_instrumented_every_object_reports_beside_its_own_hooks(
    collected: Collected, redis_client: Any
) -> None:
    own: list[Any] = []
    otel.instrument(**collected.providers)
    DistributedLock(redis_client).acquire("a", ttl=LEASE).release()
    mine = FenceKitHooks(on_acquired=own.append)
    DistributedLock(redis_client, hooks=mine).acquire("b", ttl=LEASE).release()
    IdempotencyGuard(redis_client).run("c", lambda: 1, ttl=HOUR)
    otel.uninstrument()
    DistributedLock(redis_client).acquire("d", ttl=LEASE).release()
    assert collected.count("fencekit.lock.grants") == 2
    assert collected.count("fencekit.claim.run.duration", "completed") == 1
    assert len(own) == 1


def test_without_an_sdk_nothing_is_recorded_and_nothing_breaks(redis_client: Any) -> None:
    otel.instrument()
    DistributedLock(redis_client).acquire("a", ttl=LEASE).release()
    IdempotencyGuard(redis_client).run("c", lambda: 1, ttl=HOUR)


def test_without_the_extra_it_says_what_to_install() -> None:
    story = "import sys; sys.modules['opentelemetry'] = None; import fencekit.otel"
    ran = subprocess.run([sys.executable, "-c", story], capture_output=True, text=True, check=False)
    assert "ImportError: fencekit.otel needs opentelemetry-api: python -m pip" in ran.stderr


# -- caches ----------------------------------------------------------------------------------------


@pytest.fixture
def profiles(collected: Collected, redis_client: Any) -> Any:
    pytest.importorskip("fencekit.cache")
    from pydantic import BaseModel  # noqa: PLC0415 - as the cache

    from fencekit.cache import SyncGenericCache  # noqa: PLC0415

    client = redis_client

    class Profile(BaseModel):
        name: str

    class Profiles(SyncGenericCache[Profile]):
        ttl = 60
        redis_client = client
        hooks = otel.cache_hooks(meter_provider=collected.meters)

    return Profiles(), Profile


def test_hits_misses_and_fills_of_a_cache(collected: Collected, profiles: Any) -> None:
    cache, make = profiles
    for _ in range(3):
        cache.get_or_load(1, lambda: make(name="Ada"))
    cache.get(2)
    name = "profile"
    assert collected.count("fencekit.cache.lookups", name, "hit") == 2
    assert collected.count("fencekit.cache.lookups", name, "miss") == 2
    assert collected.count("fencekit.cache.fills", name, "loaded") == 1
    assert collected.count("fencekit.cache.load.duration", name) == 1

    def invalidated_meanwhile() -> Any:
        cache.invalidate(3)
        return make(name="Old")

    cache.get_or_load(3, invalidated_meanwhile)
    assert collected.count("fencekit.cache.fills", name, "fenced") == 1


def test_without_fencekit_cache_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fencekit.cache.hooks", None)
    with pytest.raises(ImportError, match=r"pip install .fencekit-cache"):
        otel.cache_hooks()


# -- the page --------------------------------------------------------------------------------------


def test_the_page_names_every_metric_with_its_unit_and_every_span() -> None:
    room = Path(str(otel.__file__)).parent
    source = "".join(path.read_text(encoding="utf-8") for path in room.glob("*.py"))
    made = set(re.findall(r'"(fencekit\.[a-z.]+)",?\s+"(\{\w+\}|s)"', source))
    made |= {(name, "s") for name in re.findall(r'durations\(\s*meter,\s+"([\w.]+)"', source)}
    text = PAGE.read_text()
    rows = re.findall(r"^\| `(fencekit\.[\w.]+)` \| [\w ]+ \| `([^`]+)` \|", text, re.MULTILINE)
    assert set(rows) == made
    assert len(made) == 15
    told = set(re.findall(r'(?:_span|_ended|add_event)\(\s*"([\w.]+)"', source))
    assert len(told) == 5
    assert told == set(
        re.findall(r"^\| `(fencekit\.[\w.]+)` \| (?:span|event) \|", text, re.MULTILINE)
    )
