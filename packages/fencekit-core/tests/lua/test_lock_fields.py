"""What else the scripts of the lock and of its gate leave and answer.

Each of these was asked for by a mutant of the scripts that nobody had noticed (`hatch run mutate`).
"""

from __future__ import annotations

from harness.lab import Lab


def test_a_value_may_live_for_a_single_millisecond(lab: Lab) -> None:
    token = lab.token(int(lab.acquire().token))
    lab.do(lab.write(token, "set"))
    assert lab.client.pttl(lab.target) == -1
    short = lab.write(token, "set")
    lab.client.eval(short.script.source, 3, *short.keys, *short.args[:-1], 1)
    assert lab.client.pttl(lab.target) in {0, 1, -2}


def test_the_lowest_token_is_known(lab: Lab) -> None:
    assert lab.current(remote=True) is None
    assert lab.passes(1, remote=True)
    assert lab.current(remote=True) == 1


def test_withdrawn_attempts_are_scored_by_the_servers_clock(lab: Lab) -> None:
    claimant = lab.claimant()
    lab.withdraw(claimant)
    seconds, micros = lab.client.time()
    score = lab.client.zscore(lab.names.gone, claimant.attempt)
    assert 0 <= seconds * 1000 + micros / 1000 - score < 2_000
