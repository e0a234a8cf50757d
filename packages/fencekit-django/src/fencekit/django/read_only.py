"""What all our pages in the admin have in common: people look, and change nothing by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

if TYPE_CHECKING:
    _Base = admin.ModelAdmin[Any]
else:  # generic for type checkers only
    _Base = admin.ModelAdmin

__all__ = ["ReadOnlyAdmin"]


class ReadOnlyAdmin(_Base):
    """A model whose objects are looked at."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds one by hand."""
        del request
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes one by hand."""
        del request, obj
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes one by hand: a lease ends, and `fencekit_prune` deletes rows."""
        del request, obj
        return False
