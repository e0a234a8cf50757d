"""A result that is to be stored with its record, where something else has been written or fails."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from threading import Timer
from typing import Any

import pytest
from celery import Celery, Task, states
from celery.backends.redis import RedisBackend

from fencekit import IdempotencyGuard, idempotency_key
from fencekit.celery import configure, idempotent_task
from fencekit.drivers.delivery import WireLost
from fencekit.drivers.sync import SyncDriver
from harness.by_hand import Hand, meta, send
from harness.clients import opened
from harness.conditions import forbidden
from harness.servers import Server
from harness.workers import close_app

# Celery 5.6 with redis-py 8.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")


@pytest.fixture
def results(redis_url: str) -> str:
    """They are where the records are."""
    return redis_url


@pytest.fixture
def own(fresh_server: Server) -> Iterator[Any]:
    """Give an app on a server that a test may configure."""
    app: Any = Celery(
        "hand", broker=fresh_server.url, backend=fresh_server.url, set_as_current=False
    )
    app.conf.update(
        task_acks_late=True,
        # Celery's own way need not be waited for.
        result_backend_transport_options={"retry_policy": {"max_retries": 0}},
    )
    with opened(fresh_server.url) as client:
        configure(app, redis=client)
        yield app
    gc.collect()  # results unsubscribe when they go, and need their server for that
    close_app(app)


def once(app: Any, body: Callable[[Any, str], Any] = lambda _self, name: [name]) -> Any:
    """A task that returns what it is given, or what is said."""

    @app.task(bind=True, name="once", shared=False)
    @idempotent_task(key="name")
    def once(self: Any, name: str) -> Any:
        return body(self, name)

    return once


SETTINGS: dict[str, dict[str, Any]] = {
    "as by default": {},
    "pickled": {"result_serializer": "pickle", "accept_content": ["json", "pickle"]},
    "compressed": {"result_compression": "gzip"},  # by Celery 5.7
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_success_that_is_there_is_not_written_over(
    app: Any, hand: Hand, settings: dict[str, Any]
) -> None:
    """As by Celery. Red where it is."""
    app.conf.update(settings)

    def body(self: Any, name: str) -> str:
        self.update_state(state=states.SUCCESS, meta="first")
        return name

    message = send(once(app, body).s("second"))
    hand.step()
    assert meta(app, message)["result"] == "first"


def test_a_state_that_is_no_success_is_written_over_in_the_same_step(
    app: Any, hand: Hand, writes: list[str]
) -> None:
    app.conf.task_track_started = True
    message = send(once(app).s("a"))
    hand.step()
    assert meta(app, message)["result"] == ["a"]
    assert len(writes) == 1


@pytest.mark.parametrize("state", [states.STARTED, "PROGRESS"])
def test_a_state_that_was_written_over_the_result_gives_way_to_it(
    app: Any, hand: Hand, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Red where a message that is on record as published is dropped: its result never comes back.

    A copy of the message looks, and writes what it has to say only when the result is there.
    """
    message = send(once(app).s("a"))
    taken = hand.take()
    plain, left = RedisBackend._set_with_state, [1]

    def late(self: Any, key: Any, value: Any, written: str) -> Any:
        if written == state and left:
            left.pop()
            hand.run(taken)
        return plain(self, key, value, written)

    monkeypatch.setattr(RedisBackend, "_set_with_state", late)
    app.backend.store_result(message, None, state)
    assert meta(app, message)["status"] == state
    hand.run(taken, redelivered=True)
    assert meta(app, message)["result"] == ["a"]


