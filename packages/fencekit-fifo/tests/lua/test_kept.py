"""What the queue's scripts keep, take away and leave alone, where no answer says so.

Each was asked for by mutants of the scripts that nobody else noticed (`hatch run mutate`).
"""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError

from harness.conditions import forbidden
from harness.fifo import ALIVE, RETENTION, Queue, falls_without


def tickets(queue: Queue) -> set[str]:
    """The labels of those who have a ticket."""
    attempts = {key.decode() for key in queue.client.hkeys(queue.terms.names.tickets)}
    return {label for label in "abcdef" if queue.ticket(label).claimant.attempt in attempts}


def record(queue: Queue) -> dict[str, str]:
    """The fence record."""
    found = queue.client.hgetall(queue.terms.names.fence)
    return {field.decode(): value.decode() for field, value in found.items()}


def published(queue: Queue) -> int:
    """How many messages were sent since the statistics were reset."""
    statistics: dict[str, Any] = queue.client.info("commandstats")
    return int(statistics.get("cmdstat_publish", {"calls": 0})["calls"])


# -- tickets ------------------------------------------------------------------------------------


@falls_without(
    "fifo_release", "        redis.call('HDEL', tickets, attempt)\n        if", "        if"
)
def test_whoever_is_granted_the_lock_has_no_ticket_any_more(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    for waiter in "bcd":
        queue.acquire(waiter)
    queue.release("a", token)
    assert queue.holder == "b"
    assert tickets(queue) == {"c", "d"}


@falls_without(
    "fifo_release",
    "          redis.call('HDEL', tickets, attempt)\n          redis",
    "          redis",
)
def test_whoever_loses_its_place_loses_its_ticket(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    queue.acquire("b", "dead")
    queue.acquire("c")
    queue.acquire("d")
    queue.kill("dead")
    queue.release("a", token)
    assert queue.holder == "c"
    assert tickets(queue) == {"d"}


@falls_without("fifo_withdraw", "    redis.call('HDEL', tickets, attempt)\n    redis", "    redis")
def test_whoever_gives_up_gives_back_its_ticket(queue: Queue) -> None:
    queue.acquire("a")
    queue.acquire("b")
    queue.acquire("c")
    queue.withdraw("b")
    assert tickets(queue) == {"c"}


# -- how long -----------------------------------------------------------------------------------


@falls_without("fifo_beat", "math.max(left, whole)", "math.min(left, whole)")
def test_each_beat_makes_the_members_time_whole(queue: Queue) -> None:
    queue.acquire("a")
    queue.acquire("b")
    members = queue.terms.names.members
    queue.client.pexpire(members, ALIVE * 7 // 2)
    queue.beat()
    assert queue.client.pttl(members) > ALIVE * 7 // 2


@falls_without("fifo_beat", "math.max(left, whole)", "whole")
def test_a_beat_shortens_no_time_that_another_process_has_set(queue: Queue) -> None:
    queue.acquire("a")
    queue.acquire("b")
    members = queue.terms.names.members
    queue.client.pexpire(members, ALIVE * 8)
    queue.beat()
    assert queue.client.pttl(members) > ALIVE * 7


@falls_without("fifo_acquire", "math.max(redis.call('PTTL', members), whole_ms)", "whole_ms")
def test_whoever_joins_shortens_no_time_that_another_process_has_set(queue: Queue) -> None:
    queue.acquire("a")
    queue.acquire("b")
    members = queue.terms.names.members
    queue.client.pexpire(members, ALIVE * 8)
    queue.acquire("c", "another")
    assert queue.client.pttl(members) > ALIVE * 7


@falls_without("fifo_beat", "< whole - alive_ms then", "< whole + alive_ms then")
def test_not_every_beat_writes_how_long_the_queue_is_kept(queue: Queue) -> None:
    queue.acquire("a")
    queue.acquire("b")
    keys = queue.terms.names
    for key in (keys.queue, keys.tickets):
        queue.client.pexpire(key, ALIVE * 7 // 2)
    queue.beat()
    assert all(queue.client.pttl(key) <= ALIVE * 7 // 2 for key in (keys.queue, keys.tickets))


def test_a_queue_whose_processes_are_all_dead_leaves_nothing(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    queue.acquire("b", "dead")
    queue.acquire("c", "deader")
    queue.kill("dead")
    queue.kill("deader")
    queue.release("a", token)
    assert queue.client.keys() == [queue.terms.names.fence.encode()]


# -- the record ---------------------------------------------------------------------------------


@falls_without(
    "fifo_withdraw",
    "restore_fence(fence, tonumber(string.sub(held, #stem + 1)), '0', retention_ms)",
)
def test_whoever_withdraws_what_it_was_granted_has_given_it_back(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    assert queue.withdraw("a")[0] == 1
    assert (record(queue)["last"], record(queue)["open"]) == (str(token), "0")
    assert record(queue)["floor"] == str(token - 1)
    queue.release("b", int(queue.acquire("b")[1]))
    assert record(queue)["lapsed"] == ""
    assert queue.release("a", token)[0] == 2


@falls_without(
    "fifo_release",
    "restore_fence(fence, tonumber(string.sub(held, #stem + 1)), '0', retention_ms)",
)
def test_a_late_grant_that_the_release_frees_has_not_lapsed(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    queue.lapse()
    late = int(queue.acquire("a")[1])
    queue.release("a", token, bury=True)
    assert (record(queue)["last"], record(queue)["open"]) == (str(late), "0")
    assert record(queue)["lapsed"] == str(token)


@falls_without("fifo_release", "freed, held = true, false", "freed = true")
def test_the_lock_of_a_late_grant_goes_to_the_next_in_the_queue(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    queue.lapse()
    queue.acquire("a")
    queue.acquire("b")
    verdict, _, holder, _, own = queue.release("a", token, bury=True)
    assert (verdict, own) == (0, 1)
    assert holder.startswith("b:")
    assert queue.holder == "b"


@falls_without(
    "fifo_release",
    "if last == given_back and floor < last",
    "if last == given_back and floor <= last",
)
def test_a_record_advanced_to_the_very_token_that_passes_the_lock_on_has_one_verdict(
    queue: Queue,
) -> None:
    token = int(queue.acquire("a")[1])
    queue.acquire("b")
    fields = {"last": token, "open": 0, "lapsed": "", "floor": token}
    queue.client.hset(queue.terms.names.fence, mapping=fields)
    assert [queue.release("a", token)[0] for _ in range(2)] == [1, 2]
    assert queue.holder == "b"


def test_a_renewal_prolongs_the_record(queue: Queue) -> None:
    token = int(queue.acquire("a")[1])
    queue.client.pexpire(queue.terms.names.fence, 1_000)
    queue.renew("a", token)
    assert queue.client.pttl(queue.terms.names.fence) > RETENTION


@pytest.mark.parametrize("command", ["hset", "pexpire", "set"])
def test_a_lock_whose_next_grant_may_not_be_noted_is_held_by_nobody(
    queue: Queue, command: str
) -> None:
    token = int(queue.acquire("a")[1])
    queue.acquire("b")
    with forbidden(queue.client, command), pytest.raises(ResponseError):
        queue.release("a", token)
    assert queue.holder == ""
    assert queue.beat(oldest="b")[4] == 1
    assert queue.holder == "b"


# -- beats --------------------------------------------------------------------------------------


@falls_without("fifo_beat", "string.sub(holder, 1, #waiter + 1) ~= waiter .. ':'\n  and not", "not")
def test_a_beat_that_grants_its_oldest_the_lock_misses_nobody(queue: Queue) -> None:
    queue.acquire("a")
    queue.acquire("b")
    queue.lapse()
    recheck, _, holder, _, own = queue.beat(oldest="b")
    assert (recheck, own) == (0, 1)
    assert holder.startswith("b:")
    assert queue.queued == []
    assert queue.beat(oldest="b")[0] == 2, "no member any more, for the queue is gone"
    assert queue.beat(oldest="b")[0] == 0


@falls_without("fifo_beat", "owner ~= '' and ")
def test_a_beat_of_a_process_without_waiters_misses_nobody(queue: Queue) -> None:
    queue.acquire("a")
    queue.acquire("b")
    assert queue.beat()[0] == 0
    assert queue.beat(oldest="c")[0] == 1


# -- messages -----------------------------------------------------------------------------------


@falls_without("fifo_release", "deaf[channel] = true")
def test_a_deaf_process_is_offered_the_lock_once(queue: Queue) -> None:
    queue.listen("q")
    token = int(queue.acquire("a")[1])
    for waiter in "bcd":
        queue.acquire(waiter, "deaf")
    queue.acquire("e", "q")
    queue.client.config_resetstat()
    queue.release("a", token)
    assert queue.holder == "e"
    assert published(queue) == 2
    assert queue.queued == ["b", "c", "d", "e"]


@pytest.mark.parametrize("how", ["release", "withdraw"])
def test_a_wake_that_is_forbidden_undoes_nothing(queue: Queue, how: str) -> None:
    token = int(queue.acquire("a")[1])
    with forbidden(queue.client, "publish"):
        done = queue.release("a", token) if how == "release" else queue.withdraw("a")
    assert done[0] == 1
    assert queue.holder == ""
    assert record(queue)["open"] == "0"


def test_an_offer_that_is_forbidden_keeps_the_place(queue: Queue) -> None:
    queue.listen("q")
    token = int(queue.acquire("a")[1])
    queue.acquire("b", "q")
    with forbidden(queue.client, "publish"):
        verdict, left, holder, _, own = queue.release("a", token)
    assert (verdict, left, holder, own) == (1, 0, "", 0)
    assert queue.queued == ["b"]
    assert record(queue)["open"] == "0"
    assert queue.beat("q", "b")[2].startswith("b:")
