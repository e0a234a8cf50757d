"""The app, and what it installs when Django starts."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections
from django.db.backends.signals import connection_created

__all__ = ["FencekitConfig"]


class FencekitConfig(AppConfig):
    """The app ``fencekit``: fences, effects, checks, commands and admin pages."""

    name = "fencekit.django"
    label = "fencekit"
    verbose_name = "Fencekit"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and have every connection translate a trigger's refusal."""
        from fencekit.django.checks import CHECKS  # noqa: PLC0415 - needs the app registry
        from fencekit.django.refusals import translate_on  # noqa: PLC0415 - as above

        for check in CHECKS:
            checks.register(check, "fencekit")

        def created(*, connection: Any, **_: object) -> None:
            translate_on(connection)

        connection_created.connect(created, dispatch_uid="fencekit", weak=False)
        for connection in connections.all(initialized_only=True):
            translate_on(connection)
