"""A lock is forced open for whom was looked at, not for whoever holds it by then.

Shown to fail: with a `force_release` that reads the holder again whatever token it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from harness.colours import Locks
from harness.servers import Server

LEASE = timedelta(seconds=30)


def test_a_later_holder_than_the_one_seen_is_left_alone(
    make_locks: Callable[..., Locks], server: Server
) -> None:
    locks = make_locks(server.url)
    seen = locks.acquire("job", ttl=LEASE)
    locks.release(seen)
    later = locks.acquire("job", ttl=LEASE)
    assert not locks.call("force_release", "job", token=int(seen.token))
    assert locks.call("inspect", "job").token == later.token
    assert locks.call("force_release", "job", token=later.token)
    assert locks.call("inspect", "job").token is None


@pytest.mark.parametrize("token", ["7", True, 7.0], ids=repr)
def test_what_is_no_token_is_refused(
    make_locks: Callable[..., Locks], server: Server, token: object
) -> None:
    locks = make_locks(server.url)
    with pytest.raises(TypeError, match=r"^the token must be an int, not (str|bool|float)$"):
        locks.call("force_release", "job", token=token)
