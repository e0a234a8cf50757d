"""The columns that are run stand for those that are not: what is together, and what must be."""

from __future__ import annotations

import pytest

from conformance import columns
from conformance.columns import PROFILES, QUICK, Profile, covering, every, profile_of, together


def missing(run: list[Profile], wanted: list[Profile], count: int) -> set[object]:
    there = set[object]().union(*(together(profile, count) for profile in run))
    return set[object]().union(*(together(profile, count) for profile in wanted)) - there


@pytest.mark.skipif(columns.OLDEST, reason="the oldest redis-py has columns of its own")
def test_every_three_things_are_together_in_some_column() -> None:
    everything = every(("redis", "valkey"))
    plain = [profile for profile in PROFILES if profile.acl is None]
    assert not missing(plain, everything, 3)
    # The judge bites: without one server's clusters something is missing.
    fewer = [profile for profile in plain if profile.stage != "redis-6.2-cluster"]
    assert missing(fewer, everything, 3)


@pytest.mark.skipif(columns.OLDEST, reason="the oldest redis-py has columns of its own")
def test_the_newest_server_meets_every_client_with_every_setting() -> None:
    assert sum(profile.stage == "valkey-9.1-single" for profile in PROFILES) == 2 * 2 * 2 * 2


def test_every_two_things_are_together_with_the_oldest_redis_py() -> None:
    everything = every(("redis",))
    assert not missing(covering(everything, [], 2), everything, 2)


@pytest.mark.skipif(columns.OLDEST, reason="the oldest redis-py has columns of its own")
def test_what_a_change_must_pass_is_among_them() -> None:
    names = [str(profile) for profile in PROFILES]
    assert set(names) >= QUICK
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("profile", [PROFILES[0], PROFILES[-1]], ids=["first", "last"])
def test_a_name_says_what_the_column_is(profile: Profile) -> None:
    facts = profile_of(f"test_x[{profile}]")
    assert facts == {
        "kind": profile.kind.name,
        "topology": profile.topology,
        "acl": "" if profile.acl is None else "-acl",
        "colour": profile.colour,
        "family": profile.family,
        "resp": str(profile.resp),
        "replies": "str" if profile.decode else "bytes",
    }
