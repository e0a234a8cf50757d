"""What people write without fencekit, so that each test can be seen to fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, transaction

from fencekit.django import Effect
from ledger.routing import current_alias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django.db.models import QuerySet

    from fencekit import FenceToken

__all__ = ["plain_once", "plain_update"]


def plain_update(queryset: QuerySet[Any], token: FenceToken, *, updates: Mapping[str, Any]) -> int:
    """Compare the fence in the filter, and leave the rest to Django."""
    fresh = queryset.filter(fence_token__lte=int(token))
    return fresh.update(**updates, fence_token=int(token))


def plain_once(scope: str, key: str, func: Callable[[], Any]) -> Any:
    """Look first, then do it, then write down that it is done."""
    if Effect.objects.filter(scope=scope, key=key).exists():
        return None
    with transaction.atomic(using=current_alias()):
        result = func()
    try:
        Effect.objects.create(digest=f"{scope}:{key}"[:64], scope=scope, key=key, result="null")
    except IntegrityError:
        return None
    return result
