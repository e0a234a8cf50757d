"""What the queue's scripts answer and keep, field by field.

Each was asked for by mutants of the scripts that nobody else noticed (`hatch run mutate`).
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from fencekit.fifo.commands import stats_operation
from harness.fifo import ALIVE, LEASE, OFFER, RETENTION, Queue


def stats(queue: Queue) -> list[Any]:
    return queue.run(stats_operation(queue.terms.names))


def fence(queue: Queue) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = queue.client.hgetall(queue.terms.names.fence)
    return found


def server_now(queue: Queue) -> int:
    seconds, rest = queue.client.time()
    return int(seconds * 10**6 + rest)


@pytest.mark.parametrize("again", ["acquire", "look"])
def test_a_second_copy_is_granted_the_same_and_never_less(queue: Queue, again: str) -> None:
    ask, lock = getattr(queue, again), queue.terms.names.lock
    token = queue.acquire("a")[1]
    queue.client.pexpire(lock, 1_000)
    assert ask("a") == [1, token, 0]
    assert LEASE - 1_000 < queue.left_ms <= LEASE
    queue.client.pexpire(lock, LEASE * 2)
    assert ask("a") == [1, token, 0]
    assert LEASE < queue.left_ms <= LEASE * 2


def test_a_second_copy_of_one_that_was_served_leaves_no_place(queue: Queue) -> None:
    queue.listen("p", "q")
    token = queue.acquire("a")[1]
    queue.acquire("b", "q")
    queue.acquire("c", "q")
    queue.release("a", int(token))
    offered = queue.token
    assert queue.queued == ["b", "c"]  # b's place stays until the offer is taken up
    assert queue.acquire("b", "q") == [1, str(offered), 0]
    assert queue.queued == ["c"]
    assert queue.client.hlen(queue.terms.names.tickets) == 1


def test_a_grant_and_a_refusal_say_all_there_is(queue: Queue) -> None:
    queue.listen("p")
    token = queue.acquire("a")[1]
    assert queue.look("b") == [0]
    refused = queue.acquire("b", queues=False)
    assert [refused[0], refused[4:]] == [0, [0, -1, 0]]
    assert queue.queued == []
    asked = server_now(queue)
    number, pttl, holder, now, own, before, revived = queue.acquire("b")
    assert asked <= int(now) <= server_now(queue)
    assert (number, own, before, revived) == (0, 0, 0, 1)  # the first word of this process
    assert LEASE - 1_000 < pttl <= LEASE
    assert holder.startswith("a:")
    assert holder.endswith(f":{token}")
    assert queue.acquire("c")[5:] == [1, 0]
    queue.client.zrem(queue.terms.names.members, queue.ticket("b").channel)
    assert queue.acquire("c")[5:] == [1, 1]
    queue.withdraw("b")
    queue.withdraw("c")
    queue.release("a", int(token))
    fresh = queue.acquire("d")
    assert (fresh[0], fresh[2]) == (1, 0)
    queue.withdraw("d")
    looked = queue.look("e")
    assert (looked[0], looked[2]) == (1, 0)


def test_one_that_asks_as_its_turn_comes_is_granted_it(queue: Queue) -> None:
    queue.acquire("a")
    queue.acquire("b")
    queue.acquire("c")
    queue.lapse()
    reply = queue.acquire("b")
    assert reply == [1, str(queue.token), 0]
    assert queue.holder == "b"


def test_without_a_place_the_queue_is_respected(queue: Queue) -> None:
    queue.acquire("a")
    queue.acquire("b", "q")
    queue.lapse()
    # Nobody listens at q, so the lock stays free, and b keeps its place.
    reply = queue.acquire("c", queues=False)
    assert (reply[0], reply[2]) == (0, "")
    assert queue.queued == ["b"]
    assert queue.client.exists(queue.terms.names.lock) == 0
    assert fence(queue)[b"open"] == b"0"


def test_statistics_leave_out_who_has_an_offer(queue: Queue) -> None:
    assert stats(queue)[:5] == ["", -2, "0", 0, ""]
    queue.listen("q")
    token = queue.acquire("a")[1]
    for waiter in "bcd":
        queue.acquire(waiter, "q")
    asked = server_now(queue)
    holder, pttl, last, waiting, oldest, now = stats(queue)
    assert asked <= int(now) <= server_now(queue)
    entries = [entry.decode() for entry, _ in queue.client.xrange(queue.terms.names.queue)]
    assert holder.endswith(f":{token}")
    assert LEASE - 1_000 < pttl <= LEASE
    assert (last, waiting, oldest) == (str(token), 3, entries[0])
    queue.release("a", int(token))
    assert queue.holder == "b"
    assert stats(queue)[3:5] == [2, entries[1]]


def test_an_offer_keeps_the_record_beyond_itself(queue: Queue) -> None:
    queue.listen("q")
    token = int(queue.acquire("a")[1])
    queue.acquire("b", "q")
    queue.release("a", token)
    assert queue.token > token
    assert fence(queue)[b"last"] == fence(queue)[b"open"] == str(queue.token).encode()
    left = queue.client.pttl(queue.terms.names.fence)
    assert RETENTION + OFFER - 1_000 < left <= RETENTION + OFFER


def test_tokens_rise_though_the_clock_does_not(queue: Queue) -> None:
    ahead = int((time.time() + 3600) * 1e6)
    token = int(queue.acquire("a")[1])
    queue.acquire("b")
    lock = queue.terms.names.lock
    value = queue.client.get(lock).replace(str(token).encode(), str(ahead).encode())
    queue.client.set(lock, value, px=LEASE)
    queue.client.hset(queue.terms.names.fence, mapping={"last": ahead, "open": ahead})
    queue.release("a", ahead)
    assert (queue.holder, queue.token) == ("b", ahead + 1)


def test_a_renewal_makes_a_lost_record_anew(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    queue.client.delete(queue.terms.names.fence)
    assert queue.renew("a", token)[0] == 1
    assert fence(queue)[b"last"] == fence(queue)[b"open"] == str(token).encode()
    left = queue.client.pttl(queue.terms.names.fence)
    assert RETENTION + LEASE - 1_000 < left <= RETENTION + LEASE


def test_who_is_buried_by_its_release_is_not_granted_again(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    assert queue.release("a", token, bury=True)[0] == 1
    assert queue.acquire("a") == [2]


def test_a_late_grant_is_freed_by_the_release_and_told(queue: Queue) -> None:
    ear = queue.client.pubsub(ignore_subscribe_messages=True)
    ear.subscribe(queue.terms.names.wake)
    while ear.get_message(timeout=0.2) is not None:
        pass
    token = int(queue.acquire("a")[1])
    queue.lapse()
    queue.acquire("a")  # a late copy, granted with a token that nobody knows
    queue.release("a", token, bury=True)
    assert queue.holder == ""
    message = ear.get_message(timeout=1.0)
    assert message is not None
    assert message["data"] == b"free"
    ear.close()


def test_a_release_of_one_that_still_has_a_place_gives_that_up_too(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    queue.acquire("b")
    queue.acquire("c")
    queue.lapse()
    queue.acquire("d", queues=False)  # advances: b has the lock
    queue.release("c", token)
    assert "c" not in queue.queued


def test_a_withdraw_of_a_holder_tells_whoever_waits_outside(queue: Queue) -> None:
    ear = queue.client.pubsub(ignore_subscribe_messages=True)
    ear.subscribe(queue.terms.names.wake)
    while ear.get_message(timeout=0.2) is not None:
        pass
    queue.acquire("a")
    assert queue.withdraw("b")[0] == 0
    assert ear.get_message(timeout=0.1) is None
    assert queue.withdraw("a")[0] == 1
    queue.withdraw("b")  # the lock is free, and was not b's: nothing to tell
    message = ear.get_message(timeout=1.0)
    assert message is not None
    assert message["data"] == b"free"
    assert ear.get_message(timeout=0.1) is None
    ear.close()


def test_what_waiters_are_kept_in_lives_four_windows(queue: Queue) -> None:
    queue.acquire("a")
    queue.acquire("b")
    names = queue.terms.names
    for key in (names.queue, names.tickets, names.members):
        assert ALIVE * 4 - 1_000 < queue.client.pttl(key) <= ALIVE * 4
    score = queue.client.zscore(names.members, queue.ticket("b").channel)
    assert abs(score / 1e3 - time.time() - ALIVE / 1e3) < 5
    queue.beat(oldest="b")
    score = queue.client.zscore(names.members, queue.ticket("b").channel)
    assert abs(score / 1e3 - time.time() - ALIVE / 1e3) < 5


def test_nothing_is_left_when_the_last_has_gone(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    queue.acquire("b")
    queue.release("a", token)
    assert queue.holder == "b"
    names = queue.terms.names
    assert queue.client.exists(names.queue, names.tickets, names.members) == 0
