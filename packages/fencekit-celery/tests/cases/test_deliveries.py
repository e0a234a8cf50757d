"""What workers do with messages that come twice, come back, or come from a canvas.

Red first: each is run with a bare task or the naive decorator (``harness.celery_tasks``) too, and
must fail there, which the strict xfails keep true.
"""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pytest
from celery import chain, chord, group

from fencekit import idempotency_key
from fencekit.celery import StillBusy
from fencekit.errors import IdempotencyFailed, IdempotencyPayloadMismatch
from harness.waiting import eventually
from harness.workers import Effects, copies, fresh_key

PATIENCE = 40
RED = [pytest.mark.xfail(raises=AssertionError, strict=True), pytest.mark.slow]
pytestmark = [
    pytest.mark.usefixtures("pool"),
    # Celery 5.6 with redis-py 8.
    pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning"),
]


def red(name: str) -> pytest.MarkDecorator:
    """Run with the idempotent task, and with one that must fail."""
    return pytest.mark.parametrize("name", ["once", pytest.param(name, marks=RED)])


def value(result: Any, timeout: float = PATIENCE) -> Any:
    """What a message gave, or an AssertionError."""
    eventually(result.ready, timeout, interval=0.02, why=f"{result!r} is ready")
    return result.get(propagate=True)


@red("guessed")
def test_a_duplicate_is_answered_with_the_result(tasks: Any, effects: Effects, name: str) -> None:
    key = fresh_key()
    first = tasks[name].delay(key, result=[1, "two"])
    assert value(first) == [1, "two"]
    assert value(tasks[name].delay(key, result=[1, "two"])) == [1, "two"]
    assert effects.count("effects", key) == 1


def test_a_result_is_stored_in_the_step_that_records_its_work(tasks: Any, effects: Effects) -> None:
    """Red where the worker's own `Task.__call__` is taken for somebody's: Celery stores it then."""
    key = fresh_key()
    result = tasks["once"].delay(key, result=[1, "two"])
    assert value(result) == [1, "two"]
    name = idempotency_key({"key": key}, namespace="once")
    assert effects.client.hget(f"fencekit:{{{name}}}:idem", "published") == f"{result.id} ".encode()


@red("plain")
def test_duplicates_at_the_same_time_have_one_effect(
    tasks: Any, effects: Effects, name: str
) -> None:
    key = fresh_key()
    results = [tasks[name].delay(key, [["sleep", 0.5]], 7) for _ in range(4)]
    assert [value(result) for result in results] == [7] * 4
    assert effects.count("effects", key) == effects.most(key) == 1


@red("guessed")
def test_a_chain_goes_on_with_the_value_of_a_replay(
    tasks: Any, effects: Effects, name: str
) -> None:
    key, end = fresh_key(), fresh_key()
    assert value(tasks[name].delay(key, [], {"a": 1})) == {"a": 1}
    steps = chain(tasks[name].s(key, [], {"a": 1}), tasks["collect"].s(end))
    assert value(steps.delay()) == {"a": 1}
    assert effects.all("collected", end) == ["{'a': 1}"]
    assert effects.count("effects", key) == 1


@red("guessed")
def test_celery_5306_a_chord_gets_real_values_once(tasks: Any, effects: Effects, name: str) -> None:
    keys, end = [fresh_key() for _ in range(3)], fresh_key()
    busy = tasks[name].delay(keys[0], [["sleep", 0.8]], 0)
    effects.wait("runs", keys[0])
    header = [tasks[name].s(key, [["sleep", 0.8]], at) for at, key in enumerate(keys)]
    chord(header)(tasks["collect"].s(end))
    effects.wait("collected", end, timeout=PATIENCE)
    assert value(busy) == 0
    assert effects.all("collected", end) == ["[0, 1, 2]"]
    assert [effects.count("effects", key) for key in keys] == [1, 1, 1]


@red("guessed")
def test_a_group_of_duplicates_has_all_its_results(tasks: Any, effects: Effects, name: str) -> None:
    key = fresh_key()
    result = group(tasks[name].s(key, [], "x") for _ in range(5)).apply_async()
    eventually(result.ready, PATIENCE, interval=0.02)
    assert result.get() == ["x"] * 5
    assert effects.count("effects", key) == 1


