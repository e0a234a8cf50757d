"""Put a server into the states in which it refuses: out of memory, read-only, by its ACL.

Each is a context manager that ends the state after its block, so that a shared server can be used.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from harness.servers import Server

__all__ = ["cannot_save", "forbidden", "out_of_memory", "paused_clients", "read_only"]


@contextmanager
def out_of_memory(server: Server) -> Iterator[None]:
    """Refuse with OOM every command that may need memory."""
    server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server.call("CONFIG", "SET", "maxmemory", 1)
    try:
        yield
    finally:
        server.call("CONFIG", "SET", "maxmemory", 0)


@contextmanager
def read_only(server: Server) -> Iterator[None]:
    """Refuse every write with READONLY, as a primary does that was demoted."""
    # Nobody listens on port 1, so it keeps its data and goes on trying.
    server.call("REPLICAOF", "127.0.0.1", 1)
    try:
        yield
    finally:
        server.call("REPLICAOF", "NO", "ONE")


@contextmanager
def cannot_save(server: Server) -> Iterator[None]:
    """Refuse every write with MISCONF, as a server does whose disk is full."""
    # A folder with something in it cannot be replaced by the file that was saved.
    obstacle = server.folder / "dump.rdb"
    obstacle.unlink(missing_ok=True)
    (obstacle / "full").mkdir(parents=True)
    server.call("CONFIG", "SET", "save", "3600 1")
    server.call("BGSAVE")
    eventually(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err")
    try:
        yield
    finally:
        # Without points in time to save at, a failed save is no reason to refuse.
        server.call("CONFIG", "SET", "save", "")
        shutil.rmtree(obstacle)


@contextmanager
def paused_clients(server: Server, mode: str = "ALL") -> Iterator[None]:
    """Answer clients only after the block: all their commands, or with `WRITE` those that write."""
    server.call("CLIENT", "PAUSE", 60_000, mode)
    try:
        yield
    finally:
        server.call("CLIENT", "UNPAUSE")


@contextmanager
def forbidden(client: Any, command: str) -> Iterator[None]:
    """Refuse a command with NOPERM to everybody who is the default user, as this client is."""
    client.acl_setuser("default", enabled=True, commands=[f"-{command}"])
    try:
        yield
    finally:
        client.acl_setuser("default", enabled=True, commands=[f"+{command}"])
