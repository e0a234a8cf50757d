"""Fenced writes and exactly-once effects in Django's own transactions.

::

    INSTALLED_APPS = [..., "fencekit.django"]

    with locked_atomic(lock, f"account:{pk}", ttl=timedelta(seconds=30), wait=timedelta(seconds=5)):
        account = Account.objects.get(pk=pk)
        account.balance += 1
        account.save()

What needs the app registry (`FencedModel`, `Fence`, `Effect`) is imported at its first use, so that
this package can be named in INSTALLED_APPS.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fencekit.django.conf import get_client, get_lock
from fencekit.django.effects import OnceRun, arun_once, once, run_once
from fencekit.django.errors import UnexpectedRows, UnfencedWrite
from fencekit.django.fields import FenceTokenField
from fencekit.django.querysets import FencedQuerySet
from fencekit.django.release import invalidate_on_commit, release_on_commit
from fencekit.django.transactions import fenced_atomic, locked_atomic
from fencekit.django.triggers import AddFenceTrigger, RemoveFenceTrigger
from fencekit.django.updates import FencedUpdate, afenced_update, fenced_update

if TYPE_CHECKING:
    from fencekit.django.models import Effect, Fence, FencedModel

__version__ = "0.1.0"

__all__ = [
    "AddFenceTrigger",
    "Effect",
    "Fence",
    "FenceTokenField",
    "FencedModel",
    "FencedQuerySet",
    "FencedUpdate",
    "OnceRun",
    "RemoveFenceTrigger",
    "UnexpectedRows",
    "UnfencedWrite",
    "afenced_update",
    "arun_once",
    "fenced_atomic",
    "fenced_update",
    "get_client",
    "get_lock",
    "invalidate_on_commit",
    "locked_atomic",
    "once",
    "release_on_commit",
    "run_once",
]

_MODELS = frozenset({"Effect", "Fence", "FencedModel"})


if not TYPE_CHECKING:  # a checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        if name in _MODELS:
            return getattr(import_module("fencekit.django.models"), name)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
