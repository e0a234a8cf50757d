"""What the scripts do to the queue; `falls_without` runs a test once more with a rule taken out."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import pytest

from fencekit.fifo import protocol
from harness.conditions import out_of_memory
from harness.fifo import ALIVE, LEASE, OFFER, Queue, falls_without, make_terms


def granted(reply: list[Any]) -> int:
    assert reply[0] == 1, reply
    return int(reply[1])


def test_a_free_lock_is_granted_without_a_queue(queue: Queue) -> None:
    before = time.time()
    token = granted(queue.acquire("a"))
    assert before * 1e6 - 1e6 < token < time.time() * 1e6 + 1e6
    assert queue.queued == []
    assert LEASE - 1000 < queue.left_ms <= LEASE
    assert [key.rpartition(b":")[2] for key in sorted(queue.client.keys())] == [b"fence", b"lock"]


def test_a_look_takes_no_place(queue: Queue) -> None:
    token = granted(queue.look("a"))
    assert queue.look("b") == [0]
    assert queue.queued == []
    # A copy of the first is told the same.
    assert granted(queue.look("a")) == token


@falls_without("fifo_look", "if redis.call('EXISTS', queue) == 1 then", "if false then")
def test_a_look_does_not_overtake_the_queue(queue: Queue) -> None:
    granted(queue.acquire("a"))
    queue.acquire("b", "q")
    queue.lapse()
    assert queue.look("c") == [0]


def test_waiters_have_places_in_order_of_arrival(queue: Queue) -> None:
    granted(queue.acquire("a"))
    assert [queue.acquire(one)[5] for one in "bcd"] == [0, 1, 2]
    assert queue.queued == ["b", "c", "d"]


@falls_without(
    "fifo_acquire", "  if id then\n    return before", "  if false then\n    return before"
)
def test_a_second_copy_keeps_the_place(queue: Queue) -> None:
    granted(queue.acquire("a"))
    for one in ("b", "c", "b", "c", "b"):
        queue.acquire(one)
    assert queue.queued == ["b", "c"]
    assert queue.acquire("b")[5] == 0
    assert queue.acquire("c")[5] == 1


def test_a_release_grants_the_next_of_this_process_at_once(queue: Queue) -> None:
    token = granted(queue.acquire("a"))
    queue.acquire("b")
    queue.acquire("c")
    verdict, left, holder, _, own = queue.release("a", token)
    assert (verdict, left, own) == (1, LEASE, 1)
    assert holder.startswith("b:")
    assert queue.holder == "b"
    assert queue.queued == ["c"]
    assert queue.token > token


@falls_without("fifo_release", "turn.offer_ms, retention_ms", "turn.lease_ms, retention_ms")
def test_a_release_offers_the_lock_to_another_process(queue: Queue) -> None:
    queue.listen("q")
    token = granted(queue.acquire("a"))
    queue.acquire("b", "q")
    verdict, left, holder, now, own = queue.release("a", token)
    assert (verdict, left, own) == (1, OFFER, 0)
    assert 0 < queue.left_ms <= OFFER
    assert queue.queued == ["b"], "an offer leaves the place"
    owner, attempt, offered, granted_us, offer_ms, name = queue.messages("q")[0].split()
    assert holder == f"{owner}:{attempt}:{offered}"
    assert (owner, granted_us, offer_ms, name) == ("b", now, str(OFFER), "invoices")
    assert queue.renew("b", int(offered)) == [1, LEASE]
    assert queue.queued == []
    assert queue.left_ms > OFFER


@falls_without("fifo_release", "(heard > 0 or not turn.solo)", "true")
def test_nobody_listens_so_the_next_is_offered_it(queue: Queue) -> None:
    queue.listen("alive")
    token = granted(queue.acquire("a"))
    for index in range(10):
        queue.acquire(f"dead{index}", f"dead{index}")
    queue.acquire("b", "alive")
    queue.release("a", token)
    assert queue.holder == "b"
    assert len(queue.queued) == 11, "who does not listen now may listen soon"
    # The offers taken back are not lapsed leases: the record knows of no token but those given.
    record = queue.client.hgetall(queue.terms.names.fence)
    assert record[b"lapsed"] == b""
    assert int(record[b"open"]) == queue.token


@falls_without(
    "fifo_release",
    "  if given_back then\n    restore_fence(fence, given_back, '0', retention_ms)\n  end\n  if",
    "  if",
)
def test_a_release_is_noted_also_where_the_queue_has_nobody_to_grant_it_to(queue: Queue) -> None:
    token = granted(queue.acquire("a"))
    queue.acquire("b", "dead")
    queue.kill("dead")
    assert queue.release("a", token)[:3] == [1, 0, ""]
    assert queue.queued == []
    assert queue.release("a", token) == [2]
    assert queue.client.hget(queue.terms.names.fence, "open") == b"0"


@falls_without("fifo_release", "if last == given_back and floor < last then", "if last then")
def test_a_release_is_noted_before_the_next_grant_where_the_record_was_made_anew(
    queue: Queue,
) -> None:
    token, fence = granted(queue.acquire("a")), queue.terms.names.fence
    queue.acquire("b")
    queue.client.hset(fence, mapping={"last": token + 5, "open": token + 5, "floor": token + 4})
    assert queue.release("a", token)[0] == 1
    assert queue.holder == "b"
    record = queue.client.hgetall(fence)
    assert int(record[b"open"]) == queue.token > token + 5
    assert int(record[b"floor"]) == token - 1


@falls_without("fifo_release", "deadlines[channel] < now_ms or not mine", "not mine")
def test_a_process_past_its_window_loses_its_places(queue: Queue) -> None:
    queue.listen("p1", "p2")
    token = granted(queue.acquire("a"))
    queue.acquire("b", "p1")
    queue.acquire("c", "p2")
    queue.acquire("d", "p1")
    queue.kill("p1")
    queue.release("a", token)
    assert queue.holder == "c"
    # Only what stood before the one that was offered the lock has been looked at.
    assert queue.queued == ["c", "d"]


@falls_without("fifo_beat", "missing and 1", "false and 1")
def test_a_beat_of_one_without_its_place_says_recheck(queue: Queue) -> None:
    granted(queue.acquire("a"))
    queue.acquire("b")
    assert queue.beat("p", "b")[0] == 0
    queue.client.delete(queue.terms.names.queue)
    assert queue.beat("p", "b")[0] == 1


@falls_without("fifo_release", "redis.call('ZREM', members, channel)")
def test_a_process_that_lost_places_learns_of_it(queue: Queue) -> None:
    queue.listen("p1", "p2")
    token = granted(queue.acquire("a"))
    queue.acquire("b", "p1")
    queue.acquire("c", "p2")
    queue.acquire("d", "p1")
    queue.kill("p1")
    queue.release("a", token)
    assert queue.beat("p1", "d")[0] == 2
    assert queue.beat("p1", "d")[0] == 0


def test_a_process_that_was_only_late_has_lost_nothing(queue: Queue) -> None:
    granted(queue.acquire("a"))
    queue.acquire("b", "p1")
    queue.kill("p1")
    assert queue.beat("p1", "b")[0] == 0
    assert queue.queued == ["b"]


def test_a_beat_says_who_holds_and_for_how_long(queue: Queue) -> None:
    token = granted(queue.acquire("a"))
    queue.acquire("b")
    recheck, left, holder, now, own = queue.beat("p", "b")
    assert (recheck, own) == (0, 0)
    assert LEASE - 1000 < left <= LEASE
    assert holder == f"a:{queue.ticket('a').claimant.attempt}:{token}"
    assert abs(int(now) / 1e6 - time.time()) < 5


def test_a_beat_advances_a_free_lock(queue: Queue) -> None:
    granted(queue.acquire("a"))
    queue.acquire("b", "q")
    queue.lapse()
    _, _, holder, _, own = queue.beat("q", "b")
    assert holder.startswith("b:")
    assert own == 1
    assert queue.queued == []


def test_a_lapsed_offer_is_repeated_while_the_process_is_alive(queue: Queue) -> None:
    queue.listen("q")
    token = granted(queue.acquire("a"))
    queue.acquire("b", "q")
    queue.acquire("c", "p")
    queue.release("a", token)
    first = queue.token
    queue.lapse()
    queue.beat("p", "c")
    assert queue.holder == "b"
    assert queue.token > first
    assert len(queue.messages("q")) == 2
    assert queue.renew("b", first) == [0], "the first offer stands no more"


@falls_without("fifo_withdraw", "  bury_attempt(gone, attempt)")
def test_a_late_acquire_after_its_withdraw_is_granted_nothing(queue: Queue) -> None:
    queue.withdraw("a", bury=True)
    assert queue.acquire("a") == [2]
    assert queue.look("a") == [2]
    assert queue.holder == ""


def test_a_withdraw_frees_what_was_granted_and_advances(queue: Queue) -> None:
    granted(queue.acquire("a"))
    queue.acquire("b")
    held, _, holder, _, own = queue.withdraw("a")
    assert (held, own) == (1, 1)
    assert holder.startswith("b:")


@falls_without("fifo_withdraw", "\nleave(queue, tickets, members, attempt)")
def test_a_withdraw_of_a_waiter_leaves_the_rest_in_order(queue: Queue) -> None:
    granted(queue.acquire("a"))
    for one in "bcd":
        queue.acquire(one)
    assert queue.withdraw("c")[0] == 0
    assert queue.queued == ["b", "d"]


@falls_without(
    "fifo_release", "if free_from(lock, fence, waiter, retention_ms) then", "if false then"
)
def test_a_late_copy_granted_anew_is_freed_with_the_release(queue: Queue) -> None:
    token = granted(queue.acquire("a"))
    queue.lapse()
    granted(queue.acquire("a"))  # the late copy
    assert queue.release("a", token, bury=True)[0] == 0
    assert queue.holder == ""


def test_a_late_copy_of_a_release_frees_nothing_and_overtakes_nobody(queue: Queue) -> None:
    token = granted(queue.acquire("a"))
    queue.acquire("b")
    queue.acquire("c")
    queue.release("a", token)
    assert queue.release("a", token)[0] == 2
    assert queue.holder == "b", "the copy finds the next one in"
    queue.lapse()
    # Its reply, that c was granted the lock, is read by nobody: the next beat says the same.
    queue.release("a", token)
    _, left, holder, _, _ = queue.beat("p", "c")
    assert holder == f"c:{queue.ticket('c').claimant.attempt}:{queue.token}"
    assert left > OFFER, "the whole lease"


def test_every_release_has_one_verdict(queue: Queue) -> None:
    token = granted(queue.acquire("a"))
    assert queue.release("a", token) == [1]
    assert queue.release("a", token) == [2]
    lost = granted(queue.acquire("b"))
    queue.lapse()
    granted(queue.acquire("c"))
    assert queue.release("b", lost)[0] == 0


@falls_without("fifo_release", "or not mine")
def test_an_entry_without_its_ticket_is_offered_once(queue: Queue) -> None:
    # Tickets were evicted, and the waiter took a second place.
    queue.listen("q")
    token = granted(queue.acquire("a"))
    queue.acquire("b", "q")
    queue.client.delete(queue.terms.names.tickets)
    queue.acquire("b", "q")
    assert queue.queued == ["b", "b"]
    queue.release("a", token)
    assert queue.queued == ["b"]
    queue.renew("b", queue.token)
    assert queue.queued == []
    assert queue.release("b", queue.token) == [1]


@falls_without("fifo_release", "not ticket or string", "ticket and string")
def test_evicted_tickets_do_not_cost_a_place(queue: Queue) -> None:
    queue.listen("q")
    token = granted(queue.acquire("a"))
    queue.acquire("b", "q")
    queue.client.delete(queue.terms.names.tickets)
    queue.release("a", token)
    assert queue.holder == "b"
    queue.renew("b", queue.token)
    assert queue.queued == []


def test_every_key_has_a_ttl(queue: Queue) -> None:
    granted(queue.acquire("a"))
    queue.acquire("b")
    queue.withdraw("z", bury=True)
    keys = queue.client.keys()
    assert len(keys) == 6
    assert all(queue.client.pttl(key) > 0 for key in keys)


@falls_without("fifo_beat", "math.min(left, redis.call('PTTL', queue))", "left")
def test_beats_at_their_usual_pace_keep_the_queue(queue: Queue) -> None:
    """However short the time between two beats: the second finds the members' time nearly whole."""
    queue.acquire("a")
    queue.acquire("b")
    keys = queue.terms.names
    for key in (keys.queue, keys.tickets):  # as they are after most of their time
        queue.client.pexpire(key, ALIVE)
    queue.beat()
    queue.beat()
    assert all(queue.client.pttl(key) > ALIVE for key in (keys.queue, keys.tickets, keys.members))


