"""The same job done without fencekit: read, work, write, acknowledge, as many workers do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from demo.messages import Entered, Finished, How, Point, Reporter

if TYPE_CHECKING:
    from redis import Redis

    from demo.bank import Bank
    from demo.deliveries import Event
    from demo.ledger import Ledger

__all__ = ["PlainWorker"]


class PlainWorker:
    """Does jobs, and trusts that nothing happens twice and nobody oversleeps."""

    def __init__(self, redis: Redis, ledger: Ledger, bank: Bank, report: Reporter) -> None:
        self._redis = redis
        self._ledger = ledger
        self._bank = bank
        self._report = report

    def do(self, event: Event) -> Finished:
        """Have an event take effect."""
        self._report.at(Point.CLAIMED)
        amount = self._ledger.amount(event.balance)
        self._report.tell(Entered(None, amount))
        self._bank.confirm(event)
        self._report.at(Point.WORKED)
        amount += event.change
        with self._ledger.transaction():
            result = self._ledger.post_unfenced(event, amount)
            self._report.at(Point.WRITING)
        self._report.at(Point.COMMITTED)
        self._redis.set(f"balance:{event.balance}", amount)
        self._report.at(Point.COMPLETED)
        return Finished(How.RAN, result)
