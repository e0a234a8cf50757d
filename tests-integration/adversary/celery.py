"""The shop: 500 orders through two workers that are killed, stopped and restarted at random.

The workers of ``orders`` run as users run them. Now and then a whole worker is killed, a process of
its pool, a worker is stopped past its lease and continued, or shut down warm; the broker, which is
also the place of records and results, is killed and restarted once. In the end each order was
charged once, mailed once and closed once, with what the bank and the mail server have said.

Kombu pops a message off its list, and notes that it was taken in a second command: a worker that is
killed between the two, or a broker before its answer is out, loses the message, whatever a library
does (``drivers/test_transport.py`` of fencekit-celery shows it with kombu alone). So who placed the
orders looks after those that are still open when nothing is left to do, and places them again, as
anybody must. For each of them the broker's own log of writes has to have a message of this order
that was popped and never noted. An order that is open without one is our loss: none is allowed.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fencekit import idempotency_key
from fencekit.celery.stores import store_of
from harness import servers
from harness.letters import DURABLE, letters
from harness.servers import Server
from harness.workers import Worker, close_app

__all__ = ["run"]

ORDERS = 500
WORKERS = 2
LEASE = 2.0
# Seconds between two faults.
PAUSES = (1.0, 4.0)


class Crew:
    """The workers, and what is done to them."""

    def __init__(self, broker: Server, shop: Server) -> None:
        self._broker = broker
        self._env = {
            "ORDERS_REDIS_URL": broker.url,
            "ORDERS_SHOP_URL": shop.url,
            "ORDERS_VISIBILITY": "6",
        }
        self.done: Counter[str] = Counter()
        self.unexplained = 0
        self.workers = [self._start() for _ in range(WORKERS)]

    def harm(self) -> None:
        """Do something to one of them."""
        at = random.randrange(WORKERS)
        worker = self.workers[at]
        how = random.choice(["kill", "kill", "pool", "stop", "warm"])
        self.done[how] += 1
        if how == "kill":
            worker.kill()
            self.workers[at] = self._start()
        elif how == "pool":
            children = _children(worker.process.pid)
            if children:
                os.kill(random.choice(children), signal.SIGKILL)
        elif how == "stop":
            os.killpg(worker.process.pid, signal.SIGSTOP)
            time.sleep(LEASE * 1.5)
            os.killpg(worker.process.pid, signal.SIGCONT)
        else:
            worker.signal(signal.SIGTERM)
            try:
                worker.ended(20)
            except subprocess.TimeoutExpired:
                self.done["warm, killed after 20 s"] += 1
            worker.kill()
            self.workers[at] = self._start()

    def keep(self) -> None:
        """Replace those that have ended."""
        for at, worker in enumerate(self.workers):
            if not worker.process.alive:
                worker.kill()
                self.workers[at] = self._start()

    def end(self) -> None:
        """End all."""
        for worker in self.workers:
            worker.kill()

    def _start(self) -> Worker:
        return Worker(self._broker, app="orders.app", concurrency=3, env=self._env)


def _children(pid: int) -> list[int]:
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # After the name in parentheses: the state, then the parent.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    children.append(int(entry.name))
    return children


@contextmanager
def _shop(broker: Server, outside: Server) -> Iterator[Any]:
    os.environ.update(ORDERS_REDIS_URL=broker.url, ORDERS_SHOP_URL=outside.url)
    yield importlib.import_module("orders.app")


def run(minutes: float) -> bool:
    """Place the orders, do harm meanwhile, and count."""
    with servers.start(args=DURABLE) as broker, servers.start() as outside:
        with _shop(broker, outside) as module:
            shop = module.shop()
            names = [f"o-{number}" for number in range(ORDERS)]
            crew = Crew(broker, outside)
            try:
                again = _hammer(module, crew, broker, names, minutes * 60)
            finally:
                crew.end()
                gc.collect()  # results unsubscribe when they go
                close_app(module.app)
        return _judge(shop, names, again, crew)


def _hammer(module: Any, crew: Crew, broker: Server, names: list[str], seconds: float) -> int:
    shop = module.shop()
    began = time.monotonic()
    # The last part is for peace: what was put off comes back, and the visibility timeout passes.
    war = began + min(seconds * 0.7, 120)
    restarted, placed, again, next_harm = False, 0, 0, began + 5
    idle_since, known = None, set[str]()
    # A machine that is slow gets the same again, as long as there are messages to be run.
    while time.monotonic() < began + seconds * (1 + bool(_messages(broker))):
        now = time.monotonic()
        if placed < len(names):
            due = int(len(names) * min(1.0, (now - began) / max(1.0, (war - began) * 0.8)))
            for name in names[placed:due]:
                module.place(name, 500)
            placed = max(placed, due)
        if now < war and now > next_harm:
            crew.harm()
            next_harm = time.monotonic() + random.uniform(*PAUSES)
        if not restarted and now > began + (war - began) / 2:
            restarted = True
            broker.kill()
            time.sleep(1)
            broker.launch()
        crew.keep()
        closed = shop.client.llen("closed")
        if placed == len(names) and closed >= len(names) and now > war:
            break
        # Nothing to do, and orders open: those messages are gone.
        busy = placed < len(names) or now < war or _messages(broker)
        idle_since = None if busy else idle_since or now
        if idle_since is not None and now - idle_since > LEASE * 2:
            idle_since = None
            for name in _open(shop, names):
                again += 1
                lost = _lost(broker, name, known)
                print(f"{name} is open: {_standing(module, name)}; popped, never noted: {lost}")
                crew.unexplained += not lost
                module.place(name, 500)
        time.sleep(0.1)
    time.sleep(1)
    return again


def _open(shop: Any, names: list[str]) -> list[str]:
    closed = {one.split()[0].decode() for one in shop.client.lrange("closed", 0, -1)}
    return [name for name in names if name not in closed]


def _standing(module: Any, name: str) -> dict[str, str]:
    """How far an order has come: the state of each of its records."""
    guard = store_of(module.app, "charge").guard
    standing = {}
    for task in ("charge", "confirm", "close"):
        status = guard.status(idempotency_key({"order": name}, namespace=task))
        standing[task] = "not begun" if status is None else status.state.value
    return standing


def _lost(broker: Server, name: str, known: set[str]) -> list[str]:
    """The tasks of an order's messages that were popped, never noted and not told before."""
    lost = [
        letter
        for letter in letters(broker)
        if letter.state == "popped" and f"'{name}'" in letter.arguments and letter.tag not in known
    ]
    known.update(letter.tag for letter in lost)
    return [letter.task for letter in lost]