@red("plain")
def test_the_same_message_once_more_is_ignored(tasks: Any, effects: Effects, name: str) -> None:
    key, end = fresh_key(), fresh_key()
    callback = tasks["collect"].s(end)
    for result in copies(tasks[name], key, 3, steps=[["sleep", 0.2]], result=5):
        assert value(result) == 5
    assert effects.count("effects", key) == 1
    # And with a callback, which must be sent once.
    key = fresh_key()
    one = tasks[name].apply_async((key, [], 6), link=callback)
    effects.wait("collected", end)
    tasks[name].apply_async((key, [], 6), link=callback, task_id=one.id)
    after = tasks["plain"].delay(fresh_key())
    value(after)
    time.sleep(0.3)  # a copy that does run is given the time to
    assert effects.all("collected", end) == ["6"]


@red("guessed")
def test_celery_singleton_20_a_retry_of_its_own_runs(
    tasks: Any, effects: Effects, name: str
) -> None:
    key = fresh_key()
    assert value(tasks[name].delay(key, [["retry", 3]], "done"), 15) == "done"
    assert effects.count("runs", key) == 3
    assert effects.count("effects", key) == 1


@pytest.mark.parametrize(("name", "word"), [("once", "retry"), ("auto", "fail")])
def test_a_quick_retry_never_loses_its_result(
    tasks: Any, effects: Effects, pool: str, name: str, word: str
) -> None:
    if pool == "solo":
        pytest.skip("one at a time: a retry begins when the run before it is over")
    # Celery sends a retry before it writes the state RETRY, which then may come over a SUCCESS.
    # Red where the attempt ends before that: the result stays in RETRY for ever.
    key = fresh_key()
    effects.client.set("slow-retry", 1)
    result = tasks[name].delay(key, [[word, 2 if word == "retry" else 1]], "done")
    effects.wait("effects", key)
    time.sleep(2.5)  # outlasts the state RETRY, which is held up for 2 s
    assert not effects.client.exists("slow-retry")
    assert value(result) == "done"
    assert effects.count("effects", key) == 1


@pytest.mark.slow
def test_a_copy_gives_the_holder_time_to_publish(tasks: Any, effects: Effects, pool: str) -> None:
    if pool == "solo":
        pytest.skip("one at a time: no copy runs while the result is published")
    # Red without `give_time_to_publish`: the next step of the chain is sent twice.
    # What another test has sent may not be acknowledged yet, and is not to be delivered again.
    eventually(lambda: not effects.client.hlen("unacked"), PATIENCE)
    key, end = fresh_key(), fresh_key()
    effects.client.set(f"slow-publish:{end}", 1)
    chain(tasks["once"].s(key, [], 1), tasks["collect"].s(end)).delay()
    effects.wait("effects", key)
    time.sleep(0.3)  # the work is done, and its result not sent yet: that takes 2.5 s
    assert effects.redeliver() == 1
    effects.wait("collected", end)
    eventually(lambda: not effects.client.hlen("unacked"), PATIENCE)
    time.sleep(3)  # outlasts the pause of the copy that came back
    assert effects.all("collected", end) == ["1"]
    assert effects.count("runs", key) == 1


@pytest.mark.parametrize("name", ["auto", pytest.param("autoplain", marks=RED)])
def test_autoretry_runs_again_and_counts(tasks: Any, effects: Effects, name: str) -> None:
    key = fresh_key()
    task = tasks[name]
    assert value(task.apply_async((key, [["fail", 2]], "done"))) == "done"
    assert effects.count("runs", key) == 3


def test_autoretry_does_not_eat_our_own_signals(tasks: Any, effects: Effects, pool: str) -> None:
    if pool == "solo":
        pytest.skip("one at a time: nobody ever waits for another")
    key = fresh_key()
    holder = tasks["auto"].delay(key, [["sleep", 3]], 1)
    effects.wait("runs", key)
    busy = tasks["auto"].delay(key, [["sleep", 3]], 1)
    with pytest.raises(StillBusy):
        value(busy)
    assert value(holder) == 1
    with pytest.raises(IdempotencyPayloadMismatch):
        value(tasks["auto"].delay(key, [], 1))
    assert effects.count("runs", key) == 1


