"""Run the whole matrix, with the newest redis-py and with the oldest, and write what passed.

With arguments, which are pytest's, a part of it runs, and nothing is written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from conformance.results import RESULTS, Run
from conformance.table import page

ROOT = Path(__file__).parents[2]
_PAGE = ROOT / "docs" / "reference" / "support.md"
# Most of the time is spent waiting, hence more workers than cores.
_WORKERS = os.environ.get("FENCEKIT_CONFORMANCE_WORKERS", "4")
_SPREAD = ("-n", _WORKERS, "--dist", "loadgroup", "-q", "--no-header")
_COLUMNS = "tests-integration/conformance"
_CASES = "packages/fencekit-cache/tests/cases"


def _pytest(arguments: list[str], results: Path | None, environment: str | None = None) -> int:
    """Run pytest here, or in another environment of hatch's; returns its exit status."""
    command = [sys.executable, "-m", "pytest", *_SPREAD, *arguments]
    if environment is not None:
        hatch = shutil.which("hatch")
        if hatch is None:
            print("hatch is not on the PATH: the columns of the oldest redis-py are left out")
            return 1
        command = [hatch, "run", f"{environment}:pytest", *_SPREAD, *arguments]
    env = dict(os.environ)
    if results is not None:
        env[RESULTS] = str(results)
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def main() -> int:
    """Returns the exit status: 0 only if all passed."""
    if arguments := sys.argv[1:]:
        return _pytest([_COLUMNS, _CASES, *arguments], None)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fk-conformance-") as folder:
        newest, oldest = Path(folder) / "newest.json", Path(folder) / "oldest.json"
        failed = [
            _pytest([_COLUMNS, _CASES], newest),
            _pytest([_COLUMNS, "-k", "resp2 or resp3"], oldest, "conformance-oldest"),
        ]
        runs = [Run.read(path) for path in (newest, oldest) if path.exists()]
    _PAGE.write_text(page(runs))
    print(f"{_PAGE.relative_to(ROOT)} is written; {time.monotonic() - began:.0f} s in all")
    return max(failed)


if __name__ == "__main__":
    sys.exit(main())
