"""Delete effects, and fences, that nobody will ask about any more."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone
from fencekit.django.models import Effect, Fence


class Command(BaseCommand):
    """Delete records of effects older than some days, in batches."""

    help = (
        "Delete records of effects older than some days, in batches that lock few rows for a short "
        "time. An effect whose record is deleted happens again if its message comes once more: "
        "keep records longer than any queue, retry or replay can."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say which options there are."""
        parser.add_argument("--days", type=float, default=90, help="keep what is younger (90)")
        parser.add_argument("--scope", default=None, help="only the effects of one scope")
        parser.add_argument(
            "--fences",
            action="store_true",
            help="delete fences too that were not raised for so long; a worker that slept longer "
            "than that is no longer refused",
        )
        parser.add_argument("--batch", type=int, default=1000, help="rows per statement (1000)")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, choices=tuple(connections))
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, **options: Any) -> None:
        """Delete, and say how far it is.

        Raises:
            CommandError: an option makes no sense.
        """
        if options["days"] < 0 or options["batch"] < 1:
            raise CommandError("--days must not be negative, and --batch not below 1")
        try:
            before = timezone.now() - timedelta(days=options["days"])
        except (OverflowError, ValueError) as error:
            raise CommandError(f"--days: {error}") from error
        alias = options["database"]
        effects = Effect.objects.using(alias).filter(created_at__lt=before)
        if options["scope"] is not None:
            effects = effects.filter(scope=options["scope"])
        self._delete("effects", effects, options)
        if options["fences"]:
            self._delete(
                "fences", Fence.objects.using(alias).filter(updated_at__lt=before), options
            )

    def _delete(self, what: str, rows: Any, options: dict[str, Any]) -> None:
        total = rows.count()
        if options["dry_run"]:
            self.stdout.write(f"{total} {what} would be deleted")
            return
        deleted = 0
        while keys := list(rows.values_list("pk", flat=True)[: options["batch"]]):
            # Again with the condition: what was raised since stays.
            count = rows.filter(pk__in=keys).delete()[0]
            deleted += count
            if options["verbosity"] > 1:
                self.stdout.write(f"{deleted} of {total} {what}")
            if not count:
                break
        self.stdout.write(self.style.SUCCESS(f"{deleted} {what} deleted"))
