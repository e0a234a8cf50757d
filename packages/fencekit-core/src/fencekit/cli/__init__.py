"""The `fencekit` command: what is in Redis, and what is wrong with it (extra `cli`).

::

    python -m pip install "fencekit-core[cli]"
    export FENCEKIT_REDIS_URL=redis://localhost:6379/0
    fencekit doctor

`import fencekit` loads nothing of this. What it prints never holds a password.
"""

from __future__ import annotations

import logging
import sys

__all__ = ["main"]

_WITHOUT_THE_EXTRA = (
    'the fencekit command needs typer and rich: python -m pip install "fencekit-core[cli]"'
)


def main() -> None:
    """Run the command, or say what it needs; ends the process with its exit code.

    Raises:
        SystemExit: always.
    """
    try:
        from fencekit.cli.app import run  # noqa: PLC0415 - a wish for the extra, not a traceback
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"typer", "rich"}:
            raise
        sys.stderr.write(f"{_WITHOUT_THE_EXTRA}\n")
        sys.exit(2)
    # What the library would warn of, doctor says better.
    logging.getLogger("fencekit").addHandler(logging.NullHandler())
    sys.exit(run())