@pytest.mark.parametrize("name", ["patient", pytest.param("retrying", marks=RED)])
def test_dramatiq_257_waiting_spends_no_retries(
    tasks: Any, effects: Effects, pool: str, name: str
) -> None:
    if pool == "solo":
        pytest.skip("one at a time: nobody ever waits for another")
    key = fresh_key()
    holder = tasks[name].delay(key, [["sleep", 4]], 1)
    effects.wait("runs", key)
    waiting = tasks[name].delay(key, [["sleep", 4]], 1)
    assert value(holder) == value(waiting) == 1
    assert effects.count("runs", key) == 1


@red("guessed")
def test_payload_mismatch_does_nothing(tasks: Any, effects: Effects, name: str) -> None:
    key = fresh_key()
    assert value(tasks[name].delay(key, [], 5)) == 5
    errors = fresh_key()
    callback = tasks["errback"].s(key=errors)
    other = tasks[name].apply_async((key, [], 500), link_error=callback)
    eventually(other.ready, PATIENCE, interval=0.02)
    assert isinstance(other.result, IdempotencyPayloadMismatch)
    effects.wait("errors", errors)
    assert value(tasks[name].delay(key, [], 5)) == 5
    assert effects.count("effects", key) == 1


@red("leased")
def test_powertools_5705_an_identical_replay_is_no_mismatch(
    tasks: Any, effects: Effects, name: str
) -> None:
    key, payload = fresh_key(), {"amount": "5.00", "lines": [1, 2]}
    for _ in range(3):
        assert value(tasks[name].delay(key, [], payload)) == payload
    assert effects.count("effects", key) == 1


@pytest.mark.parametrize("name", ["paused", pytest.param("leased", marks=RED)])
def test_a_pause_before_the_lock_is_taken_lets_nobody_in(
    tasks: Any, effects: Effects, pool: str, name: str
) -> None:
    if pool == "solo":
        pytest.skip("one at a time: nobody tries while another pauses")
    # Longer than the lease, which is renewed meanwhile.
    key = fresh_key()
    effects.client.set(f"pause:{key}", 1)
    first = tasks[name].delay(key, [["sleep", 0.2]], "which")
    effects.wait("paused", key)
    other = tasks[name].delay(key, [["sleep", 0.2]], "which")
    assert value(first) == value(other) == 1
    assert effects.count("runs", key) == effects.count("effects", key) == 1


def test_a_terminal_error_is_not_tried_again(tasks: Any, effects: Effects) -> None:
    key, errors = fresh_key(), fresh_key()
    callback = tasks["errback"].s(key=errors)
    first = tasks["once"].apply_async((key, [["raise", "Declined"]]), link_error=callback)
    eventually(lambda: first.state == "FAILURE", PATIENCE)
    with pytest.raises(IdempotencyFailed):
        value(tasks["once"].apply_async((key, []), link_error=callback))
    effects.wait("errors", errors, 2)
    assert effects.count("runs", key) == 1


def test_copies_are_dropped_when_asked_but_not_in_a_canvas(tasks: Any, effects: Effects) -> None:
    key, end = fresh_key(), fresh_key()
    holder = tasks["dropped"].delay(key, [["sleep", 1]], 1)
    effects.wait("runs", key)
    dropped = tasks["dropped"].delay(key, [["sleep", 1]], 1)
    linked = chain(tasks["dropped"].s(key, [["sleep", 1]], 1), tasks["collect"].s(end)).delay()
    assert value(holder) == 1
    assert value(linked) == 1
    assert dropped.state == "PENDING"
    assert effects.count("runs", key) == 1


