"""Accounts, whose rows are fenced, and the transfers between them."""

from __future__ import annotations

from django.db import models

from fencekit.django.models import FencedModel


class Branch(models.Model):
    """Where accounts are kept."""

    name = models.CharField(max_length=50)

    class Meta:
        verbose_name_plural = "branches"

    def __str__(self) -> str:
        return self.name


class Account(FencedModel):
    """An account; on PostgreSQL a trigger refuses a fence that goes down."""

    name = models.CharField(max_length=50)
    balance = models.BigIntegerField(default=0)
    branch = models.ForeignKey(
        Branch, models.CASCADE, null=True, blank=True, related_name="accounts"
    )
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.name


class Transfer(models.Model):
    """Money that went from one account to another."""

    order = models.CharField(max_length=50)
    source = models.ForeignKey(Account, models.CASCADE, related_name="+")
    target = models.ForeignKey(Account, models.CASCADE, related_name="+")
    amount = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.order}: {self.amount}"
