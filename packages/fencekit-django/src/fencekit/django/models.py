"""The rows that fencekit keeps in the database, and the base of fenced models."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar

from django.db import models
from django.utils import timezone
from fencekit.django.fields import FenceTokenField
from fencekit.django.querysets import FencedQuerySet

__all__ = ["Effect", "Fence", "FencedModel", "Lock", "Queue", "Record"]


class FencedModel(models.Model):
    """The base of models whose rows are written with `fenced_update`."""

    fence_token = FenceTokenField()

    objects: ClassVar[Any] = FencedQuerySet.as_manager()

    class Meta:
        abstract = True


def digest_of(*words: str) -> str:
    """The primary key of what is named by these words.

    A digest, because a database's collation may take two names for one (case, trailing accents),
    and a key of 512 characters is longer than some indexes allow.
    """
    return sha256("\0".join(words).encode()).hexdigest()


class Fence(models.Model):
    """The highest token that entered `fenced_atomic` for a resource; its row lock is the fence."""

    digest: models.CharField[str, str] = models.CharField(
        max_length=64, primary_key=True, editable=False
    )
    resource: models.CharField[str, str] = models.CharField(max_length=512)
    record: models.CharField[str, str] = models.CharField(max_length=8, default="lock")
    token = FenceTokenField()
    updated_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(
        default=timezone.now, db_index=True
    )

    class Meta:
        db_table = "fencekit_fence"

    def __str__(self) -> str:
        return f"{self.resource} ({self.record}) at {self.token}"


class Effect(models.Model):
    """An effect that happened, written in the transaction that it happened in."""

    digest: models.CharField[str, str] = models.CharField(
        max_length=64, primary_key=True, editable=False
    )
    scope: models.CharField[str, str] = models.CharField(max_length=255)
    key: models.CharField[str, str] = models.CharField(max_length=512)
    fingerprint: models.CharField[str, str] = models.CharField(
        max_length=64, blank=True, default=""
    )
    # NULL until the effect is over: seen only inside its own transaction.
    result: models.TextField[str | None, str | None] = models.TextField(null=True)  # noqa: DJ001 - NULL is not the empty string here
    created_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(
        default=timezone.now, db_index=True
    )

    class Meta:
        db_table = "fencekit_effect"

    def __str__(self) -> str:
        return f"{self.scope}: {self.key}"


class _InRedis(models.Model):
    """What lies in Redis, by its name, and has no table.

    These models give the admin's pages their place, and Django's permissions something to be about.
    """

    name: models.CharField[str, str] = models.CharField(max_length=512, primary_key=True)

    class Meta:
        abstract = True
        managed = False
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name


class Lock(_InRedis):
    """A lock in Redis."""

    class Meta(_InRedis.Meta):
        permissions: ClassVar = [("force_release_lock", "Can force a lock open")]


class Queue(_InRedis):
    """A FIFO queue in Redis."""

    class Meta(_InRedis.Meta):
        verbose_name = "FIFO queue"


class Record(_InRedis):
    """An idempotency record in Redis."""

    class Meta(_InRedis.Meta):
        verbose_name = "idempotency record"
