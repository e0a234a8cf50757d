"""The judge of histories refuses what must be refused, and accepts whatever was legal.

By hand: histories that break one rule each, with the nearest history that does not. By Hypothesis:
histories made by letting operations take effect one after the other inside their intervals, some
without an answer, which must all be accepted; and small ones of any kind, judged a second time by
trying every order.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history import FencedMutex, Once, Operation, Undecided, check, check_all

MUTEX, ONCE = FencedMutex(), Once()


def op(
    kind: str, began: float, ended: float | None, argument: Any = None, answer: Any = None
) -> Operation:
    return Operation(kind, began, ended, argument, answer)


# What breaks one rule, and the nearest that does not: (rule, broken, whole).
MUTEX_HISTORIES: list[tuple[str, list[Operation], list[Operation]]] = [
    (
        "two holders",
        [op("acquire", 0, 1, answer=5), op("acquire", 2, 3, answer=6)],
        [op("acquire", 0, 1, answer=5), op("release", 1, 3, 5, "released"),
         op("acquire", 2, 3, answer=6)],
    ),
    (
        "two holders, before the lease could end",
        [op("acquire", 0, 1, answer=5), op("lapse", 4, None, 5), op("acquire", 2, 3, answer=6)],
        [op("acquire", 0, 1, answer=5), op("lapse", 4, None, 5), op("acquire", 2, 5, answer=6)],
    ),
    (
        "a token that does not rise",
        [op("acquire", 0, 1, answer=5), op("release", 2, 3, 5, "released"),
         op("acquire", 4, 5, answer=5)],
        [op("acquire", 0, 1, answer=5), op("release", 2, 3, 5, "released"),
         op("acquire", 4, 5, answer=6)],
    ),
    (
        "a token that falls after a wipe",
        [op("acquire", 0, 1, answer=5), op("wipe", 2, 3), op("acquire", 4, 5, answer=1)],
        [op("acquire", 0, 1, answer=5), op("wipe", 2, 3), op("acquire", 4, 5, answer=6)],
    ),
    (
        "refused a free lock",
        [op("acquire", 0, 1, answer="refused")],
        [op("acquire", 0, 1, answer="refused"), op("acquire", 0, 1, answer=5)],
    ),
    (
        "a stale write passes",
        [op("acquire", 0, 1, answer=5), op("release", 2, 3, 5, "released"),
         op("acquire", 4, 5, answer=6), op("write", 6, 7, 5, "passed")],
        [op("acquire", 0, 1, answer=5), op("release", 2, 3, 5, "released"),
         op("acquire", 4, 5, answer=6), op("write", 6, 7, 5, "refused")],
    ),
    (
        "the holder's write is refused",
        [op("acquire", 0, 1, answer=5), op("write", 2, 3, 5, "refused")],
        [op("acquire", 0, 1, answer=5), op("write", 2, 3, 5, "passed")],
    ),
    (
        "lost, and nobody took it",
        [op("acquire", 0, 1, answer=5), op("release", 2, 3, 5, "lost")],
        [op("acquire", 0, 1, answer=5), op("lapse", 1, None, 5), op("release", 2, 3, 5, "lost")],
    ),
    (
        "released what had lapsed",
        [op("acquire", 0, 1, answer=5), op("lapse", 1, None, 5), op("acquire", 2, 3, answer=6),
         op("release", 4, 5, 5, "released")],
        [op("acquire", 0, 1, answer=5), op("lapse", 1, None, 5), op("acquire", 2, 3, answer=6),
         op("release", 4, 5, 5, "lost")],
    ),
    (
        "renewed after the release",
        [op("acquire", 0, 1, answer=5), op("release", 2, 3, 5, "released"),
         op("renew", 4, 5, 5, "renewed")],
        [op("acquire", 0, 1, answer=5), op("release", 2, 3, 5, "released"),
         op("renew", 2, 5, 5, "renewed")],
    ),
    (
        "the forced one writes on",
        [op("acquire", 0, 1, answer=5), op("force", 2, 3, answer="freed"),
         op("write", 4, 5, 5, "passed")],
        [op("acquire", 0, 1, answer=5), op("force", 2, 5, answer="freed"),
         op("write", 4, 5, 5, "passed")],
    ),
]  # fmt: skip

ONCE_HISTORIES: list[tuple[str, list[Operation], list[Operation]]] = [
    (
        "begun by two",
        [op("begin", 0, 1, answer=("begun", 5)), op("begin", 2, 3, answer=("begun", 6))],
        [op("begin", 0, 1, answer=("begun", 5)), op("begin", 2, 3, answer=("busy", None))],
    ),
    (
        "reclaimed within the lease",
        [op("begin", 0, 1, answer=("begun", 5)), op("lapse", 9, None, 5),
         op("begin", 2, 3, answer=("reclaimed", 6))],
        [op("begin", 0, 1, answer=("begun", 5)), op("lapse", 2, None, 5),
         op("begin", 2, 3, answer=("reclaimed", 6))],
    ),
    (
        "done twice",
        [op("begin", 0, 1, answer=("begun", 5)), op("lapse", 1, None, 5),
         op("begin", 2, 3, answer=("reclaimed", 6)), op("complete", 4, 5, (6, "b"), "done"),
         op("complete", 6, 7, (5, "a"), "done")],
        [op("begin", 0, 1, answer=("begun", 5)), op("lapse", 1, None, 5),
         op("begin", 2, 3, answer=("reclaimed", 6)), op("complete", 4, 5, (6, "b"), "done"),
         op("complete", 6, 7, (5, "a"), "lost")],
    ),
    (
        "another result",
        [op("begin", 0, 1, answer=("begun", 5)), op("complete", 2, 3, (5, "a"), "done"),
         op("begin", 4, 5, answer=("done", "b"))],
        [op("begin", 0, 1, answer=("begun", 5)), op("complete", 2, 3, (5, "a"), "done"),
         op("begin", 4, 5, answer=("done", "a"))],
    ),
    (
        "begun after it was done",
        [op("begin", 0, 1, answer=("begun", 5)), op("complete", 2, 3, (5, "a"), "done"),
         op("begin", 4, 5, answer=("begun", 6))],
        [op("begin", 0, 1, answer=("begun", 5)), op("give_back", 2, 3, 5, "given"),
         op("begin", 4, 5, answer=("begun", 6))],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("broken", "whole"), [h[1:] for h in MUTEX_HISTORIES], ids=[h[0] for h in MUTEX_HISTORIES]
)
def test_a_history_of_a_lock_that_breaks_a_rule_is_refused(
    broken: list[Operation], whole: list[Operation]
) -> None:
    assert not check(broken, MUTEX)
    assert check(whole, MUTEX)


@pytest.mark.parametrize(
    ("broken", "whole"), [h[1:] for h in ONCE_HISTORIES], ids=[h[0] for h in ONCE_HISTORIES]
)
def test_a_history_of_a_job_that_breaks_a_rule_is_refused(
    broken: list[Operation], whole: list[Operation]
) -> None:
    assert not check(broken, ONCE)
    assert check(whole, ONCE)


def test_what_has_no_answer_may_have_happened_late_or_never() -> None:
    unheard = op("acquire", 0, None)
    # Never.
    assert check([unheard, op("acquire", 1, 2, answer=5)], MUTEX)
    # Late, after the release, and refusing another since.
    history = [
        unheard,
        op("acquire", 1, 2, answer=5),
        op("release", 3, 4, 5, "released"),
        op("acquire", 5, 6, answer="refused"),
        op("write", 7, 8, 5, "refused"),
    ]
    assert check(history, MUTEX)
    assert not check(history[1:], MUTEX)
    # A grant that nobody heard of holds until it is withdrawn or lapses.
    assert not check([*history, op("acquire", 9, 10, answer=7)], MUTEX)
    assert check([*history, op("acquire", 9, 10, answer=7), op("vanish", 0, None)], MUTEX)


def test_a_release_without_an_answer_may_have_freed_the_lock() -> None:
    history = [
        op("acquire", 0, 1, answer=5),
        op("release", 2, None, 5),
        op("acquire", 3, 4, answer=6),
    ]
    assert check(history, MUTEX)
    assert not check([history[0], history[2]], MUTEX)
    early = [op("acquire", 0, 1, answer=5), op("acquire", 2, 3, answer=6)]
    assert not check([*early, op("release", 4, None, 5)], MUTEX)


def test_a_completion_without_an_answer_may_have_been_recorded() -> None:
    history = [
        op("begin", 0, 1, answer=("begun", 5)),
        op("complete", 2, None, (5, "a")),
        op("begin", 3, 4, answer=("done", "a")),
    ]
    assert check(history, ONCE)
    assert not check([history[0], history[2]], ONCE)


def test_the_verdict_says_where_it_stands() -> None:
    verdict = check([op("acquire", 0, 1, answer=5), op("acquire", 2, 3, answer=6)], MUTEX)
    assert [each.answer for each in verdict.stuck] == [6]


def test_each_key_is_judged_by_itself() -> None:
    history = [
        Operation("acquire", 0, 1, answer=5, key="a"),
        Operation("acquire", 2, 3, answer=5, key="b"),
        Operation("acquire", 4, 5, answer=6, key="b"),
    ]
    verdicts = check_all(history, MUTEX)
    assert {key: bool(verdict) for key, verdict in verdicts.items()} == {"a": True, "b": False}


def test_a_search_that_is_too_long_is_given_up_and_says_so() -> None:
    with pytest.raises(Undecided):
        check([op("force", 0, 9, answer="idle") for _ in range(30)], MUTEX, most_states=9)


def test_an_operation_that_ends_before_it_begins_is_no_operation() -> None:
    with pytest.raises(ValueError, match="ends before it begins"):
        check([op("acquire", 1, 0, answer=5)], MUTEX)


def test_a_long_history_is_judged_quickly() -> None:
    history = []
    for turn in range(2000):
        at = 10.0 * turn
        history += [
            op("acquire", at, at + 2, answer=turn + 1),
            op("acquire", at + 1, at + 8, answer="refused"),
            op("write", at + 3, at + 4, turn + 1, "passed"),
            op("release", at + 5, at + 9, turn + 1, "released"),
        ]
    assert check(history, MUTEX)
    history[-2] = op("write", 19_993, 19_994, 1_000, "passed")
    assert not check(history, MUTEX)


# -- made by Hypothesis -------------------------------------------------------------------------

_steps = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "release", "write", "renew", "lapse", "force", "wipe"]),
        st.integers(0, 3),  # which token
        st.floats(0, 3),  # how long before its moment it was asked
        st.floats(0, 3),  # how long after its moment it was answered
        st.booleans(),  # whether the answer is lost
    ),
    max_size=25,
)


def _lived(steps: list[Any]) -> list[Operation]:
    """Let a lock live through these steps, each taking effect at its moment."""
    tokens: list[int] = [1]
    holder, highest, shut, blind = 0, 1, False, False
    history: list[Operation] = []
    for moment, (kind, which, before, after, lost) in enumerate(steps):
        argument: Any = tokens[-1 - which % len(tokens)]
        answer: Any = None
        if kind == "acquire":
            argument = None
            if holder:
                answer = "refused"
            else:
                highest += 2
                holder = answer = highest
                shut = blind = False
                tokens.append(holder)
        elif kind in {"release", "renew"}:
            words = {"release": "released", "renew": "renewed"}
            answer = words[kind] if argument == holder and holder else "lost"
            if kind == "release" and answer == "released":
                holder = 0
        elif kind == "write":
            stale = argument < highest or shut or blind
            answer = "refused" if stale else "passed"
        elif kind == "lapse":
            if not holder:
                continue
            argument, holder = holder, 0
        elif kind == "force":
            argument = None
            answer = "freed" if holder else "idle"
            shut = shut or bool(holder)
            holder = 0
        else:
            argument, holder, blind = None, 0, True
        # A lost grant that somebody writes with would be known to somebody after all.
        unheard = (lost and kind not in {"acquire", "wipe"}) or kind == "lapse"
        history.append(
            op(kind, moment - before, None, argument)
            if unheard
            else op(kind, moment - before, moment + after, argument, answer)
        )
    return history


@settings(max_examples=300, deadline=None)
@given(_steps)
def test_whatever_was_lived_is_accepted(steps: list[Any]) -> None:
    history = _lived(steps)
    verdict = check(history, MUTEX)
    assert verdict, verdict.stuck


_any_operation = st.builds(
    lambda kind, began, lasting, argument, answer: op(
        kind,
        began,
        None if kind == "lapse" or lasting == 4 else began + lasting,
        argument if kind in {"release", "lapse", "write"} else None,
        answer
        if kind == "acquire"
        else {"release": "released", "write": "passed"}.get(kind)
        if lasting != 4
        else None,
    ),
    st.sampled_from(["acquire", "acquire", "release", "write", "lapse"]),
    st.integers(0, 8),
    st.integers(0, 4),
    st.integers(1, 3),
    st.sampled_from([1, 2, 3, "refused"]),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(_any_operation, max_size=5))
def test_any_small_history_is_judged_as_by_trying_every_order(history: list[Operation]) -> None:
    assert bool(check(history, MUTEX)) == _by_trying_all(history)


def _by_trying_all(history: list[Operation]) -> bool:
    must = [number for number, each in enumerate(history) if each.ended is not None]
    for size in range(len(history) + 1):
        for order in permutations(range(len(history)), size):
            if set(must) - set(order):
                continue
            chosen = [history[number] for number in order]
            in_time = all(
                earlier.began <= later.end
                for at, earlier in enumerate(chosen)
                for later in chosen[at + 1 :]
            )
            if in_time and _lives(chosen):
                return True
    return False


def _lives(order: list[Operation]) -> bool:
    states = {MUTEX.start}
    for operation in order:
        states = {after for state in states for after in MUTEX.step(state, operation)}
    return bool(states)
