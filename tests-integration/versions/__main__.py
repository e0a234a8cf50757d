"""Freeze today's wire format under a release's name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness import servers
from harness.clients import opened
from versions.life import freeze


def main(name: str) -> None:
    """Write the file; refuses to replace one."""
    path = Path(__file__).parent / f"{name}.json"
    with servers.start() as server, opened(server.url) as client:
        frozen = freeze(client)
    with path.open("x") as file:
        json.dump(frozen, file, indent=1, sort_keys=True, ensure_ascii=False)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
