"""Lift the fences in Redis above the tokens that the database holds."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections
from fencekit.django.conf import get_lock
from fencekit.django.fields import fence_problem
from fencekit.django.models import Fence
from fencekit.errors import FenceKitError
from fencekit.protocol.token import MAX_SHOWN_TOKEN


class Command(BaseCommand):
    """Have Redis mint only tokens above those that the database holds."""

    help = (
        "Have Redis mint only tokens above those that the database holds: after Redis was restored "
        "or replaced by a server whose clock is behind, every holder would be refused by the "
        "database until its token has caught up. Never lowers anything; may be repeated."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say which options there are."""
        parser.add_argument(
            "--model", default=None, help="also the rows of a model, e.g. shop.Account"
        )
        parser.add_argument(
            "--resource", default=None, help="how its lock is called, e.g. 'account:{pk}'"
        )
        parser.add_argument("--field", default="fence_token", help="its fence (fence_token)")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, choices=tuple(connections))
        parser.add_argument("--dry-run", action="store_true", help="only say what would be lifted")

    def handle(self, **options: Any) -> None:
        """Lift what must be lifted.

        Raises:
            CommandError: an option makes no sense, or Redis could not do it.
        """
        self._lifted = self._seen = 0
        try:
            rows = Fence.objects.using(options["database"]).filter(record="lock")
            for resource, token in rows.values_list("resource", "token").iterator():
                self._lift(resource, token, options)
            if options["model"] is not None:
                self._lift_rows(options)
        except (FenceKitError, ImproperlyConfigured, ValueError) as error:
            raise CommandError(f"after {self._lifted} lifted: {error}") from error
        would = "would be " if options["dry_run"] else ""
        self.stdout.write(
            self.style.SUCCESS(f"{self._lifted} of {self._seen} fences {would}lifted")
        )

    def _lift_rows(self, options: dict[str, Any]) -> None:
        try:
            model: Any = apps.get_model(options["model"])
            problem = fence_problem(model._meta.get_field(options["field"]))  # noqa: SLF001 - documented
        except (LookupError, ValueError, FieldDoesNotExist) as error:
            raise CommandError(str(error)) from error
        if problem is not None:
            raise CommandError(f"{options['model']}.{options['field']} {problem}")
        if not options["resource"]:
            raise CommandError("--model needs --resource, e.g. 'account:{pk}'")
        rows = model._base_manager.using(options["database"])  # noqa: SLF001 - documented
        for row in rows.filter(**{f"{options['field']}__gt": 0}).iterator():
            fields = row._meta.concrete_fields  # noqa: SLF001 - documented
            facts = {field.attname: getattr(row, field.attname) for field in fields}
            try:
                resource = options["resource"].format(pk=row.pk, **facts)
            except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
                raise CommandError(f"--resource: {error!r}") from error
            self._lift(resource, getattr(row, options["field"]), options)

    def _lift(self, resource: str, token: int, options: dict[str, Any]) -> None:
        self._seen += 1
        if not 0 < token <= MAX_SHOWN_TOKEN:
            self.stderr.write(f"{resource}: {token} is no token, skipped")
            return
        lock = get_lock()
        info = lock.inspect(resource)
        if info is not None and info.last >= token:
            return
        if not options["dry_run"]:
            lock.advance_fence(resource, at_least=token)
        self._lifted += 1
        if options["verbosity"] > 1:
            self.stdout.write(f"{resource}: {token}")