@falls_without("fifo_beat", "math.max(whole, redis.call('PTTL', key))", "redis.call('PTTL', key)")
def test_beats_keep_the_queue_alive(queue: Queue) -> None:
    granted(queue.acquire("a"))
    queue.acquire("b")
    keys = queue.terms.names
    for key in (keys.queue, keys.tickets, keys.members):
        queue.client.pexpire(key, ALIVE)
    queue.beat("p", "b")
    assert all(queue.client.pttl(key) > ALIVE for key in (keys.queue, keys.tickets, keys.members))


def test_nothing_is_left_of_a_queue_that_nobody_is_in(queue: Queue) -> None:
    token = granted(queue.acquire("a"))
    queue.acquire("b")
    queue.withdraw("b")
    assert queue.release("a", token) == [1]
    assert queue.client.keys() == [queue.terms.names.fence.encode()]


def test_a_clock_that_steps_back_does_not_reorder(queue: Queue) -> None:
    # Entry ids rise whatever the clock does; a bare timestamp as the key of a sorted set would not.
    granted(queue.acquire("a"))
    queue.acquire("b")
    future = int(time.time() * 1000) + 3_600_000
    queue.client.xadd(queue.terms.names.queue, {"w": "x:x", "c": "gone"}, id=f"{future}-0")
    queue.acquire("c")
    assert queue.queued == ["b", "x", "c"]


