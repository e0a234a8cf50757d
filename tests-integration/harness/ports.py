"""Choose TCP ports that nobody else takes in the meantime."""

from __future__ import annotations

import random
import socket
from contextlib import closing

HOST = "127.0.0.1"

# Below the range from which the kernel takes ports for outgoing connections, so that a restarted
# server finds its port free; a cluster bus uses the port plus 10,000, which is below it too.
_RANGE = range(10_500, 22_000)
BUS_OFFSET = 10_000


def free_port(*, with_bus: bool = False) -> int:
    """Return a port on which nobody listens, and nobody on its cluster bus port if asked."""
    # The operating system's randomness: a test that seeds `random` must not repeat our choices.
    for port in random.SystemRandom().sample(_RANGE, 200):
        if _is_free(port) and not (with_bus and not _is_free(port + BUS_OFFSET)):
            return port
    raise RuntimeError("found no free TCP port")


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        # As the servers do; without it a port with old connections would look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
