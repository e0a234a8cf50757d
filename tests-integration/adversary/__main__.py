"""Run the adversaries asked for, or all; exit with 1 when one has found a fault.

python -m adversary [NAME ...] [--minutes N]

An adversary is a module of this package with ``run(minutes: float) -> bool``, which prints what it
counted and returns whether everything held.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; returns the exit status."""
    known = sorted(
        module.name
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
        if not module.name.startswith("_")
    )
    parser = argparse.ArgumentParser(prog="adversary", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--minutes", type=float, default=3.0, help="the longest that all may take")
    asked = parser.parse_args(arguments)
    for unknown in set(asked.names) - set(known):
        parser.error(f"no adversary {unknown!r}; there are: {', '.join(known)}")
    names = asked.names or known
    held = True
    for name in names:
        began = time.monotonic()
        print(f"== {name}")
        ok = importlib.import_module(f"adversary.{name}").run(asked.minutes / len(names))
        held = held and ok
        print(f"== {name}: {'held' if ok else 'FAILED'} after {time.monotonic() - began:.0f} s")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
