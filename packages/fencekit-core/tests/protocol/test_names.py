"""Keys, names and durations: what they look like, and what cannot be one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencekit.durations import LONGEST_LEASE, milliseconds, seconds_to_wait
from fencekit.keys import check_owner_id, is_own_key, names
from fencekit.owners import current_owner_id, current_task_owner_id


def test_keys_are_spelled_as_the_protocol_says() -> None:
    own = names("fencekit", "invoices")
    assert own.lock == "fencekit:{invoices}:lock"
    assert own.fence == "fencekit:{invoices}:fence"
    assert own.gone == "fencekit:{invoices}:gone"
    assert own.idem == "fencekit:{invoices}:idem"
    assert own.wake == "fencekit:{invoices}:wake"
    assert (own.prefix, own.name) == ("fencekit", "invoices")


@pytest.mark.parametrize(
    "name",
    ["a", "a:b", "a{b", "a}b", "ö" * 256, "x" * 512, "日本", "a/b?c=d", "\U0001f512"],
)
def test_what_may_be_a_name(name: str) -> None:
    assert names("p", name).lock == f"p:{{{name}}}:lock"


@pytest.mark.parametrize(
    "blank", [" ", "\t", "\n", "\x00", "\x1f", "\x7f", "\x9f", "\xa0", "\u2028"]
)
def test_what_may_not_be_in_a_name(blank: str) -> None:
    with pytest.raises(ValueError, match="whitespace or a control character"):
        names("p", f"a{blank}b")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50), st.text())
def test_whose_keys_are_ours(name: str, other: str) -> None:
    try:
        own = names("fencekit", name)
    except ValueError:
        return
    for key in (own.lock, own.fence, own.gone, own.idem, own.queue, own.tickets, own.members):
        assert is_own_key("fencekit", key)
        assert not is_own_key("fence", key)
    assert not is_own_key("fencekit", other) or other.startswith("fencekit:{")


def test_keys_that_only_look_alike_are_not_ours() -> None:
    for key in ("fencekit:lock", "fencekit:{a}:status", "{a}:lock", "my:fencekit:{a}:lock"):
        assert not is_own_key("fencekit", key)


def test_own_owner_ids_are_owner_ids() -> None:
    assert check_owner_id(current_owner_id()) == current_owner_id()
    assert current_task_owner_id() == current_owner_id(), "outside of a task"


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        (timedelta(seconds=1), 1_000),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=1_500), 2),
        (timedelta(milliseconds=2.4), 2),
        (LONGEST_LEASE, 3653 * 86_400_000),
    ],
)
def test_durations_become_milliseconds(duration: timedelta, ms: int) -> None:
    assert milliseconds(duration, "ttl") == ms


@pytest.mark.parametrize(
    ("wait", "blocking", "seconds"),
    [
        (None, False, None),
        (timedelta(0), False, 0.0),
        (timedelta(0), True, 0.0),
        (timedelta(seconds=2), False, 2.0),
        (timedelta.max, True, timedelta.max.total_seconds()),
    ],
)
def test_waiting(wait: timedelta | None, blocking: bool, seconds: float | None) -> None:  # noqa: FBT001
    assert seconds_to_wait(wait, blocking=blocking) == seconds
