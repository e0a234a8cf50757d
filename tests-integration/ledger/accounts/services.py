"""What the ledger does, fenced; and one way to do it wrong, for comparison."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from fencekit.django import get_lock, locked_atomic, once
from ledger.accounts.models import Account, Transfer

__all__ = ["add_one", "add_one_released_too_early", "transfer"]

LEASE, PATIENCE = timedelta(seconds=10), timedelta(seconds=60)


def add_one(pk: int) -> int:
    """Add one to a balance under its lock; returns the new balance."""
    with locked_atomic(get_lock(), f"account:{pk}", ttl=LEASE, wait=PATIENCE):
        account = Account.objects.get(pk=pk)
        account.balance += 1
        account.save(update_fields=["balance"])
        return account.balance


def add_one_released_too_early(pk: int) -> int:
    """Add one, and release the lock when the block ends: under ATOMIC_REQUESTS before COMMIT."""
    with get_lock().hold(f"account:{pk}", ttl=LEASE, wait=PATIENCE), transaction.atomic():
        account = Account.objects.get(pk=pk)
        account.balance += 1
        account.save(update_fields=["balance"])
        return account.balance


def transfer(order: str, source: int, target: int, amount: int) -> dict[str, Any]:
    """Carry an order out once, however often it is sent; returns what it came to."""
    body = {"source": source, "target": target, "amount": amount}
    with once("transfers", order, payload=body) as run:
        if run.first:
            Account.objects.filter(pk=source).update(balance=F("balance") - amount)
            Account.objects.filter(pk=target).update(balance=F("balance") + amount)
            made = Transfer.objects.create(
                order=order, source_id=source, target_id=target, amount=amount
            )
            run.result = {"transfer": made.pk, **body}
    result: dict[str, Any] = run.result
    return result
