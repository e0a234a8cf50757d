"""A worker process: takes jobs until there are none, or the runner is gone."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redis import Redis

from demo.bank import Bank
from demo.fenced import FencedWorker
from demo.ledger import Ledger
from demo.messages import Reporter
from demo.plain import PlainWorker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

__all__ = ["Setup", "main"]


@dataclass(frozen=True)
class Setup:
    """What every worker is started with.

    Attributes:
        url: the Redis or Valkey server.
        ledger: the ledger's file.
        fencekit: whether jobs are done with the library.
        seed: how long the bank takes for which event.
    """

    url: str
    ledger: Path
    fencekit: bool
    seed: int


def main(pipe: Connection, setup: Setup) -> None:
    """Do jobs that come over the pipe."""
    kind = FencedWorker if setup.fencekit else PlainWorker
    report = Reporter(pipe)
    with closing(Redis.from_url(setup.url)) as redis:
        worker = kind(redis, Ledger(setup.ledger), Bank(setup.seed), report)
        try:
            while job := report.next_job():
                report.tell(worker.do(job.delivery.event))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the runner is gone