def test_a_result_that_breaks_its_connection_does_not_undo_its_record(
    app: Any, hand: Hand, redis_client: Any, writes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As longer than a proxy lets through. Red where it is sent until it is too late."""
    plain = SyncDriver._send_copy

    def cut(self: Any, delivery: Any) -> Any:
        if delivery.operation.script.name == "claim_announce":
            delivery.leaving(time.monotonic())
            raise WireLost("cut", sent=True)
        return plain(self, delivery)

    monkeypatch.setattr(SyncDriver, "_send_copy", cut)
    message = send(once(app).s("a"))
    hand.step()
    name = idempotency_key({"name": "a"}, namespace="once")
    status = IdempotencyGuard(redis_client).status(name)
    assert status is not None
    assert status.state.value == "done"
    assert meta(app, message)["result"] == ["a"]
    assert writes == [message]


def test_a_long_result_is_left_to_celery(app: Any, hand: Hand, writes: list[str]) -> None:
    """Red where the server has copies of it in the memory of its scripts."""
    task = once(app, lambda _self, name: "x" * int(name))
    lengths = [1_000_000, 1_100_000]
    messages = [send(task.s(str(length))) for length in lengths]
    for _ in messages:
        hand.step()
    assert [len(meta(app, message)["result"]) for message in messages] == lengths
    assert writes == messages[1:]


def test_an_answer_that_is_lost_does_not_end_it(
    app: Any, hand: Hand, writes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red where whatever is not known to be announced is taken for refused."""
    plain, left = SyncDriver._send_copy, [1]

    def lossy(self: Any, delivery: Any) -> Any:
        answer = plain(self, delivery)
        if delivery.operation.script.name == "claim_announce" and left:
            left.pop()
            raise WireLost("cut", sent=True)
        return answer

    task = once(app)
    for name in "ab":  # the server knows the script by then
        if name == "b":
            monkeypatch.setattr(SyncDriver, "_send_copy", lossy)
        send(task.s(name))
        hand.step()
    assert not left
    writes.clear()
    message = send(task.s("c"))
    hand.step()
    assert meta(app, message)["result"] == ["c"]
    assert writes == []


def test_a_server_that_refuses_everything_for_a_moment_does_not_end_it(
    own: Any, fresh_server: Server, writes: list[str]
) -> None:
    """Red where any refusal is taken for one of the two together."""

    def body(_self: Any, name: str) -> list[str]:
        if name == "a":
            fresh_server.call("REPLICAOF", "127.0.0.1", 1)  # read-only, as by a failover
            Timer(0.2, lambda: fresh_server.call("REPLICAOF", "NO", "ONE")).start()
        return [name]

    hand, task = Hand(own), once(own, body)
    messages = [send(task.s(name)) for name in "ab"]
    for _ in messages:
        hand.step()
    assert [meta(own, message)["result"] for message in messages] == [["a"], ["b"]]
    assert len(writes) == 1


def test_what_was_refused_is_tried_again_after_a_while(
    app: Any, hand: Hand, redis_client: Any, writes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red where one refusal ends it for as long as the process lives."""
    monkeypatch.setattr("fencekit.celery.results._REFUSED", 0.001)
    task = once(app)
    with forbidden(redis_client, "set"):
        send(task.s("a"))
        hand.step()
    time.sleep(0.002)  # that while
    assert len(writes) == 1
    message = send(task.s("b"))
    hand.step()
    assert meta(app, message)["result"] == ["b"]
    assert len(writes) == 1


def test_a_message_is_not_taken_for_one_whose_id_has_its_own_as_a_word(
    app: Any, hand: Hand
) -> None:
    """Red where it is: its result never comes."""
    task = once(app)
    for message in ("daily report", "report"):
        send(task.s("a"), task_id=message)
        hand.step()
        assert meta(app, message)["result"] == ["a"]


def test_a_client_that_chooses_its_database_as_it_connects_is_not_taken_for_the_results(
    app: Any, hand: Hand, redis_url: str
) -> None:
    """Red where the result is stored in the other database, and lost."""

    def elsewhere(connection: Any) -> None:
        connection.on_connect()
        connection.send_command("SELECT", 1)
        connection.read_response()

    with opened(redis_url, redis_connect_func=elsewhere) as client:
        configure(app, redis=client)
        message = send(once(app).s("a"))
        hand.step()
    assert meta(app, message)["result"] == ["a"]


def test_whoever_patches_the_class_of_all_tasks_has_the_result_changed(
    app: Any, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some agents do. Red where what the body returned is stored."""
    plain = Task.__call__

    def loud(self: Any, *args: Any) -> list[str]:
        return [*plain(self, *args), "!"]

    monkeypatch.setattr(Task, "__call__", loud)
    message = send(once(app).s("a"))
    hand.step()
    assert meta(app, message)["result"] == ["a", "!"]
