"""When a lease is renewed and when it counts as lost: arithmetic, no clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencekit.protocol.renewal import Renewal, margin

LEASE = 30.0


def renewal(**terms: object) -> Renewal:
    """Return the schedule of a lease that was confirmed at 100."""
    return Renewal(LEASE, 100.0 + LEASE, **terms)  # type: ignore[arg-type]


def test_it_is_renewed_at_a_third() -> None:
    schedule = renewal()
    assert schedule.due(100.0).look_at == 110.0
    assert not schedule.due(109.9).renew
    due = schedule.due(110.0)
    assert (due.renew, due.lost, due.look_at) == (True, False, schedule.lost_at)


def test_it_is_lost_a_margin_before_the_server_would_let_it_go() -> None:
    schedule = renewal()
    assert schedule.lost_at == 129.5
    assert not schedule.due(129.49).lost
    assert schedule.due(129.5).lost
    assert not schedule.due(129.5).renew


@pytest.mark.parametrize(
    ("lease", "expected"), [(0.1, 0.005), (1.0, 0.05), (10.0, 0.5), (3600, 0.5)]
)
def test_the_margin_is_a_twentieth_and_at_most_half_a_second(lease: float, expected: float) -> None:
    assert margin(lease) == pytest.approx(expected)


def test_a_confirmation_counts_from_its_send() -> None:
    schedule = renewal()
    schedule.confirm(111.0)
    assert schedule.deadline == 141.0
    assert schedule.due(111.0).look_at == 121.0


def test_an_older_confirmation_does_not_shorten() -> None:
    schedule = renewal()
    schedule.confirm(111.0)
    schedule.confirm(105.0)
    assert schedule.deadline == 141.0


def test_a_failed_renewal_is_tried_again_soon_without_hammering() -> None:
    schedule = renewal()
    schedule.retry(110.0)
    assert schedule.due(110.0).look_at == 111.0
    short = Renewal(1.2, 101.2)
    short.retry(100.4)
    assert short.due(100.4).look_at == pytest.approx(100.5)


def test_a_lease_that_is_only_watched_is_never_renewed() -> None:
    schedule = renewal(renews=False)
    due = schedule.due(120.0)
    assert (due.renew, due.lost, due.look_at) == (False, False, schedule.lost_at)
    assert schedule.due(129.5).lost


def test_max_hold_ends_the_renewal_and_then_the_lease_runs_out() -> None:
    schedule = renewal(hold_until=115.0)
    assert schedule.due(114.0).renew
    due = schedule.due(115.0)
    assert (due.renew, due.lost, due.look_at) == (False, False, 129.5)
    assert schedule.due(129.5).lost


def test_it_is_late_by_more_than_half_a_lease() -> None:
    schedule = renewal()
    assert not schedule.late(125.0)
    assert schedule.late(125.1)


@given(
    st.floats(0.05, 3600),
    st.lists(st.tuples(st.sampled_from(["confirm", "retry", "nothing"]), st.floats(0, 0.4))),
)
def test_it_is_never_both_and_always_looks_ahead_until_it_is_lost(
    lease: float, events: list[tuple[str, float]]
) -> None:
    """Whatever happens: lost is announced before the server's expiry, and never while confirmed."""
    now = 1000.0
    schedule = Renewal(lease, now + lease)
    expires = now + lease
    for what, step in events:
        now += step * lease
        due = schedule.due(now)
        assert not (due.lost and due.renew)
        if due.lost:
            assert now >= expires - margin(lease) - 1e-6
            return
        assert now < expires
        assert due.renew or due.look_at > now
        assert due.look_at <= schedule.lost_at + 1e-9
        if what == "confirm":
            schedule.confirm(now)
            expires = max(expires, now + lease)
        elif what == "retry":
            schedule.retry(now)
