"""What a database refuses is told to the hooks that are installed for all, once.

Shown to fail: each of the three without its call.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction

from fencekit import FencedOutError, FenceKitHooks, FenceToken
from fencekit.django import fenced_atomic, fenced_update
from fencekit.hooks import FenceRejected, install_hooks
from ledger.accounts.models import Account


@pytest.fixture
def told() -> Iterator[list[FenceRejected]]:
    events: list[FenceRejected] = []
    install_hooks(FenceKitHooks(on_rejected=events.append))
    yield events
    install_hooks(None)


def token(value: int) -> FenceToken:
    return FenceToken(value, resource="account:1")


@pytest.mark.usefixtures("sqlite_alias")
def test_a_fenced_update_that_raises(told: list[FenceRejected]) -> None:
    row = Account.objects.create(name="a", fence_token=9)
    rows = Account.objects.filter(pk=row.pk)
    with pytest.raises(FencedOutError):
        fenced_update(rows, token(5), updates={"balance": 1}, raise_on_stale=True)
    assert told == [FenceRejected(resource="account:1", token=5, current=9)]


@pytest.mark.usefixtures("sqlite_alias")
def test_a_fenced_transaction(told: list[FenceRejected]) -> None:
    with fenced_atomic(token(9)):
        pass
    with pytest.raises(FencedOutError), fenced_atomic(token(5)):
        pass
    assert told == [FenceRejected(resource="account:1", token=5, current=9)]


@pytest.mark.usefixtures("postgres_alias")
def test_a_trigger(told: list[FenceRejected]) -> None:
    row = Account.objects.create(name="a", fence_token=9)
    row.fence_token = 5
    with pytest.raises(FencedOutError), transaction.atomic(using="postgres"):
        row.save()
    assert told == [FenceRejected(resource="accounts_account", token=5, current=9)]
