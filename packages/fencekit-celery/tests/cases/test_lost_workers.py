"""What becomes of messages whose worker dies, is stopped, or runs out of time.

Each test has workers of its own, with a short visibility timeout. Red first: with the bare task or
the naive decorator of ``harness.celery_tasks`` they fail, as the strict xfails keep true.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from celery import VERSION as CELERY
from celery import chain, chord
from celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from fencekit.errors import IdempotencyExhausted
from harness.servers import Server
from harness.waiting import eventually
from harness.workers import Effects, Worker, fresh_key

PATIENCE = 40
OTHER_POOLS = ("threads", "gevent", "eventlet", "solo")

RED = [pytest.mark.xfail(raises=AssertionError, strict=True), pytest.mark.slow]
StartWorker = Callable[..., Worker]
# Celery 5.6 with redis-py 8.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")


def red(name: str) -> pytest.MarkDecorator:
    """Run with the idempotent task, and with one that must fail."""
    return pytest.mark.parametrize("name", ["once", pytest.param(name, marks=RED)])


def pools(*others: str) -> pytest.MarkDecorator:
    """Run on prefork, and in the slow run on these as well."""
    slow = [pytest.param(other, marks=pytest.mark.slow) for other in others]
    return pytest.mark.parametrize("pool", ["prefork", *slow])


def start_restorer(start_worker: StartWorker, pool: str, **options: Any) -> None:
    """Have messages delivered again, which a worker of any queue does.

    Under gevent and eventlet kombu does not, unless a worker has no free slot, and under solo not
    while a task runs.
    """
    if pool in ("gevent", "eventlet", "solo"):
        start_worker(pool="solo", args=("-Q", "other"), **options)


def await_control(tasks: Any) -> None:
    """Wait until a worker hears of revocations, under gevent later than it is ready."""
    eventually(lambda: tasks["once"].app.control.ping(timeout=1), PATIENCE)


@pytest.fixture
def start_worker(broker: Server, workers: dict[str, Worker]) -> Iterator[StartWorker]:
    """Start workers that end with the test; the shared one is ended first."""
    while workers:
        workers.popitem()[1].kill()
    with ExitStack() as stack:

        def start(**options: Any) -> Worker:
            if options.get("pool") in ("gevent", "eventlet"):
                pytest.importorskip(options["pool"])
            options = {"visibility": 2, **options}
            return stack.enter_context(Worker(broker, **options)).ready()

        yield start
    Effects(broker).forget_messages()


def value(result: Any, timeout: float = PATIENCE) -> Any:
    """What a message gave, or an AssertionError."""
    eventually(result.ready, timeout, interval=0.02, why=f"{result!r} is ready")
    return result.get(propagate=True)


@red("guessed")
def test_celery_once_147_the_redelivery_of_a_killed_worker_runs(
    tasks: Any, effects: Effects, start_worker: StartWorker, name: str
) -> None:
    first = start_worker()
    key, end = fresh_key(), fresh_key()
    steps = [["sleep", 1]]
    result = chain(tasks[name].s(key, steps, "paid"), tasks["collect"].s(end)).delay()
    effects.wait("runs", key)
    first.kill()
    effects.client.set(f"running:{key}", 0)
    killed = time.monotonic()
    start_worker()
    assert value(result, 20) == "paid"
    assert time.monotonic() - killed < 15
    assert effects.all("collected", end) == ["'paid'"]
    assert effects.count("effects", key) == 1


@red("leased")
@pytest.mark.parametrize("end", ["completes", pytest.param("fails", marks=pytest.mark.slow)])
def test_powertools_5714_what_a_stalled_run_ends_with_does_not_count(
    tasks: Any, effects: Effects, start_worker: StartWorker, name: str, end: str
) -> None:
    stalled = start_worker(visibility=3600, concurrency=1)
    key = fresh_key()
    steps = [["sleep", 1], *([["fail", 1]] if end == "fails" else [])]
    first = tasks[name].delay(key, steps, "which")
    effects.wait("runs", key)
    os.killpg(stalled.process.pid, signal.SIGSTOP)
    start_worker(visibility=3600)
    # Its lease is over before another runs, and it goes on when the other has ended.
    other = tasks[name].delay(key, steps, "which")
    assert value(other) == 2
    os.killpg(stalled.process.pid, signal.SIGCONT)
    eventually(first.ready, PATIENCE)
    assert value(tasks[name].delay(key, steps, "which")) == 2
    assert effects.count("runs", key) == 2


@pytest.mark.slow
@red("plain")
@pytest.mark.parametrize("pool", OTHER_POOLS)
def test_every_pool_recovers_and_keeps_what_is_being_run(
    tasks: Any, effects: Effects, start_worker: StartWorker, name: str, pool: str
) -> None:
    # Celery 5.6 acknowledges up to 2 s late on gevent and eventlet: between its waits for messages.
    first = start_worker(pool=pool, visibility=4)
    killed, end = fresh_key(), fresh_key()
    result = chain(tasks[name].s(killed, [["sleep", 1]], "paid"), tasks["collect"].s(end)).delay()
    effects.wait("runs", killed)
    first.kill()
    effects.client.set(f"running:{killed}", 0)
    start_worker(pool=pool, visibility=4)
    start_restorer(start_worker, pool, visibility=4)
    assert value(result) == "paid"
    # Longer than lease and visibility timeout: it is delivered again while it runs.
    lasting = fresh_key()
    other = tasks[name].delay(lasting, [["sleep", 7]], "held")
    assert value(other) == "held"
    time.sleep(4)  # outlasts the visibility timeout once more
    assert effects.all("collected", end) == ["'paid'"]
    assert effects.count("effects", killed) == 1
    assert effects.count("runs", lasting) == effects.most(lasting) == 1


def test_a_pool_process_that_dies_is_replaced_within_its_lease(
    tasks: Any, effects: Effects, start_worker: StartWorker
) -> None:
    start_worker(visibility=3600)
    key = fresh_key()
    result = tasks["once"].delay(key, [["die", 1]], "attempt")
    assert value(result)[:2] == [2, True]
    assert effects.count("runs", key) == 2
    assert effects.count("effects", key) == 1


@red("plain")
@pools(*OTHER_POOLS)
def test_celery_9835_killed_after_the_result_was_published(
    tasks: Any, effects: Effects, start_worker: StartWorker, name: str, pool: str
) -> None:
    # One at a time, so that the second step, which nothing protects, does not die in this worker.
    first = start_worker(pool=pool, concurrency=1)
    key, end = fresh_key(), fresh_key()
    effects.client.set(f"die-after-success:{key}", 1)
    steps = chain(tasks[name].s(key, [], [1, 2]), tasks["collect"].s(end)).delay()
    eventually(lambda: not first.process.alive, PATIENCE)
    start_worker(pool=pool)
    start_restorer(start_worker, pool)
    assert value(steps) == [1, 2]
    eventually(lambda: not effects.client.hlen("unacked"), 20)
    time.sleep(0.5)  # a second delivery is given the time to run
    assert effects.all("collected", end) == ["[1, 2]"]
    assert effects.count("effects", key) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["capped", pytest.param("guessed", marks=RED)])
def test_celery_9082_a_poison_message_ends_with_a_real_failure(
    tasks: Any, effects: Effects, start_worker: StartWorker, name: str
) -> None:
    start_worker(visibility=3600, concurrency=3)
    poison, good, end, errors = fresh_key(), fresh_key(), fresh_key(), fresh_key()
    body = tasks["collect"].s(end).on_error(tasks["errback"].s(key=errors))
    header = [tasks[name].s(poison, [["die", 99]]), tasks[name].s(good, [], 1)]
    result = chord(header)(body)
    failed = next(one for one in result.parent.results if one.id)
    effects.wait("errors", errors, timeout=20)
    with pytest.raises(IdempotencyExhausted) as caught:
        value(failed)
    assert caught.value.attempts == 3
    time.sleep(0.5)  # a fourth run is given the time to begin
    assert effects.count("runs", poison) == 3
    assert effects.count("errors", errors) == 1
    assert effects.count("collected", end) == 0


@pytest.mark.slow
@red("plain")
def test_celery_5306_a_task_longer_than_the_visibility_timeout(
    tasks: Any, effects: Effects, start_worker: StartWorker, name: str
) -> None:
    start_worker(visibility=1)
    start_worker(visibility=1)
    keys, end = [fresh_key(), fresh_key()], fresh_key()
    header = [tasks[name].s(key, [["sleep", 5]], at) for at, key in enumerate(keys)]
    chord(header)(tasks["collect"].s(end))
    effects.wait("collected", end, timeout=PATIENCE)
    time.sleep(2)  # outlasts the visibility timeout of 1 s, and the look for it
    assert effects.all("collected", end) == ["[0, 1]"]
    for key in keys:
        assert effects.count("effects", key) == effects.most(key) == 1


@pytest.mark.slow
@red("plain")
@pytest.mark.parametrize("pool", ["prefork", *OTHER_POOLS])
def test_kombu_337_a_countdown_longer_than_the_visibility_timeout(
    tasks: Any, effects: Effects, start_worker: StartWorker, name: str, pool: str
) -> None:
    start_worker(pool=pool, visibility=1)
    start_worker(pool=pool, visibility=1)
    start_restorer(start_worker, pool, visibility=1)
    key = fresh_key()
    result = tasks[name].apply_async((key, [["sleep", 0.3]], 1), countdown=5)
    assert value(result) == 1
    time.sleep(2)  # outlasts the visibility timeout of 1 s, and the look for it
    assert effects.count("effects", key) == 1


# No other pool has a soft limit: it is a signal, to a process of its own.
def test_time_limits_are_no_verdict_on_the_work(
    tasks: Any, effects: Effects, start_worker: StartWorker
) -> None:
    start_worker(visibility=3600)
    soft = fresh_key()
    with pytest.raises(SoftTimeLimitExceeded):
        value(tasks["limited"].delay(soft, [["catch"]]))
    assert effects.count("caught", soft) == 1
    # Not failed for good, though every Exception is terminal.
    with pytest.raises(SoftTimeLimitExceeded):
        value(tasks["limited"].delay(soft, [["catch"]]))
    assert effects.count("runs", soft) == 2


# Of the others gevent alone has a hard limit: threads, eventlet and solo ignore it.
@pytest.mark.parametrize(
    ("name", "pool"),
    [
        ("brief", "prefork"),
        pytest.param("brief", "gevent", marks=pytest.mark.slow),
        pytest.param("guessed", "prefork", marks=RED),
    ],
)
def test_celery_singleton_40_a_hard_time_limit_frees_the_key(
    tasks: Any, effects: Effects, start_worker: StartWorker, name: str, pool: str
) -> None:
    start_worker(pool=pool, visibility=3600)
    hard = fresh_key()
    with pytest.raises(TimeLimitExceeded):
        value(tasks[name].apply_async((hard, [["sleep", 9]], 1), time_limit=1))
    effects.client.set(f"running:{hard}", 0)
    assert value(tasks[name].delay(hard, [], 1), 10) == 1
    assert effects.count("effects", hard) == 1


# Threads cannot be ended, and solo hears nothing while it runs a task.
@red("guessed")
@pools("gevent", "eventlet")
def test_a_revoked_run_frees_the_key(
    tasks: Any, effects: Effects, start_worker: StartWorker, name: str, pool: str
) -> None:
    start_worker(pool=pool, visibility=3600)
    await_control(tasks)
    key = fresh_key()
    first = tasks[name].delay(key, [["sleep", 30]], 1)
    effects.wait("runs", key)
    first.revoke(terminate=True)
    eventually(lambda: first.state == "REVOKED", PATIENCE)
    assert value(tasks[name].delay(key, [], 1), 10) == 1
    assert effects.count("effects", key) == 1


@pools(*OTHER_POOLS)
def test_revoked_before_it_begins_it_takes_nothing(
    tasks: Any, effects: Effects, start_worker: StartWorker, pool: str
) -> None:
    start_worker(pool=pool, visibility=3600)
    await_control(tasks)
    key = fresh_key()
    waiting = tasks["once"].apply_async((key,), countdown=2)
    waiting.revoke()
    eventually(lambda: waiting.state == "REVOKED", PATIENCE)
    assert effects.count("runs", key) == 0
    assert value(tasks["once"].delay(key, [], 1), 10) == 1
    assert effects.count("effects", key) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pool", "how"),
    [
        *(("once", pool, signal.SIGTERM) for pool in ("prefork", *OTHER_POOLS)),
        *(("once", pool, signal.SIGQUIT) for pool in ("prefork", "threads")),
        pytest.param("guessed", "prefork", signal.SIGQUIT, marks=RED),
    ],
)
def test_a_shutdown_loses_nothing(
    tasks: Any,
    effects: Effects,
    start_worker: StartWorker,
    *,
    name: str,
    pool: str,
    how: signal.Signals,
) -> None:
    first = start_worker(pool=pool, visibility=3)
    key = fresh_key()
    result = tasks[name].delay(key, [["sleep", 2]], "whole")
    effects.wait("runs", key)
    first.signal(how)
    first.ended()
    effects.client.set(f"running:{key}", 0)
    start_worker(pool=pool, visibility=3)
    start_restorer(start_worker, pool, visibility=3)
    assert value(result) == "whole"
    time.sleep(0.5)  # a second run is given the time to end
    assert effects.count("effects", key) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "once"])
@pytest.mark.parametrize("pool", ["gevent", "eventlet", "solo"])
def test_a_cold_shutdown_that_celery_cannot_do_leaves_the_key_free(
    tasks: Any, effects: Effects, start_worker: StartWorker, pool: str, name: str
) -> None:
    # Celery's handler raises in these pools when the messages have been acknowledged: they are
    # gone, or have failed, with a bare task too. The work can be asked for again.
    first = start_worker(pool=pool, visibility=3)
    key = fresh_key()
    result = tasks[name].delay(key, [["sleep", 2]], "whole")
    effects.wait("runs", key)
    first.signal(signal.SIGQUIT)
    if pool == "solo" and CELERY[:2] == (5, 6):
        # It notes that it has to end after what raises: it takes no more messages, and stays.
        eventually(result.ready, PATIENCE)
        first.signal(signal.SIGTERM)
    first.ended()
    assert result.state == ("FAILURE" if pool == "solo" else "PENDING")
    assert effects.client.hlen("unacked") == effects.client.llen("celery") == 0
    start_worker(pool=pool, visibility=3)
    assert value(tasks[name].delay(key, [["sleep", 0.1]], "whole")) == "whole"
    assert effects.count("effects", key) == 1


def test_nothing_runs_and_nothing_is_lost_while_redis_is_down(
    tasks: Any, effects: Effects, start_worker: StartWorker, fresh_server: Server
) -> None:
    start_worker(visibility=3600, env={"FENCEKIT_TEST_STORE": fresh_server.url})
    fresh_server.kill()
    key, end = fresh_key(), fresh_key()
    result = chain(tasks["auto"].s(key, [], 1), tasks["collect"].s(end)).delay()
    time.sleep(0.7)  # longer than the first pause of a message that came back
    assert effects.count("runs", key) == 0
    fresh_server.launch()
    assert value(result) == 1
    assert effects.count("effects", key) == 1


def test_a_worker_says_what_is_wrong_at_its_start(start_worker: StartWorker) -> None:
    worker = start_worker(visibility=1)
    log = worker.log()
    assert "once: its lease (0:00:01) is not below the visibility timeout (0:00:01)" in log
    assert "acks_late" not in log


def test_a_worker_without_a_place_for_records_does_not_start(broker: Server) -> None:
    with Worker(broker, env={"FENCEKIT_TEST_STORE": ""}) as worker:
        worker.ended()
        assert "keeps its records is not known" in worker.log()
