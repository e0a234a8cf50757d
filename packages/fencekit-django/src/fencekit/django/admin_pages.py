"""The admin's pages of what lies in Redis: locks, FIFO queues and idempotency records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import router, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from fencekit import listing
from fencekit.django.conf import get_client, get_lock, load
from fencekit.django.models import Lock
from fencekit.django.read_only import ReadOnlyAdmin
from fencekit.errors import FenceKitError, OutcomeUnknown

__all__ = ["LockAdmin", "QueueAdmin", "RecordAdmin"]


class _RedisAdmin(ReadOnlyAdmin):
    """Pages about what lies in Redis under one kind of key; see `listing`."""

    kind: ClassVar[listing.Kind]
    columns: ClassVar[tuple[tuple[str, str], ...]]

    def rows(self, found: list[str]) -> list[dict[str, Any]]:
        """What the list says of each name."""
        raise NotImplementedError

    def details(self, name: str) -> dict[str, Any] | None:
        """What the page of one name says; None when there is nothing."""
        raise NotImplementedError

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Give the admin's own pages, as that of the history, the name: there is no table."""
        del request, from_field
        return self.model(name=object_id)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """List the names, a page at a time, filtered by a part of the name.

        Raises:
            PermissionDenied: the user may not view them.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        contains = request.GET.get("q", "").strip()
        page, rows = listing.Page([], None), []
        try:
            page = listing.find(
                get_client(),
                load().prefix,
                self.kind,
                contains=contains,
                cursor=request.GET.get("cursor", ""),
            )
            rows = self.rows(page.names)
        except Exception as error:  # noqa: BLE001 - any client's error; shown, not a page of 500
            self._report(request, error)
        titles = [title for _, title in self.columns]
        context = {
            "title": f"Select {self.opts.verbose_name} to view",
            "titles": titles,
            "lines": [
                {
                    "name": row["name"],
                    "url": self._url("change", row["name"]),
                    "cells": [row[column] for column, _ in self.columns],
                }
                for row in rows
            ],
            "contains": contains,
            "cursor": page.cursor,
        }
        return self._page(request, "list", context, extra_context)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> TemplateResponse:
        """Show what is known of one name.

        Raises:
            PermissionDenied: the user may not view it.
            Http404: nothing is known of it.
        """
        del form_url
        if not self.has_view_permission(request):
            raise PermissionDenied
        name = unquote(object_id)
        facts: dict[str, Any] | None = {}
        try:
            facts = self.details(name)
        except ValueError:
            facts = None
        except Exception as error:  # noqa: BLE001 - as above
            self._report(request, error)
        if facts is None:
            raise Http404(f"nothing is known of {name}")
        context = {"title": name, "facts": facts.items(), **self.actions_of(request, name, facts)}
        return self._page(request, "detail", context, extra_context)

    def actions_of(self, request: HttpRequest, name: str, facts: dict[str, Any]) -> dict[str, Any]:
        """What the page of one name offers to do."""
        del request, name, facts
        return {}

    def _page(
        self,
        request: HttpRequest,
        template: str,
        context: dict[str, Any],
        extra_context: dict[str, Any] | None = None,
    ) -> TemplateResponse:
        common = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "list_url": self._url("changelist"),
        }
        return TemplateResponse(
            request, f"fencekit/admin/{template}.html", common | context | (extra_context or {})
        )

    def _url(self, view: str, *words: str) -> str:
        name = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_{view}"
        return reverse(name, args=[quote(word) for word in words])

    def _report(self, request: HttpRequest, error: Exception) -> None:
        what = (
            str(error)
            if isinstance(error, FenceKitError | ImproperlyConfigured | ValueError)
            else repr(error)
        )
        self.message_user(request, f"Redis could not be asked: {what}", messages.ERROR)


class LockAdmin(_RedisAdmin):
    """Locks: who holds them, and forcing them open."""

    kind = "lock"
    columns = (("owner", "Holder"), ("token", "Token"), ("lease", "Lease left"))

    def rows(self, found: list[str]) -> list[dict[str, Any]]:
        """Who holds each lock."""
        return [
            {**row, "lease": _seconds(row["ttl_ms"])}
            for row in listing.describe_locks(get_client(), load().prefix, found)
        ]

    def details(self, name: str) -> dict[str, Any] | None:
        """Who holds a lock, and what its fence record says."""
        info = get_lock().inspect(name)
        if info is None:
            return None
        return {
            "Holder": info.owner_id or "nobody",
            "Token": info.token or "–",
            "Lease left": _seconds(info.ttl_ms),
            "Highest token": info.last or "–",
            "Leases that ran out": ", ".join(map(str, info.lapsed)) or "none",
        }

    def actions_of(self, request: HttpRequest, name: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Offer to force a lock open that is held, to those who may."""
        if not self.has_force_release_permission(request) or facts.get("Holder") == "nobody":
            return {}
        return {"force_url": self._url("force_release", name)}

    def has_force_release_permission(self, request: HttpRequest) -> bool:
        """Whether the user may force locks open."""
        user: Any = request.user
        return bool(user.has_perm("fencekit.force_release_lock"))

    def get_urls(self) -> list[Any]:
        """The usual URLs, and that of forcing a lock open."""
        view: Callable[..., HttpResponse] = self.admin_site.admin_view(self.force_release_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_force_release"
        return [path("<path:object_id>/force-release/", view, name=name), *super().get_urls()]

    def force_release_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask whether to force a lock open, and do it when it is confirmed.

        Raises:
            PermissionDenied: the user may not view locks, or not force them open.
            Http404: there is no such lock.
        """
        if not self.has_view_permission(request) or not self.has_force_release_permission(request):
            raise PermissionDenied
        name = unquote(object_id)
        try:
            return self._force_release(request, name)
        except (FenceKitError, ImproperlyConfigured) as error:
            self._report(request, error)
            return HttpResponseRedirect(self._url("changelist"))

    def _force_release(self, request: HttpRequest, name: str) -> HttpResponse:
        try:
            info = get_lock().inspect(name)
        except ValueError:
            info = None
        if info is None:
            raise Http404(f"nothing is known of {name}")
        if info.owner_id is None:
            self.message_user(request, f"The lock {name} is free already.", messages.WARNING)
            return HttpResponseRedirect(self._url("changelist"))
        if request.method != "POST":
            return self._page(
                request,
                "force_release",
                {
                    "title": "Are you sure?",
                    "name": name,
                    "owner": info.owner_id,
                    "token": info.token,
                    "lease": _seconds(info.ttl_ms),
                    "back_url": self._url("change", name),
                },
            )
        if request.POST.get("token") != str(info.token):
            self.message_user(
                request,
                f"The lock {name} has another holder by now ({info.owner_id}); nothing was done.",
                messages.WARNING,
            )
            return HttpResponseRedirect(self._url("force_release", name))
        # Logged first, and not at all unless it is done: nothing is forced open behind the log.
        log = router.db_for_write(LogEntry)
        unknown: OutcomeUnknown | None = None
        with transaction.atomic(using=log):
            what = f"Forced open; its holder was {info.owner_id} with token {info.token}."
            self.log_change(request, Lock(name=name), what)
            try:
                done = get_lock().force_release(name, token=info.token)
            except OutcomeUnknown as error:
                unknown, done = error, True
                self.log_change(request, Lock(name=name), "No answer came: perhaps it was not.")
            transaction.set_rollback(not done, using=log)
        if unknown is not None:
            raise unknown
        if done:
            self.message_user(request, f"The lock {name} was forced open.", messages.SUCCESS)
        else:
            self.message_user(request, f"The lock {name} was free already.", messages.WARNING)
        return HttpResponseRedirect(self._url("changelist"))


class QueueAdmin(_RedisAdmin):
    """FIFO queues: how many wait, and since when."""

    kind = "queue"
    columns = (
        ("waiting", "Waiting"),
        ("since", "Oldest since"),
        ("processes", "Processes"),
        ("owner", "Holder"),
    )

    def rows(self, found: list[str]) -> list[dict[str, Any]]:
        """What each queue looks like."""
        return [
            {**row, "since": _moment(row["oldest_ms"])}
            for row in listing.describe_queues(get_client(), load().prefix, found)
        ]

    def details(self, name: str) -> dict[str, Any] | None:
        """What a queue looks like."""
        (row,) = self.rows([name])
        if not row["waiting"] and not row["owner"]:
            return None
        return {title: row[column] for column, title in self.columns}


class RecordAdmin(_RedisAdmin):
    """Idempotency records: what became of each job; never its result."""

    kind = "idem"
    columns = (
        ("state", "State"),
        ("attempts", "Attempts"),
        ("owner", "Owner"),
        ("task_id", "Task"),
    )

    def rows(self, found: list[str]) -> list[dict[str, Any]]:
        """What became of each job."""
        described = [
            (name, listing.describe_record(get_client(), load().prefix, name)) for name in found
        ]
        return [
            {"name": name, **{column: facts.get(column, "") for column, _ in self.columns}}
            for name, facts in described
            if facts is not None
        ]

    def details(self, name: str) -> dict[str, Any] | None:
        """What became of a job."""
        facts = listing.describe_record(get_client(), load().prefix, name)
        if facts is None:
            return None
        return {
            "State": facts["state"],
            "Attempts": facts.get("attempts", "0"),
            "Owner": facts.get("owner", "") or "nobody",
            "Task": facts.get("task_id", "") or "–",
            "Token": facts.get("last", "–"),
            "Result kept": facts["has_result"],
            "Error": facts.get("error", "") or "none",
            "Record kept for": _seconds(int(facts["ttl_ms"])),
        }


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"


def _moment(milliseconds: int | None) -> datetime | str:
    if milliseconds is None:
        return "–"
    return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc)