def test_a_coarser_lock_lets_one_at_a_time(tasks: Any, effects: Effects) -> None:
    keys = [f"same-{fresh_key()}" for _ in range(3)]
    results = [tasks["locked"].delay(key, [["sleep", 0.4]], 1) for key in keys]
    assert [value(result) for result in results] == [1, 1, 1]
    assert [effects.count("effects", key) for key in keys] == [1, 1, 1]


@red("plain")
def test_what_cannot_be_kept_is_not_done_again(tasks: Any, effects: Effects, name: str) -> None:
    key = fresh_key()
    for _ in range(3):
        result = tasks[name].delay(key, [["open"]])
        with pytest.raises(Exception, match=r"seriali|written"):
            value(result)
    assert effects.count("effects", key) == 1


@pytest.mark.parametrize("name", ["guarded", pytest.param("plain", marks=RED)])
def test_a_decimal_of_a_guard_is_not_worked_out_again(
    tasks: Any, effects: Effects, name: str
) -> None:
    """The guard keeps JSON, which has no Decimal: the first run has it, a marker stays."""
    key = fresh_key()
    assert value(tasks[name].delay(key, [["decimal"]])) == Decimal("9.50")
    again = [tasks[name].delay(key, [["decimal"]]) for _ in range(3)]
    for copy in again:
        eventually(copy.ready, PATIENCE)
    assert effects.count("effects", key) == 1
    for copy in again:
        with pytest.raises(Exception, match="could not be written as JSON"):
            value(copy)


@pytest.mark.parametrize("name", ["unique", pytest.param("plain", marks=RED)])
def test_unique_task_sends_one_message_until_it_has_run(
    tasks: Any, effects: Effects, name: str
) -> None:
    key = fresh_key()
    first = tasks[name].apply_async((key, [["sleep", 1]], 1), countdown=0.5)
    # On its way, and while it runs.
    for kind in ("sent", "runs"):
        if kind == "runs":
            effects.wait("runs", key)
        assert tasks[name].delay(key, [["sleep", 1]], 1).id == first.id
    place = f"fencekit:{{{idempotency_key({'key': key}, namespace='unique')}}}:unique"
    assert effects.client.exists(place)
    assert value(first) == 1
    assert effects.count("runs", key) == 1
    # Its place is free when it is done, a moment after its result is there.
    eventually(lambda: not effects.client.exists(place), 5)
    again = tasks[name].delay(key, [["sleep", 1]], 1)
    assert again.id != first.id
    assert value(again) == 1
    assert effects.count("effects", key) == 1


@pytest.mark.parametrize("word", ["ignore", "reject"])
def test_ignore_and_reject_are_no_failures(tasks: Any, effects: Effects, word: str) -> None:
    key = fresh_key()
    for _ in range(4):
        tasks["capped"].apply_async((key, [[word]]))
    effects.wait("runs", key, 4)


def test_a_message_that_waits_keeps_all_it_carries(tasks: Any, effects: Effects, pool: str) -> None:
    if pool == "solo":
        pytest.skip("one at a time: nobody ever waits for another")
    key, end = fresh_key(), fresh_key()
    holder = tasks["once"].delay(key, [["sleep", 1.5]], 1)
    effects.wait("runs", key)
    waiting = tasks["once"].apply_async(
        (key, [["sleep", 1.5]], 1),
        link=tasks["collect"].s(end),
        headers={"tenant": "blue"},
        expires=3600,
        time_limit=77,
        soft_time_limit=66,
        priority=3,
        stamped_headers=["batch"],
        batch="b-1",
        shadow="shadow",
    )
    worker = effects.client

    def seen() -> Any:
        for raw in worker.hvals("unacked"):
            if waiting.id.encode() in raw and b"fencekit_deferred" in raw:
                return raw.decode()
        return None

    raw = eventually(seen, 15)
    for part in ('"tenant": "blue"', "[77, 66]", '"b-1"', '"shadow"', '"priority": 3'):
        assert part in raw, part
    assert '"parent_id": null' in raw
    assert '"expires": null' not in raw
    assert '"retries": 0' in raw
    assert value(holder) == value(waiting) == 1
    effects.wait("collected", end)
    assert effects.count("effects", key) == 1
