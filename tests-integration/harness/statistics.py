"""Count, on the server's side, the commands that arrive between two points."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.servers import Server

# The harness's own question, which the server counts when it has answered it.
_OWN = "info"


class CommandStats:
    """The commands that a server got since this was made, by lower-case name.

    Subcommands are counted under their full name, such as `client|setinfo`; commands that a script
    calls are counted as well, which is what their cost on the server is.
    """

    def __init__(self, server: Server) -> None:
        """Start counting now."""
        self._server = server
        self._before: Counter[str] = Counter()
        self.restart()

    def restart(self) -> None:
        """Count from now on."""
        self._before = self._read()
        self._before[_OWN] += 1

    def counts(self) -> Counter[str]:
        """Return how often each command came so far."""
        now = self._read()
        return +Counter({name: count - self._before[name] for name, count in now.items()})

    def total(self, *names: str) -> int:
        """Return how many commands of these names came, or of all names if none is given."""
        counts = self.counts()
        return sum(counts[name.lower()] for name in names) if names else sum(counts.values())

    def _read(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for key, value in self._server.info("commandstats").items():
            fields = dict(part.split("=", 1) for part in value.split(","))
            found[key.removeprefix("cmdstat_")] = int(fields["calls"])
        return found
