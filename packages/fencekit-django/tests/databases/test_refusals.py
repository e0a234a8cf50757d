"""What is not promised, shown happening: docs/reference/guarantees.md names these."""

from __future__ import annotations

import pytest

from fencekit import FencedOutError, FenceToken
from fencekit.django import fenced_update
from ledger.accounts.models import Account


def token(value: int) -> FenceToken:
    return FenceToken(value, resource="account:1")


@pytest.mark.usefixtures("alias")
def test_what_a_predecessor_commits_between_read_and_fenced_write_is_overwritten() -> None:
    rows = Account.objects.filter(pk=Account.objects.create(name="a").pk)
    read = rows.get().balance
    # The predecessor, with the older token, is late, and nobody has shown a newer one yet.
    assert fenced_update(rows, token(5), updates={"balance": 100})
    assert fenced_update(rows, token(6), updates={"balance": read + 1})
    assert rows.get().balance == 1, "the 100 is lost"


@pytest.mark.usefixtures("alias")
def test_it_is_not_where_the_fence_is_raised_before_the_read() -> None:
    rows = Account.objects.filter(pk=Account.objects.create(name="a").pk)
    fenced_update(rows, token(6), updates={}, touch=True, raise_on_stale=True)
    read = rows.get().balance
    with pytest.raises(FencedOutError):
        fenced_update(rows, token(5), updates={"balance": 100}, raise_on_stale=True)
    fenced_update(rows, token(6), updates={"balance": read + 1}, raise_on_stale=True)
    assert rows.get().balance == 1
