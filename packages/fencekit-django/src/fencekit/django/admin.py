"""The admin: fences and effects as models, and what lies in Redis; all of it read-only.

One thing can be done: forcing a lock open, which asks first, needs a permission of its own
(``fencekit.force_release_lock``), and is written to the admin log.
"""

from __future__ import annotations

from django.contrib import admin
from fencekit.django.admin_pages import LockAdmin, QueueAdmin, RecordAdmin
from fencekit.django.models import Effect, Fence, Lock, Queue, Record
from fencekit.django.read_only import ReadOnlyAdmin

__all__ = ["EffectAdmin", "FenceAdmin"]


@admin.register(Fence)
class FenceAdmin(ReadOnlyAdmin):
    """The fences that `fenced_atomic` keeps."""

    list_display = ("resource", "record", "token", "updated_at")
    list_filter = ("record",)
    search_fields = ("resource",)
    fields = list_display
    ordering = ("-updated_at",)


@admin.register(Effect)
class EffectAdmin(ReadOnlyAdmin):
    """The effects that have happened."""

    list_display = ("scope", "key", "created_at")
    list_filter = ("scope",)
    search_fields = ("key",)
    fields = ("scope", "key", "created_at", "fingerprint", "result")
    ordering = ("-created_at",)


admin.site.register(Lock, LockAdmin)
admin.site.register(Queue, QueueAdmin)
admin.site.register(Record, RecordAdmin)
