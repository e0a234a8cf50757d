"""What judges the long runs (adversary, soak, mutate) can say no, and a schedule comes again."""

from __future__ import annotations

import random

import pytest

from adversary.world import FAULTS, schedule
from mutation.lua import mutants
from soak.__main__ import BOUNDS, judge, theil_sen

TIMES = [float(second) for second in range(180)]


def flat(**instead: list[float]) -> list[dict[str, float]]:
    """Samples of a process that only jitters, but for what is given."""
    chance = random.Random(1)
    size = {"client memory": 60e6, "server memory": 4e6}
    columns = {
        what: [size.get(what, 20.0) * (1 + chance.uniform(-0.004, 0.004)) for _ in TIMES]
        for what in BOUNDS
    }
    columns |= {what.replace("_", " "): values for what, values in instead.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def grows(samples: list[dict[str, float]]) -> set[str]:
    return {what for what, one in judge(TIMES, samples).items() if one["growth"] > one["bound"]}


def test_jitter_and_a_warm_up_are_flat() -> None:
    assert grows(flat()) == set()
    warm = [min(60e6, 30e6 + 1e6 * t) for t in TIMES]
    assert grows(flat(client_memory=warm)) == set()


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("client_memory", [60e6 + 20e3 * t for t in TIMES]),
        ("server_memory", [4e6 + 8e3 * t for t in TIMES]),
        ("client_threads", [20 + t // 30 for t in TIMES]),
        ("client_descriptors", [20 + t // 60 for t in TIMES]),
        ("server_connections", [20 + t // 60 for t in TIMES]),
    ],
)
def test_what_grows_is_noticed(what: str, values: list[float]) -> None:
    assert grows(flat(**{what: values})) == {what.replace("_", " ")}


def test_a_few_outliers_bend_no_slope() -> None:
    values = [10.0 + (1e6 if 80 < t < 110 else 0) for t in TIMES]
    assert theil_sen(TIMES, values) == 0


def test_a_schedule_is_the_seeds_and_has_every_fault() -> None:
    assert schedule(60, 7) == schedule(60, 7) != schedule(60, 8)
    assert {what for _, what, _ in schedule(60, 7)} == set(FAULTS)


def test_mutants_of_a_script_differ_in_one_place_each() -> None:
    text = """--- Take it.
local lock = KEYS[1]
if redis.call('GET', lock) == 'x' and true then
  redis.call('DEL', lock)
  redis.pcall('PUBLISH', lock, 'a == 1')
end
return {1}
"""
    found = list(mutants(text))
    texts = [each[3] for each in found]
    assert len(set(texts)) == len(texts)
    assert text not in texts
    said = {now for _, _, now, _ in found}
    assert said >= {
        "if not (redis.call('GET', lock) == 'x' and true) then",
        "if redis.call('GET', lock) ~= 'x' and true then",
        "if redis.call('GET', lock) == 'x' or true then",
        "if redis.call('GET', lock) == 'x' and false then",
        "(removed)",
        "redis.pcall('PUBLISH', lock, 'a == 1') / redis.call('DEL', lock)",
        "redis.call('PUBLISH', lock, 'a == 1')",
        "return {2}",
    }
    # Neither texts, nor comments, nor what binds KEYS.
    assert not any("a ~= 1" in each or "KEYS[2]" in each or "Take it" not in each for each in texts)
