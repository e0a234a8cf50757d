"""A warning, once for each client, when the server may evict a lock that is held."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["warn_of_eviction"]

_log = logging.getLogger("fencekit")


def warn_of_eviction(info: Any, name: str) -> None:
    """Read the policy out of INFO memory and warn if it may evict.

    INFO is used because managed servers allow it where they forbid CONFIG. No answer, or one
    without a policy, is no reason to warn.
    """
    if not isinstance(info, bytes):
        return
    for line in info.splitlines():
        key, _, policy = line.partition(b":")
        if key == b"maxmemory_policy" and policy.strip() != b"noeviction":
            _log.warning(
                "the server of %r may evict a lock or record that is in use: its "
                "maxmemory-policy is %s; set it to noeviction, or keep locks on a server of "
                "their own",
                name,
                policy.strip().decode(errors="replace"),
                extra={
                    "event": "fencekit.server.may_evict",
                    "fencekit": {"policy": policy.strip().decode(errors="replace")},
                },
            )