@falls_without("fifo_release", "redis.pcall('PUBLISH', turn.wake, 'free')")
def test_a_plain_lock_is_woken_when_nobody_is_queued(queue: Queue) -> None:
    ear = queue.client.pubsub(ignore_subscribe_messages=True)
    ear.subscribe(queue.terms.names.wake)
    ear.get_message(timeout=0.2)
    token = granted(queue.acquire("a"))
    queue.acquire("b")
    queue.release("a", token)
    assert ear.get_message(timeout=0.1) is None, "the next of the queue has it"
    queue.release("b", queue.token)
    message = ear.get_message(timeout=1.0)
    assert message is not None
    assert message["data"] == b"free"
    ear.close()


@pytest.mark.parametrize("listening", [True, False], ids=["listening", "deaf"])
def test_a_cluster_counts_only_its_own_listeners(redis_client: Any, *, listening: bool) -> None:
    terms = make_terms("clustered")
    object.__setattr__(terms, "solo", False)
    queue = Queue(redis_client, terms=terms)
    if listening:
        queue.listen("q")
    token = granted(queue.acquire("a"))
    queue.acquire("b", "q")
    queue.release("a", token)
    assert queue.holder == "b"
    queue.close()


def test_a_full_server_still_releases_and_advances(queue: Queue, server: Any) -> None:
    token = granted(queue.acquire("a"))
    queue.acquire("b")
    queue.acquire("c", "q")
    with out_of_memory(server):
        assert queue.release("a", token)[0] == 1
        assert queue.holder == "b"
        assert queue.renew("b", queue.token)[0] == 1
        assert queue.beat("p", None)[0] == 0
        assert queue.withdraw("c", "q", bury=True)[0] == 0
        assert queue.release("b", queue.token)[0] == 1


