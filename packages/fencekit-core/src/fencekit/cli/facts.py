"""What `doctor` asks each server; what it may not ask is told as not known."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

from redis.exceptions import NoPermissionError, ResponseError

from fencekit.keys import names, process_channel

__all__ = ["NEEDED", "WAKES", "ClockReading", "NodeFacts", "ask"]

# What fencekit-core's scripts and connections use, with arguments that stand for all:
# docs/reference/acl.md, which a test compares. {key} and {channel} are of the asked prefix.
NEEDED: Final = {
    "eval": "eval x 0",
    "evalsha": "evalsha x 0",
    "get": "get {key}",
    "set": "set {key} x",
    "del": "del {key}",
    "pexpire": "pexpire {key} 1",
    "pttl": "pttl {key}",
    "time": "time",
    "hget": "hget {key} x",
    "hmget": "hmget {key} x",
    "hset": "hset {key} x x",
    "hdel": "hdel {key} x",
    "zadd": "zadd {key} 1 x",
    "zscore": "zscore {key} x",
    "zremrangebyscore": "zremrangebyscore {key} 0 0",
    "publish": "publish {channel} x",
    "subscribe": "subscribe {channel}",
    "unsubscribe": "unsubscribe {channel}",
    "ping": "ping",
}
NEEDED_ON_A_CLUSTER: Final = {
    "cluster|slots": "cluster slots",
    "asking": "asking",
    "command": "command",
}
# What FIFO locks use beside those; asked for where fencekit-fifo is installed.
NEEDED_FOR_FIFO: Final = {
    "exists": "exists {key}",
    "xadd": "xadd {key} * x x",
    "xdel": "xdel {key} 1-1",
    "xlen": "xlen {key}",
    "xrange": "xrange {key} - +",
    "zrem": "zrem {key} x",
}
# Without these locks work, and waiters are not woken.
WAKES: Final = frozenset({"publish", "subscribe", "unsubscribe", "ping"})

# acl_check_cmd judges by the user that runs the script; it came with Redis 7.0.
_FORBIDDEN: Final = """
local check = redis.acl_check_cmd
if not check then return false end
local forbidden = {}
for i, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
  local known, allowed = pcall(check, unpack(words))
  if known and not allowed then forbidden[#forbidden + 1] = i end
end
return forbidden
"""
_CLOCK_SAMPLES: Final = 5


@dataclass(frozen=True)
class ClockReading:
    """How a server's clock compares with this host's.

    Attributes:
        ahead: seconds that the server's clock is ahead of ours; negative when it is behind.
        round_trip: seconds that the quickest question took; half of it is the error.
    """

    ahead: float
    round_trip: float


@dataclass(frozen=True)
class NodeFacts:
    """What one server said of itself.

    Attributes:
        node: what it is called.
        info: the fields of INFO, or None where we may not ask.
        config: the settings that we may read.
        clock: its clock, or None where we may not ask.
        user: the ACL user, or None where it is not known.
        scripts: why scripts cannot be run, or None where they can.
        forbidden: commands of `NEEDED` that the ACL forbids; None where the server cannot tell.
        cluster: the fields of CLUSTER INFO; None where it is no cluster, or we may not ask.
    """

    node: str
    info: dict[str, Any] | None = None
    config: dict[str, str] = field(default_factory=dict)
    clock: ClockReading | None = None
    user: str | None = None
    scripts: str | None = None
    forbidden: tuple[str, ...] | None = None
    cluster: dict[str, str] | None = None


def ask(
    node: str,
    client: Any,
    prefix: str,
    *,
    is_cluster: bool = False,
    now: Callable[[], float] = time.time,
) -> NodeFacts:
    """Ask one server everything.

    Args:
        node: what it is called.
        client: a client of this one server.
        prefix: the prefix of the keys, for the ACL.
        is_cluster: whether it is a node of a cluster.
        now: this host's clock, seconds.

    Raises:
        redis.RedisError: the server cannot be reached.
    """
    scripts, forbidden = _forbidden(client, prefix, is_cluster=is_cluster)
    config = {
        _text(name): _text(value)
        for pattern in ("save", "min-*-to-write", "stop-writes-on-bgsave-error", "appendfsync")
        for name, value in (_may(client.config_get, pattern) or {}).items()
    }
    user = _may(client.acl_whoami)
    return NodeFacts(
        node=node,
        info=_may(client.info),
        config=config,
        clock=_clock(client, now),
        user=None if user is None else _text(user),
        scripts=scripts,
        forbidden=forbidden,
        cluster=_cluster(client) if is_cluster else None,
    )


def _may(question: Callable[..., Any], *args: Any) -> Any:
    """The answer, or None where we may not ask."""
    try:
        return question(*args)
    except ResponseError:
        return None


def _clock(client: Any, now: Callable[[], float]) -> ClockReading | None:
    readings = []
    for _ in range(_CLOCK_SAMPLES):
        started, before = time.perf_counter(), now()
        answer = _may(client.time)
        if answer is None:
            return None
        round_trip = time.perf_counter() - started
        at_server = answer[0] + answer[1] / 1_000_000
        readings.append(ClockReading(at_server - (before + round_trip / 2), round_trip))
    return min(readings, key=lambda reading: reading.round_trip)


def _forbidden(
    client: Any, prefix: str, *, is_cluster: bool
) -> tuple[str | None, tuple[str, ...] | None]:
    """Why scripts cannot be run, and which commands are forbidden, each None where it is not so."""
    needed = NEEDED | (NEEDED_ON_A_CLUSTER if is_cluster else {})
    if find_spec("fencekit.fifo") is not None:
        needed |= NEEDED_FOR_FIFO
    key, channel = names(prefix, "doctor").lock, process_channel(prefix, "doctor")
    lines = [line.replace("{key}", key).replace("{channel}", channel) for line in needed.values()]
    try:
        answer = client.eval(_FORBIDDEN, 0, *lines)
    except NoPermissionError as error:
        return str(error), None
    except ResponseError as error:
        text = str(error)
        # Out of memory, read-only, loading: another's business, told by what INFO says.
        return (text if "unknown command" in text.lower() else None), None
    if answer is None:
        return None, None
    order = list(needed)
    return None, tuple(order[index - 1] for index in answer)


def _cluster(client: Any) -> dict[str, str] | None:
    answer = _may(client.execute_command, "CLUSTER INFO")
    if isinstance(answer, dict):
        return {_text(name): _text(value) for name, value in answer.items()}
    if answer is None:
        return None
    lines = _text(answer).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