def _messages(broker: Server) -> int:
    return int(broker.call("LLEN", "celery")) + int(broker.call("HLEN", "unacked"))


def _judge(shop: Any, names: list[str], again: int, crew: Crew) -> bool:
    charges = Counter(one.decode() for one in shop.client.lrange("charges", 0, -1))
    mails = Counter(one.decode() for one in shop.client.lrange("mails", 0, -1))
    closed = Counter(one.decode() for one in shop.client.lrange("closed", 0, -1))
    wanted = Counter(f"{name} {name}:500|mail to {name}" for name in names)
    faults = ", ".join(f"{count} {how}" for how, count in sorted(crew.done.items()))
    print(
        f"{len(names)} orders: {sum(charges.values())} charges, {sum(mails.values())} e-mails, "
        f"{sum(closed.values())} closed; the bank was asked "
        f"{int(shop.client.get('charges:asked') or 0)} times; faults: {faults}, 1 broker restart; "
        f"{again} orders placed again, {crew.unexplained} of them without a message that the "
        "transport is seen to have lost"
    )
    for what, found, expected in (
        ("charges", charges, Counter(names)),
        ("e-mails", mails, Counter(names)),
        ("closed", closed, wanted),
    ):
        if found != expected:
            missing, more = sorted(expected - found)[:5], sorted(found - expected)[:5]
            print(f"{what}: missing {missing}, too many {more}")
    if crew.unexplained:
        print("an order was left open, and the broker's log has no message of it that was lost")
    return charges == mails == Counter(names) and closed == wanted and not crew.unexplained
