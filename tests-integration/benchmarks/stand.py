"""The server that benchmarks run on, what it counts, and the pinning of processes to cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import clients, servers
from harness.servers import Server
from harness.wire import Wire

__all__ = ["Cost", "Stand", "opened_stand"]

# The floor: what any lock on this client pays for one key set with a lease, and for its removal.
SET = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])"
DEL = "return redis.call('DEL', KEYS[1])"


@dataclass
class Cost:
    """What some work cost on the server.

    Attributes:
        bytes_in: how many bytes came over the network.
        script_us: microseconds that scripts ran.
    """

    bytes_in: int = 0
    script_us: int = 0


class Stand:
    """One server for a whole run, empty at the beginning of each scenario.

    Attributes:
        server: the server.
        set_sha: the floor's script that sets a key with a lease, loaded.
        del_sha: the floor's script that deletes it, loaded.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.set_sha = self.del_sha = ""
        self.clean()

    def clean(self) -> None:
        """Empty the server, and load the floor's scripts."""
        self.server.clean()
        self.set_sha, self.del_sha = (
            self.server.call("SCRIPT", "LOAD", source).decode() for source in (SET, DEL)
        )

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Yield a sync client with the library's own defaults."""
        with clients.opened(self.server.url) as client:
            yield client

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Pin the server and this process to one and the same core, as the peers were measured.

        A cycle then costs what both sides compute, and neither the time that an idle core takes
        to wake up nor the scheduler's choices, which would make every contender look alike.
        """
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        before = os.sched_getaffinity(0)
        core = {max(before)}
        try:
            self._pin(core)
            yield
        finally:
            self._pin(before)

    def _pin(self, cores: set[int]) -> None:
        os.sched_setaffinity(0, cores)
        # The server's own threads too: each has an affinity of its own.
        for thread in Path(f"/proc/{self.server.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)

    @contextmanager
    def counting(self) -> Iterator[Cost]:
        """Count what the block costs the server; what is yielded is filled in at its end."""
        cost = Cost()
        self.server.call("CONFIG", "RESETSTAT")
        began = self._bytes_in()
        yield cost
        cost.bytes_in = self._bytes_in() - began - _OWN_BYTES
        cost.script_us = sum(
            int(fields["usec"])
            for name, fields in self._commandstats().items()
            if name in {"eval", "evalsha"}
        )

    @contextmanager
    def monitoring(self) -> Iterator[list[bytes]]:
        """List the commands that arrive during the block, those that scripts call left out.

        The list is filled in at its end. Slows the server down: nothing is timed meanwhile.
        """
        seen: list[bytes] = []
        with Wire(self.server.unix_path) as monitor:
            monitor.call("MONITOR")
            yield seen
            self.server.call("ECHO", _END)
            while _END not in (line := monitor.receive()):
                if not line.partition(b'"')[0].rstrip(b" ").endswith(b"lua]"):
                    seen.append(line)

    def connections(self, name: str | None = None) -> int:
        """How many connections there are, of a client's name and made like its own, or of anybody.

        Our own questions come over the unix socket, and are not counted.
        """
        lines = self.server.call("CLIENT", "LIST").decode().splitlines()
        ours = f"laddr={self.server.host}:" if name is None else f" name={name} "
        return sum(ours in line for line in lines)

    def memory(self) -> int:
        """Bytes that the data set takes, by the server's own account."""
        return int(self.server.info("memory")["used_memory_dataset"])

    def _bytes_in(self) -> int:
        return int(self.server.info("stats")["total_net_input_bytes"])

    def _commandstats(self) -> dict[str, dict[str, str]]:
        return {
            name.removeprefix("cmdstat_"): dict(part.split("=", 1) for part in text.split(","))
            for name, text in self.server.info("commandstats").items()
        }


_END = b"the end of what is monitored"
# INFO stats, as the harness sends it: counted by itself before it is answered.
_OWN_BYTES = len(b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n")


@contextmanager
def opened_stand() -> Iterator[Stand]:
    """Start a server of the default kind; it ends with the block."""
    with servers.start() as server:
        yield Stand(server)
