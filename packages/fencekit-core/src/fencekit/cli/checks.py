"""What the facts of a server mean: what is wrong, what comes of it, what to do about it.

``error``: something of fencekit does not work, or a held lock can vanish in ordinary operation.
``warning``: a guarantee is lost when something else fails as well: a restart, a failover, a clock.
``unknown``: we may not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from fencekit.cli.facts import NEEDED_FOR_FIFO, WAKES, NodeFacts
from fencekit.drivers.eviction import CURE, eviction_of

__all__ = ["CHECKS", "Finding", "Level", "judge"]

Level = Literal["ok", "warning", "error", "unknown"]

_OLDEST: Final = {"Redis": (6, 2), "Valkey": (7, 2)}
_CLOCK_TOLERANCE: Final = 2.0
_FULL: Final = 0.9
_SLOTS: Final = 16384
_NO_INFO: Final = "ACL SETUSER {user} +info, or run doctor as a user who may"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what was looked at.
        level: how bad it is.
        says: what was found.
        means: what comes of it; empty when nothing does.
        cure: what to do; empty when there is nothing to do.
        nodes: where.
    """

    check: str
    level: Level
    says: str
    means: str = ""
    cure: str = ""
    nodes: tuple[str, ...] = ()


def judge(facts: NodeFacts) -> Iterator[Finding]:
    """Everything that there is to say of one server."""
    for check in CHECKS:
        for finding in check(facts):
            cure = finding.cure.replace("{user}", facts.user or "USER")
            yield Finding(
                finding.check, finding.level, finding.says, finding.means, cure, (facts.node,)
            )


def version(facts: NodeFacts) -> Iterator[Finding]:
    """Whether the server is one that fencekit is tested with."""
    info = facts.info
    if info is None:
        yield Finding("version", "unknown", "INFO is not allowed", cure=_NO_INFO)
        return
    kind = "Valkey" if "valkey_version" in info else "Redis"
    found = str(info.get("valkey_version") or info.get("redis_version") or "0")
    others = ("dragonfly_version", "kvrocks_version", "garnet_version")
    other = next((name for name in others if name in info), None)
    if other is not None:
        yield Finding(
            "version",
            "warning",
            f"{other.partition('_')[0].capitalize()} {info[other]}",
            "fencekit is not tested with it: scripts and expiry may differ in what matters here",
            "keep locks and records on Redis or Valkey",
        )
    elif tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < _OLDEST[kind]:
        oldest = ".".join(map(str, _OLDEST[kind]))
        yield Finding(
            "version",
            "error",
            f"{kind} {found}",
            "fencekit is neither made for it nor tested with it: scripts fail, or do half of "
            "their work",
            f"upgrade to {kind} {oldest} or later",
        )
    else:
        yield Finding("version", "ok", f"{kind} {found}")


def role(facts: NodeFacts) -> Iterator[Finding]:
    """Whether it takes writes, and who copies them."""
    info = facts.info
    if info is None:
        yield Finding("replication", "unknown", "INFO is not allowed", cure=_NO_INFO)
        return
    if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):
        yield Finding(
            "replication",
            "error",
            "this is a Sentinel, not a server",
            "no lock can be taken here",
            "give redis+sentinel://HOST:PORT/SERVICE, and the primary is found",
        )
        return
    if info.get("role") in {"slave", "replica"}:
        of = f"{info.get('master_host')}:{info.get('master_port')}"
        yield Finding(
            "replication",
            "error",
            f"a read-only replica of {of}",
            "every lock, release and claim is refused with READONLY",
            f"connect to the primary, {of}, or through Sentinel",
        )
        return
    replicas = int(info.get("connected_slaves", 0))
    wanted, lag = _wanted_replicas(facts.config)
    good = int(info.get("min_slaves_good_slaves", replicas))
    if wanted and good < wanted:
        yield Finding(
            "replication",
            "error",
            f"{good} of the {wanted} replicas that min-replicas-to-write asks for",
            "every write is refused with NOREPLICAS until they are back",
            "bring the replicas back, or CONFIG SET min-replicas-to-write 0",
        )
    elif not replicas:
        yield Finding("replication", "ok", "primary, no replicas")
    elif wanted:
        yield Finding(
            "replication",
            "ok",
            f"primary, {_count(replicas, 'replica')}; cut off from them it stops granting "
            f"after {lag} s",
        )
    else:
        known = wanted is not None
        yield Finding(
            "replication",
            "warning",
            f"primary, {_count(replicas, 'replica')}; "
            + ("min-replicas-to-write is 0" if known else "min-replicas-to-write cannot be read"),
            "replicas lag: a failover may forget the last locks and records, and a primary that "
            "is cut off goes on granting locks that nobody else knows of. Tokens still rise",
            "CONFIG SET min-replicas-to-write 1, and DistributedLock(…, min_replicas=1) where two "
            "holders must not meet",
        )


