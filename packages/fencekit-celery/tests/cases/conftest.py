"""One server and one worker of each pool serve all tests of a process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fencekit.celery import configure
from harness import celery_tasks, servers
from harness.servers import Server
from harness.workers import Effects, Worker, close_app

OTHER_POOLS = ("threads", "gevent", "eventlet", "solo")


HERE = Path(__file__).parent
SHARING = HERE / "test_deliveries.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, and keep those together that share a worker, pool by pool.

    A worker takes seconds to start. The tests of lost workers start their own, so they may run in
    any process, beside each other.
    """
    items.sort(key=_place)  # stable
    for item in items:
        if item.path == SHARING:
            item.add_marker(pytest.mark.xdist_group("celery"))


def _place(item: pytest.Item) -> tuple[bool, bool, str]:
    shares = item.path == SHARING
    callspec: Any = getattr(item, "callspec", None)
    pool = str(callspec.params["pool"]) if shares and callspec is not None else ""
    return item.path.parent != HERE, not shares, pool


@pytest.fixture(scope="session")
def broker() -> Iterator[Server]:
    """Give a server that is broker, result backend, store of records and ledger of effects."""
    with servers.start() as server:
        app = celery_tasks.app
        app.conf.update(broker_url=server.url, result_backend=server.url)
        app.conf.fencekit_redis_url = server.url
        configure(app, redis=server.url)
        yield server
        gc.collect()  # results unsubscribe when they go
        close_app(app)


@pytest.fixture(scope="session")
def workers() -> Iterator[dict[str, Worker]]:
    """Keep the workers that were started, by pool."""
    with ExitStack() as stack:
        running: dict[str, Worker] = {}
        yield running
        for worker in running.values():
            stack.enter_context(worker)


@pytest.fixture(
    params=["prefork", *(pytest.param(pool, marks=pytest.mark.slow) for pool in OTHER_POOLS)]
)
def pool(
    request: pytest.FixtureRequest, broker: Server, workers: dict[str, Worker]
) -> Iterator[str]:
    """Have a worker of one pool running, and no other."""
    name: str = request.param
    if name in ("gevent", "eventlet"):
        pytest.importorskip(name)
    for other, worker in list(workers.items()):
        if other != name or not worker.process.alive:
            worker.kill()
            del workers[other]
            # What it had done and not acknowledged is no message to the next.
            Effects(broker).forget_messages()
    if name not in workers:
        workers[name] = Worker(broker, pool=name, concurrency=4)
        workers[name].ready()
    began = len(workers[name].log())
    yield name
    print(workers[name].log()[began:])  # noqa: T201 - shown where a test has failed


@pytest.fixture
def effects(broker: Server) -> Iterator[Effects]:
    """Give what the tasks did."""
    effects = Effects(broker)
    yield effects
    effects.close()


@pytest.fixture
def tasks(effects: Effects) -> Any:
    """Give the tasks by name; their app is the broker's."""
    del effects
    return celery_tasks.app.tasks
