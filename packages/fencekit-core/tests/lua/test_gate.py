"""The gate: which token may write, with and without a record. protocol.md §3, last paragraph.

Each test is shown failing on the script without its rule (harness/broken.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fencekit.keys import names
from fencekit.protocol import fence
from fencekit.protocol.fence import Passed, Stale
from fencekit.protocol.token import FenceToken
from harness import broken
from harness.broken import bites

if TYPE_CHECKING:
    from harness.claims import Record
    from harness.lab import Lab

WRITES = ["set", "delete", "hset", "advance"]
EVERYTHING = [*WRITES, "check"]

# -- with a record ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", EVERYTHING)
def test_the_holder_may_write(lab: Lab, how: str) -> None:
    assert lab.passes(lab.acquire().token, how)


@bites(broken.STALE_IS_REFUSED)
@pytest.mark.parametrize("how", EVERYTHING)
def test_a_stale_holder_is_refused_as_soon_as_its_successor_is_granted(lab: Lab, how: str) -> None:
    old = lab.acquire()
    lab.lapse()
    new = lab.acquire("you")
    before = lab.state
    assert not lab.passes(old.token, how, value="stale")
    assert lab.state == before
    assert lab.passes(new.token, how)


@bites(broken.STALE_IS_REFUSED)
@pytest.mark.parametrize("how", EVERYTHING)
def test_a_stale_holder_is_refused_after_its_successor_has_gone(lab: Lab, how: str) -> None:
    old = lab.acquire()
    lab.lapse()
    lab.release(lab.acquire("you"))
    assert not lab.passes(old.token, how)


def test_a_refusal_says_which_token_is_known(lab: Lab) -> None:
    old = lab.acquire()
    lab.lapse()
    new = lab.acquire("you")
    judgement = lab.do(lab.write(old.token, "set"))
    assert judgement == Stale(int(new.token))


def test_a_holder_may_write_until_it_is_replaced(lab: Lab) -> None:
    grant = lab.acquire()
    lab.release(grant)
    assert lab.passes(grant.token), "nobody has come since"


def test_a_fence_that_was_advanced_shuts_the_holder_out(lab: Lab) -> None:
    grant = lab.acquire()
    lab.advance(int(grant.token) + 1)
    assert not lab.passes(grant.token)
    assert lab.release(grant).name == "RELEASED"


@bites(broken.WRITES_ARE_NOTED)
@pytest.mark.parametrize("how", ["set", "delete", "hset"])
def test_a_write_shuts_out_every_older_token(lab: Lab, how: str) -> None:
    low = int(lab.acquire().token)
    lab.lapse()
    assert lab.passes(low + 10, how)
    assert not lab.passes(low + 9, how)
    assert lab.record["last"] == str(low + 10)


@bites(broken.ADVANCE_IS_NOTED)
def test_check_and_advance_shuts_out_every_older_token(lab: Lab) -> None:
    low = int(lab.acquire().token)
    lab.lapse()
    assert lab.passes(low + 10, "advance")
    assert not lab.passes(low + 9, "check")


@bites(broken.CHECK_IS_NOT_NOTED)
def test_check_changes_nothing(lab: Lab) -> None:
    low = int(lab.acquire().token)
    lab.lapse()
    before = lab.state
    assert lab.passes(low + 10, "check")
    assert lab.state == before


def test_an_ordinary_write_leaves_the_record_alone(lab: Lab) -> None:
    grant = lab.acquire()
    lab.client.pexpire(lab.names.fence, 5_000)
    before = lab.record
    lab.passes(grant.token)
    assert lab.record == before
    assert lab.client.pttl(lab.names.fence) <= 5_000


# -- the token in the lock ------------------------------------------------------------------------


@bites(broken.TOKEN_OF_THE_LOCK_COUNTS)
@pytest.mark.parametrize("how", EVERYTHING)
def test_the_token_in_the_lock_counts_where_the_record_is_behind(lab: Lab, how: str) -> None:
    old = lab.acquire()
    lab.lapse()
    lab.acquire("you")
    lab.client.hset(lab.names.fence, "last", int(old.token))
    assert not lab.passes(old.token, how)


@bites(broken.CURRENT_COUNTS_THE_LOCK)
def test_the_highest_token_known_is_also_that_of_the_lock(lab: Lab) -> None:
    assert lab.current() is None
    grant = lab.acquire()
    assert lab.current() == int(grant.token)
    lab.lose_record()
    assert lab.current() == int(grant.token)
    lab.lapse()
    assert lab.current() is None


# -- without a record -----------------------------------------------------------------------------


@bites(broken.FAILS_CLOSED)
@pytest.mark.parametrize("how", EVERYTHING)
def test_without_a_record_it_fails_closed(lab: Lab, how: str) -> None:
    grant = lab.acquire()
    lab.lapse()
    lab.lose_record()
    before = lab.state
    assert lab.do(lab.write(grant.token, how)) == Stale(None)
    assert lab.state == before


@pytest.mark.parametrize("how", EVERYTHING)
def test_without_a_record_only_the_token_of_the_lock_may_write(lab: Lab, how: str) -> None:
    old = lab.acquire()
    lab.lapse()
    new = lab.acquire("you")
    lab.lose_record()
    assert not lab.passes(old.token, how)
    assert not lab.passes(int(new.token) + 1, how), "nor one that nobody was granted"
    assert lab.passes(new.token, how)


@pytest.mark.parametrize("how", WRITES)
def test_a_write_of_the_holder_brings_the_record_back(lab: Lab, how: str) -> None:
    grant = lab.acquire()
    before = lab.record
    lab.lose_record()
    assert lab.passes(grant.token, how)
    assert lab.record == before
    assert lab.client.pttl(lab.names.fence) > 0


def test_of_a_name_nobody_ever_locked_no_token_may_write(lab: Lab) -> None:
    assert lab.do(lab.write(lab.token(7), "set")) == Stale(None)


def test_a_foreign_value_in_the_lock_is_no_token(lab: Lab) -> None:
    lab.client.set(lab.names.lock, "somebody else's")
    assert not lab.passes(7)
    assert lab.current() is None


# -- remote -------------------------------------------------------------------------------------


@bites(broken.REMOTE_TAKES_THE_FIRST)
@pytest.mark.parametrize("how", EVERYTHING)
def test_a_remote_gate_takes_the_first_token_it_is_shown(lab: Lab, how: str) -> None:
    assert lab.passes(7, how, remote=True)


@bites(broken.WRITES_ARE_NOTED, broken.STALE_IS_REFUSED)
@pytest.mark.parametrize("how", ["set", "delete", "hset"])
def test_a_remote_gate_keeps_the_highest_token_it_was_shown(lab: Lab, how: str) -> None:
    for token, passes in ((7, True), (9, True), (8, False), (9, True), (10, True), (9, False)):
        assert lab.passes(token, how, remote=True) is passes
    assert lab.record["last"] == lab.record["floor"] == "10", "nothing is known of any grant"
    assert lab.client.pttl(lab.names.fence) > 0
    assert lab.current(remote=True) == 10


def test_a_remote_check_does_not_remember(lab: Lab) -> None:
    assert lab.passes(9, "check", remote=True)
    assert lab.passes(7, remote=True)


@bites(broken.REMOTE_LOOKS_AT_NO_LOCK)
def test_a_remote_gate_looks_at_no_lock_of_the_same_name(lab: Lab) -> None:
    lab.client.set(lab.names.lock, "you:abc:1700000000000001")
    assert lab.passes(7, remote=True)


def test_a_refusal_of_a_remote_gate_says_which_token_it_knows(lab: Lab) -> None:
    lab.passes(9, remote=True)
    assert lab.do(lab.write(lab.token(7), "set", remote=True)) == Stale(9)


# -- claims -------------------------------------------------------------------------------------


def claimed(record: Record, value: int) -> FenceToken:
    return FenceToken(int(value), resource=record.names.name, record="claim")


def judged(record: Record, token: FenceToken) -> object:
    operation = fence.set_value(
        "fencekit", token, 1_000, key="target", value="v", ttl_ms=0, remote=False
    )
    reply = record.client.eval(
        operation.script.source, len(operation.keys), *operation.keys, *operation.args
    )
    return operation.parse(reply)


def test_a_claims_token_is_judged_by_the_claims_own_record(record: Record) -> None:
    _, old, _ = record.begin("a")
    assert judged(record, claimed(record, old)) == Passed()
    record.lapse()
    _, new, _ = record.begin("b")
    assert judged(record, claimed(record, old)) == Stale(int(new))
    assert judged(record, claimed(record, new)) == Passed()


def test_a_claims_token_without_a_record_is_refused(record: Record) -> None:
    _, token, _ = record.begin("a")
    record.drop()
    assert judged(record, claimed(record, token)) == Stale(None)
    assert record.client.get("target") is None


def test_a_lock_of_the_same_name_says_nothing_of_a_claim(record: Record) -> None:
    record.begin("a")
    own = names("fencekit", record.names.name)
    record.client.set(own.lock, f"you:abc:{record.last + 5}")
    assert judged(record, claimed(record, record.last)) == Passed()


def test_a_claims_fence_is_one_field_of_a_hash(record: Record) -> None:
    """Core's promise to every record that carries a fence: `last` is all that the gate reads."""
    record.client.hset(record.names.idem, "last", "41")
    assert judged(record, claimed(record, 40)) == Stale(41)
    assert judged(record, claimed(record, 41)) == Passed()
    assert record.client.hgetall(record.names.idem) == {b"last": b"41"}


# -- what is written ------------------------------------------------------------------------------


def test_set_writes_the_value_and_its_ttl(lab: Lab) -> None:
    grant = lab.acquire()
    for ttl_ms in (0, 50_000):
        lab.do(
            fence.set_value(
                "fencekit", grant.token, 1, key="k", value=b"\x00\xff", ttl_ms=ttl_ms, remote=False
            )
        )
        assert lab.client.get("k") == b"\x00\xff"
        assert (lab.client.pttl("k") > 0) is bool(ttl_ms)


def test_delete_counts(lab: Lab) -> None:
    grant = lab.acquire()
    lab.client.set("k", "v")
    counts = [
        lab.do(fence.delete("fencekit", grant.token, 1, key="k", remote=False)) for _ in range(2)
    ]
    assert counts == [Passed(1), Passed(0)]


def test_hset_takes_any_number_of_fields(lab: Lab) -> None:
    grant = lab.acquire()
    mapping = {f"f{number}": str(number) for number in range(3_001)}
    lab.do(fence.hset("fencekit", grant.token, 1, key="h", mapping=mapping, remote=False))
    assert lab.client.hlen("h") == 3_001
    assert lab.client.hget("h", "f3000") == b"3000"