def _wanted_replicas(config: dict[str, str]) -> tuple[int | None, str]:
    wanted = config.get("min-replicas-to-write", config.get("min-slaves-to-write"))
    return (None if wanted is None else int(wanted)), config.get("min-replicas-max-lag", "10")


def eviction(facts: NodeFacts) -> Iterator[Finding]:
    """Whether the server may throw a held lock away."""
    found = None if facts.info is None else eviction_of(facts.info)
    if found is None:
        yield Finding("eviction", "unknown", "the policy cannot be read", cure=_NO_INFO)
        return
    says = f"maxmemory-policy is {found.policy}"
    if found.level != "ok":
        says += (
            f", maxmemory is {_bytes(found.limit)}" if found.limit else "; maxmemory is not set yet"
        )
    yield Finding("eviction", found.level, says, found.means, CURE if found.means else "")


def memory(facts: NodeFacts) -> Iterator[Finding]:
    """Whether the server still takes writes that need memory."""
    limit, used = int(_of(facts, "maxmemory") or 0), int(_of(facts, "used_memory") or 0)
    if facts.info is None or not limit:
        return
    says = f"{_bytes(used)} of {_bytes(limit)} used"
    if used >= limit:
        yield Finding(
            "memory",
            "error",
            says,
            "full: locks and claims are refused with OOM. Releases and renewals still work",
            "raise maxmemory, or delete what the server should not hold",
        )
    elif used >= limit * _FULL:
        yield Finding(
            "memory",
            "warning",
            says,
            "when it is full, locks and claims are refused with OOM",
            "raise maxmemory, or delete what the server should not hold",
        )
    else:
        yield Finding("memory", "ok", says)


def persistence(facts: NodeFacts) -> Iterator[Finding]:
    """What a restart forgets."""
    append = _of(facts, "aof_enabled")
    if append is None:
        yield Finding("persistence", "unknown", "INFO is not allowed", cure=_NO_INFO)
        return
    failed = [
        what
        for name, what in (
            ("rdb_last_bgsave_status", "the last snapshot"),
            ("aof_last_write_status", "the last write of the append-only file"),
            ("aof_last_bgrewrite_status", "the last rewrite of the append-only file"),
        )
        if _of(facts, name) == "err"
    ]
    if failed:
        yield Finding(
            "saving",
            "error",
            f"{' and '.join(failed)} failed",
            "the server refuses writes with MISCONF, or will when it is told to save",
            "look at its disk and its log",
        )
    if int(append):
        fsync = facts.config.get("appendfsync", "everysec")
        yield Finding("persistence", "ok", f"append-only file, appendfsync {fsync}")
        return
    save = facts.config.get("save")
    replicas = int(_of(facts, "connected_slaves") or 0)
    copied = (
        " A primary that comes back empty empties its replicas too."
        if replicas and not save
        else ""
    )
    if save:
        says, lost = "snapshots alone (no append-only file)", "what was written since the last one"
    elif save is None:
        says, lost = "no append-only file; snapshots cannot be read", "at least the last minutes"
    else:
        says, lost = "none: no append-only file, no snapshots", "everything"
    yield Finding(
        "persistence",
        "warning",
        says,
        f"a restart forgets {lost}: held locks are free while their holders still work, and jobs "
        f"that are done run again. Tokens still rise, so a gate refuses the old holders.{copied}",
        "CONFIG SET appendonly yes (appendfsync everysec loses a second at most), and the same in "
        "the server's configuration",
    )


