"""The demo, as a user runs it: with the library, without it, interrupted, and fed with rubbish."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from demo import generate
from demo.audit import Findings, examine
from demo.broker import Broker
from demo.deliveries import BadInput, read
from demo.faults import Action, Faults
from demo.ledger import Ledger, StaleRow
from fencekit import FenceToken
from harness.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from demo.deliveries import Event

TESTS = Path(__file__).parents[1]
GOOD: dict[str, Any] = {
    "delivery": {"id": "dlv_1", "attempt": 1},
    "id": "evt_1",
    "type": "payment.succeeded",
    "created": 1767571200,
    "data": {
        "object": {
            "id": "pay_1",
            "account": "acct_1",
            "amount": 4200,
            "currency": "eur",
            "status": "succeeded",
        }
    },
}


def start(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-m", "demo", *arguments],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "100", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(*arguments: str) -> tuple[int, str, str]:
    with start(*arguments) as demo:
        out, errors = demo.communicate(timeout=100)
    return demo.returncode, out, errors


def number(table: str, row: str) -> int:
    found = re.search(rf"{re.escape(row)}\D*│\s*([\d,]+)\s*│", table)
    assert found, f"no row {row!r} in\n{table}"
    return int(found[1].replace(",", ""))


def test_every_event_takes_effect_once_although_workers_are_killed_and_frozen() -> None:
    status, out, errors = run("--limit", "200")

    assert status == 0, out + errors
    assert "Exactly once" in out
    assert number(out, "deliveries") == 200
    assert number(out, "events") == number(out, "effects")
    assert number(out, "runs") > number(out, "effects")
    assert number(out, "replays answered from the record") > 0
    assert number(out, "answered from the ledger") > 0
    assert number(out, "reclaims") > 0
    assert number(out, "leases lost") > 0
    assert number(out, "stale writes refused by the ledger") > 0
    assert number(out, "stale writes refused by the gate") > 0
    assert number(out, "conflicts") > 0
    assert number(out, "between COMMIT and complete") == 8
    for word in ("SIGSTOP, before its write", "reclaims the event", "SIGCONT", "lease is lost"):
        assert word in out
    assert re.search(r"ledger refuses token \d{16}: \d{16} is known", out)
    assert re.search(r"gate refuses token \d{16}: \d{16} is known", out)


@pytest.mark.slow
def test_without_the_library_the_same_faults_do_damage() -> None:
    status, out, errors = run("--no-fencekit", "--limit", "200")

    assert status == 1, out + errors
    assert "NOT exactly once" in out
    assert "events took effect again" in out
    assert "contradicts the first" in out
    assert "balances are wrong" in out
    assert "writes of a woken worker went through" in out
    assert number(out, "effects") > number(out, "events")


def test_a_single_delivery_is_enough() -> None:
    status, out, _ = run("--limit", "1", "--workers", "2")

    assert status == 0
    assert number(out, "effects") == 1


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
@pytest.mark.parametrize("how", ["ctrl-c", "kill"])
def test_an_interrupted_demo_leaves_no_process_behind(how: str) -> None:
    mark = uuid.uuid4().hex
    # A shell's background job ignores Ctrl-C, and so would what it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        demo = start("--limit", "100", env={"DEMO_MARK": mark})
    finally:
        signal.signal(signal.SIGINT, before)
    with demo:
        assert demo.stdout is not None
        while "SIGSTOP" not in demo.stdout.readline():
            assert demo.poll() is None
        assert len(processes(mark)) > 5
        if how == "ctrl-c":
            os.killpg(demo.pid, signal.SIGINT)  # as a terminal does: all of them get it
        else:
            demo.terminate()
        _, errors = demo.communicate(timeout=20)

    assert demo.returncode == 130
    assert errors == "demo: interrupted\n"
    eventually(lambda: not processes(mark))


def processes(mark: str) -> list[str]:
    """The processes that have inherited the mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in entry.read_bytes():
                found.append(entry.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        pytest.param("{", "is not JSON", id="not JSON"),
        pytest.param(b"\xff\xfe", "is not UTF-8", id="not UTF-8"),
        pytest.param("[" * 100_000, "is not JSON", id="too deep"),
        pytest.param("[]", "not an object", id="array"),
        pytest.param({"id": None}, "id must be a string", id="null id"),
        pytest.param({"id": ""}, "id must be 1 to 64 letters", id="empty id"),
        pytest.param({"id": "evt 1"}, "id must be 1 to 64 letters", id="id with a space"),
        pytest.param({"type": "payment.lost"}, "type is 'payment.lost'; known are", id="type"),
        pytest.param({"created": "now"}, "created must be a whole number", id="created"),
        pytest.param({"created": True}, "created must be a whole number", id="true"),
        pytest.param({"created": -1}, "created must be between 0 and", id="negative"),
        pytest.param({"created": 1.0}, "created must be a whole number", id="float"),
        pytest.param({"created": 10**30}, "created must be between 0 and", id="huge"),
        pytest.param({"delivery": 7}, "delivery must be an object", id="delivery"),
        pytest.param({"data": {}}, "data.object is missing", id="no object"),
        pytest.param({"data": {"object": {}}}, "data.object.id is missing", id="no object id"),
    ],
)
def test_a_line_that_is_no_delivery_is_named(
    tmp_path: Path, line: str | bytes | dict[str, Any], complaint: str
) -> None:
    if isinstance(line, dict):
        line = json.dumps({**GOOD, **line})
    file = tmp_path / "deliveries.jsonl"
    bad = line if isinstance(line, bytes) else line.encode()
    file.write_bytes(b"%s\n\n%s\n" % (json.dumps(GOOD).encode(), bad))

    with pytest.raises(BadInput) as caught:
        read(file)

    assert str(caught.value).startswith(f"{file}:3: ")
    assert complaint in str(caught.value)


