"""The admin: fences and effects as models, and what lies in Redis; all of it read-only.

One thing can be done: forcing a lock open, which asks first, needs a permission of its own
(``fencekit.force_release_lock``), and is written to the admin log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from fencekit.django.admin_pages import LockAdmin, QueueAdmin, RecordAdmin
from fencekit.django.models import Effect, Fence, Lock, Queue, Record

if TYPE_CHECKING:
    from django.http import HttpRequest

    _Base = admin.ModelAdmin[Any]
else:  # generic for type checkers only
    _Base = admin.ModelAdmin

__all__ = ["EffectAdmin", "FenceAdmin"]


class _ReadOnly(_Base):
    """A model whose rows are looked at."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds a row by hand."""
        del request
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes a row by hand."""
        del request, obj
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes a row by hand: `fencekit_prune` does."""
        del request, obj
        return False


@admin.register(Fence)
class FenceAdmin(_ReadOnly):
    """The fences that `fenced_atomic` keeps."""

    list_display = ("resource", "record", "token", "updated_at")
    list_filter = ("record",)
    search_fields = ("resource",)
    fields = list_display
    ordering = ("-updated_at",)


@admin.register(Effect)
class EffectAdmin(_ReadOnly):
    """The effects that have happened."""

    list_display = ("scope", "key", "created_at")
    list_filter = ("scope",)
    search_fields = ("key",)
    fields = ("scope", "key", "created_at", "fingerprint", "result")
    ordering = ("-created_at",)


admin.site.register(Lock, LockAdmin)
admin.site.register(Queue, QueueAdmin)
admin.site.register(Record, RecordAdmin)