def clock(facts: NodeFacts) -> Iterator[Finding]:
    """Whether the server's clock tells the time that this host's does."""
    if facts.clock is None:
        yield Finding("clock", "unknown", "TIME is not allowed", cure="ACL SETUSER {user} +time")
        return
    ahead = facts.clock.ahead
    if abs(ahead) <= _CLOCK_TOLERANCE + facts.clock.round_trip:
        yield Finding("clock", "ok", "agrees with this host's")
        return
    behind = ahead < 0
    yield Finding(
        "clock",
        "warning",
        f"{abs(ahead):.0f} s {'behind' if behind else 'ahead of'} this host's",
        "one of the two is wrong. Leases do not care, but tokens are minted from the server's "
        "clock: after a lost record, or a failover to a server whose clock is right, "
        + (
            "tokens may start below those that were given out, and a stale writer passes."
            if behind
            else "tokens start below those that were given out, and a database that holds the "
            "larger ones refuses every new holder."
        ),
        "run chrony or ntpd on both hosts. Where tokens are in a database, lift the fences above "
        "them afterwards: DistributedLock.advance_fence, or manage.py fencekit_reseed",
    )


def scripts(facts: NodeFacts) -> Iterator[Finding]:
    """Whether we may run scripts, and what they call."""
    if facts.scripts is not None:
        yield Finding(
            "permissions",
            "error",
            f"scripts are forbidden ({facts.scripts})",
            "nothing of fencekit works: each lock, release, gate and claim is one script",
            "ACL SETUSER {user} +eval +evalsha and the rest of the smallest ACL "
            "(docs/reference/acl.md); where EVAL was renamed or disabled, allow it again",
        )
    elif facts.forbidden is None:
        # Redis 6.2 cannot say; what is forbidden shows when it is tried.
        return
    elif not facts.forbidden:
        yield Finding("permissions", "ok", f"{facts.user or 'this user'} may do what is needed")
    else:
        missing = facts.forbidden
        base = [name for name in missing if name not in WAKES | set(NEEDED_FOR_FIFO)]
        yield from _forbidden(
            base,
            "error",
            "scripts that need one fail with NOPERM, some of them half-way",
            "the key pattern (~PREFIX:*)",
        )
        yield from _forbidden(
            [name for name in missing if name in WAKES],
            "warning",
            "waiters are not woken: each process looks twice a second instead",
            "the channel pattern (&PREFIX:*)",
        )
        yield from _forbidden(
            [name for name in missing if name in NEEDED_FOR_FIFO and not base],
            "warning",
            "FIFO locks fail with NOPERM; all others work",
            "the key pattern (~PREFIX:*)",
        )


def _forbidden(missing: list[str], level: Level, means: str, pattern: str) -> Iterator[Finding]:
    if missing:
        rules = " ".join(f"+{name}" for name in missing)
        yield Finding(
            "permissions",
            level,
            f"{', '.join(name.upper().replace('|', ' ') for name in missing)} forbidden",
            means,
            f"ACL SETUSER {{user}} {rules}; if they are allowed, it is {pattern} that is missing",
        )


def cluster(facts: NodeFacts) -> Iterator[Finding]:
    """Whether all slots are served."""
    state = facts.cluster
    if state is None:
        return
    served = int(state.get("cluster_slots_ok", _SLOTS))
    if state.get("cluster_state") == "ok" and served == _SLOTS:
        size = int(state.get("cluster_size", 0))
        yield Finding("cluster", "ok", f"{_count(size, 'primary', 'primaries')}, all slots served")
    else:
        yield Finding(
            "cluster",
            "error",
            f"state {state.get('cluster_state')}, {served} of {_SLOTS} slots served",
            "names in the other slots are refused with CLUSTERDOWN",
            "bring the missing nodes back, or give their slots to others",
        )


CHECKS: Final[tuple[Callable[[NodeFacts], Iterator[Finding]], ...]] = (
    version,
    role,
    cluster,
    eviction,
    memory,
    persistence,
    clock,
    scripts,
)


def _of(facts: NodeFacts, name: str) -> Any:
    return None if facts.info is None else facts.info.get(name)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _bytes(size: int) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":  # noqa: PLR2004 - binary units
            break
        size /= 1024  # type: ignore[assignment]
    return f"{size:.3g} {unit}" if unit != "bytes" else f"{size} bytes"