def without_id(file: Path) -> None:
    file.write_text(json.dumps({k: v for k, v in GOOD.items() if k != "id"}))


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        pytest.param(lambda _: None, ": No such file or directory", id="missing"),
        pytest.param(Path.mkdir, ": Is a directory", id="folder"),
        pytest.param(Path.touch, ": there are no deliveries in it", id="empty"),
        pytest.param(without_id, ":1: id is missing", id="event without an id"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_status_2(
    tmp_path: Path, prepare: Callable[[Path], object], complaint: str
) -> None:
    file = tmp_path / "deliveries.jsonl"
    prepare(file)

    assert run(str(file)) == (2, "", f"demo: {file}{complaint}\n")


@pytest.mark.parametrize("option", ["--workers=1", "--limit=0", "--limit=x"])
def test_options_that_make_no_sense_are_refused(option: str) -> None:
    status, _, errors = run(option)

    assert status == 2
    assert option.split("=", maxsplit=1)[0] in errors


def test_the_shipped_file_is_what_the_generator_makes() -> None:
    shipped = generate.FILE.read_text(encoding="utf-8").splitlines()

    assert shipped == list(generate.lines())
    deliveries = read(generate.FILE)
    first = {d.event.id: d.event for d in reversed(deliveries)}
    assert (len(deliveries), len(first)) == (2000, 1200)
    assert sum(d.event != first[d.event.id] for d in deliveries) == 40
    assert [d.event.created for d in deliveries] != sorted(d.event.created for d in deliveries)


def test_all_faults_are_due_before_the_deliveries_run_out() -> None:
    for deliveries in (20, 250, 2000):
        faults = Faults(deliveries, seed=3)
        armed = []
        while fault := faults.arm(deliveries * 3 // 4, may_freeze=True):
            armed.append(fault)
        assert [fault.after for fault in armed] == sorted(fault.after for fault in armed)
        assert sum(fault.action is Action.FREEZE for fault in armed) == 2
        assert len(armed) == max(10, deliveries // 125)


def test_a_second_freeze_waits_for_the_first() -> None:
    faults = Faults(20, seed=1)
    freezes = 0
    while fault := faults.arm(20, may_freeze=False):
        freezes += fault.action is Action.FREEZE

    assert freezes == 0
    assert faults.arm(20, may_freeze=True)


def test_a_delivery_comes_again_until_it_is_acknowledged() -> None:
    deliveries = read(generate.FILE, limit=2)
    broker = Broker(deliveries, visibility=1.0)

    assert broker.take(now=0.0) == deliveries[0]
    assert broker.take(now=0.5) == deliveries[1]
    assert broker.take(now=0.9) is None
    assert broker.wakes_at() == 1.0
    assert broker.take(now=1.0) == deliveries[0]
    assert broker.timed_out == [0]
    broker.defer(0, due=1.2)
    assert broker.take(now=1.1) is None
    assert broker.take(now=1.2) == deliveries[0]
    assert broker.acknowledge(0)
    assert not broker.acknowledge(0)
    assert broker.take(now=1.5) == deliveries[1]
    assert broker.acknowledge(1)
    assert broker.done
    assert broker.take(now=9.0) is None


class Books:
    """A ledger of the first two shipped deliveries of one account, and balances in Redis."""

    def __init__(self, folder: Path) -> None:
        deliveries = read(generate.FILE)
        balance = deliveries[0].event.balance
        events = {d.event.id: d for d in deliveries if d.event.balance == balance}
        self.deliveries = list(events.values())[:2]
        self.first, self.second = (d.event for d in self.deliveries)
        self.path = folder / "ledger.sqlite3"
        self.ledger = Ledger.create(self.path, [balance])
        self.mirror: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.mirror.get(key)

    def token(self, value: int) -> FenceToken:
        return FenceToken(value, resource=f"account:{self.first.balance}")

    def post(self, token: int, event: Event, *, read: int | None = None) -> dict[str, Any]:
        amount = self.ledger.enter_account(self.token(token), event.balance)
        amount = (amount if read is None else read) + event.change
        self.ledger.enter_event(FenceToken(token, resource=f"webhook:{event.id}"), event.id)
        result = self.ledger.post(self.token(token), event, amount)
        self.mirror[f"balance:{event.balance}"] = b"%d" % amount
        return result

    def findings(self, *answers: dict[str, Any]) -> Findings:
        redis: Any = self
        return examine(self.path, redis, self.deliveries, {self.first.id: answers})


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    books = Books(tmp_path)
    yield books
    books.ledger.close()


def test_the_audit_passes_what_happened_once(books: Books) -> None:
    result = books.post(5, books.first)
    books.post(6, books.second)

    assert books.findings(result, result).exactly_once


def test_the_audit_misses_an_effect(books: Books) -> None:
    books.post(5, books.first)

    assert books.findings().missing == 1
    assert not books.findings().exactly_once


def test_the_audit_sees_a_second_effect(books: Books) -> None:
    books.post(5, books.first)
    books.post(6, books.second)
    books.post(7, books.first)

    found = books.findings()
    assert (found.doubled, found.extra, found.wrong_balances, found.overwritten) == (1, 1, 1, 0)
    assert not found.exactly_once


def test_the_audit_sees_a_lost_update(books: Books) -> None:
    books.post(5, books.first)
    books.post(6, books.second, read=0)

    assert (books.findings().overwritten, books.findings().doubled) == (1, 0)
    assert not books.findings().exactly_once


def test_the_audit_sees_another_payload(books: Books) -> None:
    books.post(5, books.first)
    books.post(6, replace(books.second, amount=1))

    assert books.findings().invented == 1
    assert not books.findings().exactly_once


def test_the_audit_sees_answers_and_balances_that_differ(books: Books) -> None:
    result = books.post(5, books.first)
    books.post(6, books.second)
    books.mirror.clear()

    found = books.findings(result, {**result, "amount": 0})
    assert (found.answers, found.mirrors) == (1, 1)
    assert not found.exactly_once


def test_the_audit_sees_a_fence_that_went_down(books: Books) -> None:
    books.post(6, books.first)
    with closing(sqlite3.connect(books.path)) as db, db:
        db.execute("UPDATE accounts SET fence = 0")
    books.post(5, books.second)

    assert books.findings().fences_down == 1
    assert not books.findings().exactly_once


def test_the_ledger_refuses_whoever_has_been_replaced(books: Books) -> None:
    event = books.first
    old, new = books.token(5), books.token(6)
    books.ledger.enter_account(old, event.balance)
    # The successor has only read so far, and the predecessor is refused already.
    books.ledger.enter_account(new, event.balance)

    with pytest.raises(StaleRow) as caught:
        books.ledger.post(old, event, event.change)
    assert (caught.value.token, caught.value.current) == (5, 6)
    with pytest.raises(StaleRow):
        books.ledger.enter_account(old, event.balance)
    books.ledger.enter_event(FenceToken(9, resource="webhook:e"), event.id)
    with pytest.raises(StaleRow):
        books.ledger.enter_event(FenceToken(8, resource="webhook:e"), event.id)
