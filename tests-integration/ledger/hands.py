"""Worker processes of the ledger, forked from one that has set Django up.

Setting Django up takes a second, so one process does it (`serve`, in a `harness.children.Child`)
and forks all workers that a test process asks for, through `Hands`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from harness.children import Child, hear, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.stage import Databases

__all__ = ["STEPS", "Hands", "serve"]

STEPS = ("before the insert", "after the insert", "after the effect", "after COMMIT", "in the hook")


class Hands:
    """Worker processes, for a test."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._child: Child | None = None

    def run(
        self,
        name: str,
        count: int,
        *args: Any,
        alias: str,
        redis_url: str = "",
        atomic_requests: bool = False,
    ) -> list[Any]:
        """Run a hand in so many processes at once; None for each that was killed.

        Args:
            name: which hand.
            count: how many processes.
            args: for the hand, after its number.
            alias: the database.
            redis_url: the Redis server.
            atomic_requests: whether each request is one transaction.
        """
        if self._child is None:
            env = {"DJANGO_SETTINGS_MODULE": "ledger.settings"}
            self._child = Child(serve, env=env)
            self._child.expect("ready", 60)
        places = self._databases.places
        self._child.tell(name, count, args, alias, places, redis_url, atomic_requests)
        found: list[Any] = self._child.expect("done", 100)[1]
        return found

    def close(self) -> None:
        """End the process that forks."""
        if self._child is not None:
            self._child.kill()


def serve() -> None:
    """Set Django up, then fork what the parent asks for, until it ends."""
    import django  # noqa: PLC0415 - the settings are in this process's environment
    import redis.asyncio.cluster  # noqa: F401, PLC0415 - imported by whoever makes a client first
    from django.test import Client  # noqa: PLC0415 - not before Django is set up

    django.setup()
    Client().get("/nowhere")  # loads what each fork would have to load for its first request
    tell("ready")
    while True:
        name, count, args, alias, places, redis_url, atomic_requests = hear()
        os.environ["LEDGER_ALIAS"] = alias
        _configure(places, redis_url, atomic_requests=atomic_requests)
        begin = time.monotonic() + 0.05
        found = []
        for pid, pipe in [_fork(HANDS[name], begin, index, args) for index in range(count)]:
            with os.fdopen(pipe) as reading:
                text = reading.read()
            os.waitpid(pid, 0)
            found.append(json.loads(text) if text else None)
        tell("done", found)


def _configure(places: dict[str, dict[str, str]], redis_url: str, *, atomic_requests: bool) -> None:
    from django.conf import settings  # noqa: PLC0415 - not before Django is set up
    from django.db import connections  # noqa: PLC0415 - not before Django is set up

    from ledger.routing import current_alias  # noqa: PLC0415 - not before Django is set up

    for alias in connections:
        atomic = atomic_requests and alias == current_alias()
        place = {**places.get(alias, {}), "ATOMIC_REQUESTS": atomic}
        connections.settings[alias].update(place)
        connections[alias].settings_dict.update(place)
    settings.FENCEKIT = {"REDIS_URL": redis_url}


def _fork(hand: Callable[..., Any], begin: float, index: int, args: Any) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.close(reading)
        time.sleep(max(begin - time.monotonic(), 0))
        with os.fdopen(writing, "w") as answer:
            try:
                found = hand(index, *args)
            except Exception as error:  # noqa: BLE001 - told to the test
                found = f"{type(error).__name__}: {error}"
            answer.write(json.dumps(found))
    finally:
        os._exit(0)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def post(index: int, order: str, steps: list[str | None]) -> Any:
    """Carry out an order once, being killed at a step."""
    from django.db import connections, transaction  # noqa: PLC0415 - not before Django is set up

    from fencekit.django import run_once  # noqa: PLC0415 - not before Django is set up
    from ledger.accounts.models import Branch  # noqa: PLC0415 - not before Django is set up
    from ledger.routing import current_alias  # noqa: PLC0415 - not before Django is set up

    step = steps[index]
    connection = connections[current_alias()]

    def at(point: str) -> None:
        if step == point:
            _die()

    def effect() -> dict[str, Any]:
        at("after the insert")
        made = Branch.objects.create(name=order)
        at("after the effect")
        transaction.on_commit(lambda: at("in the hook"), using=connection.alias)
        return {"branch": made.pk, "by": index}

    commit: Any = connection._commit  # type: ignore[attr-defined]

    def commit_and_die() -> None:
        commit()
        at("after COMMIT")

    connection._commit = commit_and_die  # type: ignore[attr-defined]
    at("before the insert")
    return run_once("orders", order, effect, retries=30)


def request(index: int, path: str, times: int) -> int:
    """Send requests one after the other, each in a transaction; returns how many were answered."""
    from django.test import Client  # noqa: PLC0415 - not before Django is set up

    del index
    client = Client()
    return sum(client.post(path).status_code == 200 for _ in range(times))


HANDS: dict[str, Callable[..., Any]] = {"post": post, "request": request}
