"""Querysets with the fenced update as a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import sync_to_async

from django.db import models
from fencekit.django.updates import FencedUpdate, fenced_update

if TYPE_CHECKING:
    from fencekit.protocol.token import FenceToken

__all__ = ["FencedQuerySet"]

_Model_co = TypeVar("_Model_co", bound=models.Model, covariant=True)


class FencedQuerySet(models.QuerySet[_Model_co, _Model_co]):
    """A queryset that can update what a newer token has not written."""

    def fenced_update(
        self,
        token: FenceToken,
        *,
        updates: Mapping[str, Any],
        fence_field: str = "fence_token",
        raise_on_stale: bool = False,
        expect: int | None = None,
        touch: bool = False,
    ) -> FencedUpdate:
        """Update the rows of this queryset that no newer token has written; see `fenced_update`.

        Raises:
            FencedOutError: with ``raise_on_stale`` or ``expect``: a newer token was there.
            UnexpectedRows: not as many rows as ``expect``.
            TypeError, ValueError: the queryset, the token, the updates or the field cannot be used.
        """
        return fenced_update(
            self,
            token,
            updates=updates,
            fence_field=fence_field,
            raise_on_stale=raise_on_stale,
            expect=expect,
            touch=touch,
        )

    fenced_update.alters_data = True  # type: ignore[attr-defined]

    async def afenced_update(
        self,
        token: FenceToken,
        *,
        updates: Mapping[str, Any],
        fence_field: str = "fence_token",
        raise_on_stale: bool = False,
        expect: int | None = None,
        touch: bool = False,
    ) -> FencedUpdate:
        """Update the rows of this queryset that no newer token has written, from async code.

        Raises:
            FencedOutError, UnexpectedRows, TypeError, ValueError: as for `fenced_update`.
        """
        return await sync_to_async(self.fenced_update)(
            token,
            updates=updates,
            fence_field=fence_field,
            raise_on_stale=raise_on_stale,
            expect=expect,
            touch=touch,
        )

    afenced_update.alters_data = True  # type: ignore[attr-defined]
