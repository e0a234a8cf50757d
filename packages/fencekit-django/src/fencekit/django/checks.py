"""System checks: what would void the guarantees, said at start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import router
from fencekit.django.conf import load
from fencekit.django.fields import FenceTokenField, fence_problem

__all__ = ["CHECKS"]

_WRITING_MODES = frozenset({"IMMEDIATE", "EXCLUSIVE"})
# MySQL's CLIENT_FOUND_ROWS: an UPDATE reports the rows it matched, not only those it changed.
_FOUND_ROWS = 2
_NAME = "fence_token"


def _check_settings(**_: object) -> list[checks.CheckMessage]:
    try:
        load()
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="fencekit.E003")]
    return []


def _check_fences(app_configs: Sequence[Any] | None, **_: object) -> list[checks.CheckMessage]:
    return [
        checks.Error(
            f"A fence {problem}.",
            hint="Make it a FenceTokenField.",
            obj=field,
            id="fencekit.E002",
        )
        for model in _models(app_configs)
        if (field := _fence_of(model)) is not None
        # A FenceTokenField says so itself.
        and not isinstance(field, FenceTokenField)
        and (problem := fence_problem(field)) is not None
    ]


def _check_databases(**_: object) -> list[checks.CheckMessage]:
    found: list[checks.CheckMessage] = []
    for alias, database in settings.DATABASES.items():
        options = database.get("OPTIONS") or {}
        engine = database.get("ENGINE", "")
        if engine.endswith("mysql"):
            flag = options.get("client_flag", _FOUND_ROWS)
            if isinstance(flag, int) and not flag & _FOUND_ROWS:
                found.append(
                    checks.Error(
                        f"Database {alias!r} reports changed rows, not matched ones: a fenced "
                        "update that repeats the same values would look refused.",
                        hint="Leave OPTIONS['client_flag'] out, or add CLIENT.FOUND_ROWS.",
                        id="fencekit.E004",
                    )
                )
            level = options.get("isolation_level", "read committed") or "repeatable read"
            if str(level).lower() == "repeatable read":
                found.append(
                    checks.Warning(
                        f"Database {alias!r} reads from a snapshot that a larger transaction may "
                        "have taken before: in a fenced_atomic inside it, what a predecessor has "
                        "committed since is not seen, and is overwritten.",
                        hint="Leave OPTIONS['isolation_level'] out: it is 'read committed' then.",
                        id="fencekit.W004",
                    )
                )
        elif (
            engine.endswith("sqlite3")
            and str(options.get("transaction_mode")).upper() not in _WRITING_MODES
        ):
            found.append(
                checks.Warning(
                    f"Database {alias!r} begins transactions without the right to write: one that "
                    "has read first may be refused with 'database is locked', without waiting.",
                    hint="Set OPTIONS = {'transaction_mode': 'IMMEDIATE'}.",
                    id="fencekit.W001",
                )
            )
    return found


def _check_routers(app_configs: Sequence[Any] | None, **_: object) -> list[checks.CheckMessage]:
    from fencekit.django.models import Effect, Fence  # noqa: PLC0415 - needs the app registry

    home = router.db_for_write(Fence)
    found: list[checks.CheckMessage] = []
    if router.db_for_write(Effect) != home:
        found.append(
            checks.Warning(
                "The routers write fences and effects to different databases.",
                hint="Send the app 'fencekit' to one database.",
                id="fencekit.W003",
            )
        )
    found += [
        checks.Warning(
            f"{model._meta.label} is written to {place!r}, but its fences to {home!r}: "  # noqa: SLF001 - documented
            "fenced_atomic and once guard only what is in their own database.",
            hint="Route the app 'fencekit' to the same database, or pass using=.",
            obj=model,
            id="fencekit.W002",
        )
        for model in _models(app_configs)
        if isinstance(_fence_of(model), FenceTokenField)
        and (place := router.db_for_write(model)) != home
    ]
    return found


def _models(app_configs: Sequence[Any] | None) -> Iterator[Any]:
    for config in apps.get_app_configs() if app_configs is None else app_configs:
        yield from config.get_models()


def _fence_of(model: Any) -> Any:
    try:
        return model._meta.get_field(_NAME)  # noqa: SLF001 - documented
    except FieldDoesNotExist:
        return None


CHECKS: Final[tuple[Callable[..., list[checks.CheckMessage]], ...]] = (
    _check_settings,
    _check_fences,
    _check_databases,
    _check_routers,
)
