"""Whether a server may throw away a lock that is held: judged here, said wherever it matters.

Objects warn once for each client; the `fencekit` command and Django's `fencekit_doctor` report it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["CURE", "Eviction", "eviction_of", "warn_of_eviction"]

_log = logging.getLogger("fencekit")

CURE: Final = (
    "CONFIG SET maxmemory-policy noeviction, and the same in the server's configuration; or keep "
    "locks and records on a server without a cache"
)


@dataclass(frozen=True)
class Eviction:
    """What a server does when its memory is full.

    Attributes:
        policy: its ``maxmemory-policy``.
        limit: its ``maxmemory`` in bytes; 0 when it has none.
    """

    policy: str
    limit: int

    @property
    def level(self) -> Literal["ok", "warning", "error"]:
        """How bad it is: a policy alone does nothing until a limit is set."""
        if self.policy == "noeviction":
            return "ok"
        return "error" if self.limit else "warning"

    @property
    def means(self) -> str:
        """What comes of it; empty when nothing does."""
        if self.policy == "noeviction":
            return ""
        when = "once the memory is full" if self.limit else "once maxmemory is set and reached"
        which = "any key" if self.policy.startswith("allkeys") else "any key that expires"
        return (
            f"{when}, {which} may be thrown away, and all of fencekit's keys expire: a lock that "
            "is held becomes free and a second worker enters; a job that is done runs again"
        )


def eviction_of(memory: Mapping[str, Any]) -> Eviction | None:
    """Read it out of what INFO memory says, or None when that names no policy.

    INFO is used because managed servers allow it where they forbid CONFIG.
    """
    policy = memory.get("maxmemory_policy")
    return None if policy is None else Eviction(str(policy), int(memory.get("maxmemory") or 0))


def warn_of_eviction(info: Any, name: str) -> None:
    """Warn if the answer to INFO memory, as it came, has a policy that may evict.

    No answer, or one without a policy, is no reason to warn. A policy without a limit is: the limit
    is often set later, by somebody who knows of no locks.
    """
    if not isinstance(info, bytes):
        return
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    found = eviction_of({key: value.strip() for key, _, value in lines})
    if found is not None and found.level != "ok":
        _log.warning(
            "the server of %r may evict a lock or record that is in use: its maxmemory-policy is "
            "%s; set it to noeviction, or keep locks on a server of their own",
            name,
            found.policy,
            extra={"event": "fencekit.server.may_evict", "fencekit": {"policy": found.policy}},
        )
