"""Give the tests the ledger's databases: `alias` runs a test on each of them, emptied before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledger.hands import Hands
from ledger.routing import using
from ledger.stage import ALIASES, Databases, set_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.fixtures import ServerPool
    from harness.servers import Server

set_up()

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long hammers out, unless they are asked for: `-m slow`."""
    if config.getoption("markexpr"):
        return
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.skip(reason="a long hammer; run it by -m slow"))


@pytest.fixture(scope="session")
def databases(servers: ServerPool) -> Iterator[Databases]:
    """Share the databases of this process."""
    from harness import postgres  # noqa: PLC0415 - not before Django is set up

    stage = Databases(lambda: servers.shared("postgres", postgres.start))
    yield stage
    stage.close()


@pytest.fixture(scope="session")
def hands(databases: Databases) -> Iterator[Hands]:
    """Share the process that forks workers."""
    found = Hands(databases)
    yield found
    found.close()


@pytest.fixture
def on(databases: Databases, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Use a database in this test, emptied; the test is skipped where it is not installed."""

    def use(alias: str) -> str:
        if (missing := databases.missing(alias)) is not None:
            pytest.skip(missing)
        databases.ready(alias)
        block = using(alias)
        block.__enter__()
        request.addfinalizer(lambda: block.__exit__(None, None, None))
        return alias

    return use


@pytest.fixture(params=ALIASES)
def alias(on: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """Run the test on each database."""
    return on(request.param)


@pytest.fixture(params=["postgres", "repeatable", "mariadb"])
def row_locking_alias(on: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """Run the test on each database where two transactions can write at the same time."""
    return on(request.param)


@pytest.fixture
def postgres_alias(on: Callable[[str], str]) -> str:
    """Run the test on PostgreSQL under READ COMMITTED."""
    return on("postgres")


@pytest.fixture
def sqlite_alias(on: Callable[[str], str]) -> str:
    """Run the test on SQLite."""
    return on("default")


@pytest.fixture
def redis_settings(server: Server) -> Iterator[Server]:
    """Have FENCEKIT name the default Redis server, empty."""
    from django.test import override_settings  # noqa: PLC0415 - not before Django is set up

    with override_settings(FENCEKIT={"REDIS_URL": server.url}):
        yield server


@pytest.fixture
def settings() -> Iterator[Any]:
    """Give a place to set settings of Django, put back afterwards."""
    from django.conf import settings as found  # noqa: PLC0415 - not before Django is set up
    from django.test import override_settings  # noqa: PLC0415 - not before Django is set up

    with override_settings():
        yield found
