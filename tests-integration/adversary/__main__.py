"""Run the adversaries asked for, or all; exit with 1 when one has found a fault.

python -m adversary [NAME ...] [--minutes N] [--seed S]

An adversary is a module of this package with ``run(minutes: float) -> bool``, which prints what it
counted and returns whether everything held. What it does at random, in this process, follows from
the seed, so the same faults come again in the same order; what they meet is up to the machine.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import random
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
    parser.add_argument("--seed", type=int, help="of what is done at random; another each time")
    asked = parser.parse_args(arguments)
    seed = random.randrange(2**31) if asked.seed is None else asked.seed
    for unknown in set(asked.names) - set(known):
        parser.error(f"no adversary {unknown!r}; there are: {', '.join(known)}")
    names = asked.names or known
    held = True
    for name in names:
        began = time.monotonic()
        print(f"== {name}, --seed {seed}", flush=True)
        random.seed(seed)
        ok = importlib.import_module(f"adversary.{name}").run(asked.minutes / len(names))
        held = held and ok
        print(f"== {name}: {'held' if ok else 'FAILED'} after {time.monotonic() - began:.0f} s")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
