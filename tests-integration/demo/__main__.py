"""Run the demo: `hatch run demo`, or `hatch run demo --no-fencekit` to see what it is good for."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from redis import Redis

from demo import deliveries, generate, worker
from demo.audit import examine
from demo.ledger import Ledger
from demo.report import Report
from demo.runner import Runner, WorkerCrashed
from fencekit import embedded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

_OK, _DAMAGE, _BAD_INPUT, _INTERRUPTED = 0, 1, 2, 130
_FEWEST_WORKERS: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return the status to exit with: 0 where every event took effect once."""
    options = _options(argv)
    try:
        todo = deliveries.read(options.file, options.limit)
    except deliveries.BadInput as error:
        print(f"demo: {error}", file=sys.stderr)
        return _BAD_INPUT
    # A terminal that is closed, and `kill`, are no reason to leave processes behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return _run(todo, options)
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except WorkerCrashed as error:
        print(f"demo: {error}", file=sys.stderr)
        return _DAMAGE


def _run(todo: Sequence[deliveries.Delivery], options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        url = stack.enter_context(embedded.server())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencekit-demo-")))
        redis = stack.enter_context(closing(Redis.from_url(url)))
        path = folder / "ledger.sqlite3"
        stack.enter_context(closing(Ledger.create(path, {d.event.balance for d in todo})))

        report = Report(len(todo))
        setup = worker.Setup(url, path, options.fencekit, options.seed)
        runner = Runner(todo, setup, report)
        started = time.monotonic()
        with report.running("with fencekit" if options.fencekit else "without fencekit"):
            runner.run(options.workers)
        seconds = time.monotonic() - started

        findings = examine(path, redis, todo, runner.count.answers)
        report.table(runner, findings, seconds)
        for story in runner.stories:
            report.story(story)
        report.verdict(findings, runner.count.late)
    return _OK if findings.exactly_once else _DAMAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="demo",
        description="An at-least-once job runner whose workers are killed and frozen.",
        epilog="Exits with 0 if every event took effect exactly once, 1 if not, 2 for bad input.",
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=generate.FILE,
        help="webhook deliveries as JSON Lines (default: those that ship with the demo)",
    )
    parser.add_argument(
        "--no-fencekit",
        dest="fencekit",
        action="store_false",
        help="the same faults without the library",
    )
    parser.add_argument("--seed", type=int, default=1, help="of faults and delays (default: 1)")
    parser.add_argument("--workers", type=int, default=4, help="how many processes (default: 4)")
    parser.add_argument("--limit", type=int, help="only the first so many deliveries")
    return parser


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.workers < _FEWEST_WORKERS:
        parser.error("--workers must be 2 or more: one is frozen, and another takes over")
    if options.limit is not None and options.limit < 1:
        parser.error("--limit must be 1 or more")
    return options


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