@falls_without("fifo_withdraw", "redis.call('XDEL', queue, string.match(ticket, '^%S+'))")
def test_tickets_that_passed_leave_no_memory(queue: Queue) -> None:
    token = granted(queue.acquire("a"))
    queue.acquire("keeper")

    def pass_through(count: int) -> int:
        for index in range(count):
            queue.acquire(f"w{index}")
            queue.withdraw(f"w{index}")
        return int(queue.client.memory_usage(queue.terms.names.queue) or 0)

    first = pass_through(200)
    assert pass_through(1000) < first + 4096
    queue.release("a", token)


_WAITING = 20
_log = logging.getLogger(__name__)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [20_000, 1_000_000], ids=["20,000", "a million"])
@pytest.mark.parametrize("pattern", ["granted in turn", "given up"])
def test_a_queue_that_has_seen_a_million_tickets_does_not_grow(
    queue: Queue, count: int, pattern: str
) -> None:
    """Twenty wait at any time: they cost no more at last than in the first ten thousand tickets."""
    if count > 20_000 and "FENCEKIT_LONG" not in os.environ:
        pytest.skip("minutes: set FENCEKIT_LONG")
    keys, client = queue.terms.names, queue.client
    for script in (protocol.ACQUIRE, protocol.WITHDRAW):
        client.script_load(script.source)

    def cost() -> list[int]:
        names = (keys.queue, keys.tickets, keys.members, keys.fence)
        return [int(client.memory_usage(name, samples=0) or 0) for name in names]

    token = 0
    if pattern == "given up":
        token = granted(queue.acquire("holder"))
        queue.acquire("first of all")  # whose node of the stream stays
    costs: list[list[int]] = []
    for start in range(0, count, 1000):
        with client.pipeline(transaction=False) as pipe:
            for number in range(start, start + 1000):
                come = protocol.acquire_operation(queue.ticket(f"w{number}"))
                gone = protocol.withdraw_operation(
                    queue.ticket(f"w{number - _WAITING}"), bury=False
                )
                for one in (come, gone):
                    pipe.evalsha(one.script.sha, len(one.keys), *one.keys, *one.args)
            pipe.execute()
        # A million take longer than a lease, and than a queue lives that nobody beats for.
        if pattern == "given up":
            queue.renew("holder", token)
        queue.beat()
        costs.append(cost())
    # The lock is held by the oldest where it is granted in turn.
    assert client.xlen(keys.queue) == _WAITING + (1 if pattern == "given up" else -1)
    early, late = max(costs[:10], key=sum), max(costs[10:], key=sum)
    _log.info("bytes of queue, tickets, members, fence: %s early, %s late", early, late)
    # Nodes of the stream come and go, of 4 KB each: three at most, of ten thousand that have been.
    assert sum(late) <= sum(early) + 2 * 4096
    for number in range(count - _WAITING, count):
        queue.withdraw(f"w{number}")
    if pattern == "given up":
        queue.withdraw("first of all")
        queue.withdraw("holder")
    assert client.keys() == [keys.fence.encode()]
    assert client.pttl(keys.fence) > 0
