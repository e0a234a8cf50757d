"""Look at the databases and Redis, and say what would void the guarantees."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections, router
from django.db.migrations.executor import MigrationExecutor
from fencekit.django.conf import get_client, get_lock, load
from fencekit.django.models import Fence
from fencekit.drivers.eviction import CURE, eviction_of

_LATEST = 20


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        level: "ok", "warning" or "error".
        what: what was looked at.
        says: what was found, and what to do about it.
    """

    level: Literal["ok", "warning", "error"]
    what: str
    says: str


class Command(BaseCommand):
    """Look at the databases and Redis, and say what would void the guarantees."""

    help = (
        "Look at the databases and Redis, and say what would void the guarantees. Exits with 1 "
        "when something does."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say which options there are."""
        parser.add_argument("--json", action="store_true", help="findings as JSON")

    def handle(self, **options: Any) -> None:
        """Look, and say.

        Raises:
            CommandError: something voids the guarantees.
        """
        findings = [*_checks(), *_databases(), *_redis()]
        if options["json"]:
            self.stdout.write(json.dumps([finding._asdict() for finding in findings], indent=2))
        else:
            styles = {
                "ok": self.style.SUCCESS,
                "warning": self.style.WARNING,
                "error": self.style.ERROR,
            }
            for finding in findings:
                self.stdout.write(
                    f"{styles[finding.level](finding.level):8} {finding.what}: {finding.says}"
                )
        if errors := sum(finding.level == "error" for finding in findings):
            raise CommandError(f"{errors} of these void the guarantees")


def _checks() -> Iterator[Finding]:
    found = checks.run_checks(tags=["fencekit"])
    for message in found:
        level: Literal["warning", "error"] = "error" if message.is_serious() else "warning"
        hint = f" {message.hint}" if message.hint else ""
        yield Finding(level, str(message.id), f"{message.msg}{hint}")
    if not found:
        yield Finding("ok", "system checks", "nothing found")


def _databases() -> Iterator[Finding]:
    alias = router.db_for_write(Fence)
    connection = connections[alias]
    what = f"database {alias!r}"
    try:
        executor = MigrationExecutor(connection)
        ours = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "fencekit"]
        if executor.migration_plan(ours):
            yield Finding("error", what, "the tables of fencekit are not migrated: run migrate")
            return
        yield Finding("ok", what, f"{connection.vendor}, tables migrated")
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SHOW transaction_isolation")
                (isolation,) = cursor.fetchone()
            yield Finding("ok", what, f"isolation level {isolation}")
        yield Finding("ok", what, f"{Fence.objects.using(alias).count()} fences")
    except DatabaseError as error:
        yield Finding("error", what, f"cannot be asked: {error}")


def _redis() -> Iterator[Finding]:
    try:
        client = get_client()
        client.ping()
        yield Finding("ok", "redis", f"answers; prefix {load().prefix!r}")
        yield from _eviction(client)
        yield from _fences()
    except ImproperlyConfigured as error:
        yield Finding("error", "redis", str(error))
    except Exception as error:  # noqa: BLE001 - whatever the client raises is the finding
        yield Finding("error", "redis", f"cannot be asked: {error!r}")


def _eviction(client: Any) -> Iterator[Finding]:
    found = eviction_of(client.info("memory"))
    if found is None:
        yield Finding("warning", "redis", "does not say whether it may evict locks")
    elif found.level == "ok":
        yield Finding("ok", "redis", f"evicts nothing (maxmemory-policy {found.policy})")
    else:
        says = f"may evict locks (maxmemory-policy {found.policy}): {found.means}. {CURE}"
        yield Finding(found.level, "redis", says)


def _fences() -> Iterator[Finding]:
    lock = get_lock()
    latest = Fence.objects.filter(record="lock").order_by("-updated_at")[:_LATEST]
    behind = [
        fence.resource
        for fence in latest
        if (info := lock.inspect(fence.resource)) is not None and info.last < fence.token
    ]
    if behind:
        yield Finding(
            "error",
            "fences",
            f"Redis is behind the database for {', '.join(behind)}: run fencekit_reseed",
        )
    else:
        yield Finding("ok", "fences", f"the latest {len(latest)} agree with Redis")
