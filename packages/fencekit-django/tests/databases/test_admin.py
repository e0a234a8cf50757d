"""The admin's pages: who sees what, and forcing a lock open."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import OperationalError
from django.test import Client, override_settings

from fencekit import (
    DistributedLock,
    FencedOutError,
    FenceGate,
    FenceToken,
    IdempotencyGuard,
    OutcomeUnknown,
    StoreUnavailable,
)
from fencekit.django import fenced_atomic, get_client, get_lock, run_once
from fencekit.django.admin_pages import LockAdmin
from fencekit.keys import names
from fencekit.listing import find
from harness.topologies import Cluster

pytestmark = pytest.mark.usefixtures("sqlite_alias", "redis_settings")
LEASE = timedelta(seconds=30)
LOCKS = "/admin/fencekit/lock/"


def signed_in(*permissions: str) -> Client:
    user = User.objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def boss() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client


def page(client: Client, url: str, status: int = 200) -> str:
    answer = client.get(url)
    assert answer.status_code == status, answer
    return answer.content.decode()


class TestLists:
    def test_locks_are_listed_filtered_and_inspected(self) -> None:
        handle = get_lock().acquire("account:1", ttl=LEASE, owner_id="worker-7")
        get_lock().acquire("order/2?x=1", ttl=LEASE)
        client = boss()
        listed = page(client, LOCKS)
        assert "account:1" in listed
        assert "order/2?x=1" in listed
        assert "worker-7" in listed
        assert str(handle.token) in listed
        filtered = page(client, f"{LOCKS}?q=count:")
        assert "account:1" in filtered
        assert "order/2" not in filtered
        # Globs are no globs.
        assert "account:1" not in page(client, f"{LOCKS}?q=*")
        assert "worker-7" in page(client, f"{LOCKS}account_3A1/change/")
        page(client, f"{LOCKS}order_2F2_3Fx=1/change/")
        page(client, f"{LOCKS}nothing/change/", 404)

    def test_queues(self) -> None:
        redis, keys = get_client(), names("fencekit", "jobs")
        redis.xadd(keys.queue, {"w": "owner:attempt", "c": "channel"})
        redis.zadd(keys.members, {"channel": 1})
        get_lock().acquire("jobs", ttl=LEASE, owner_id="worker-7")
        client = boss()
        listed = page(client, "/admin/fencekit/queue/")
        assert "jobs" in listed
        assert "worker-7" in listed
        assert "Oldest since" in page(client, "/admin/fencekit/queue/jobs/change/")
        page(client, "/admin/fencekit/queue/nothing/change/", 404)

    def test_records_without_their_results(self) -> None:
        guard = IdempotencyGuard(get_client())
        guard.run("charge:1", lambda: "a secret", ttl=LEASE)
        client = boss()
        listed = page(client, "/admin/fencekit/record/")
        assert "charge:1" in listed
        assert "done" in listed
        shown = page(client, "/admin/fencekit/record/charge_3A1/change/")
        assert "Result kept" in shown
        assert "secret" not in listed + shown
        page(client, "/admin/fencekit/record/nothing/change/", 404)

    def test_fences_and_effects_are_read_only(self) -> None:
        with fenced_atomic(FenceToken(5, resource="account:1")):
            run_once("transfers", "o1", lambda: {"transfer": 3})
        client = boss()
        assert "account:1" in page(client, "/admin/fencekit/fence/?q=account")
        assert "o1" in page(client, "/admin/fencekit/effect/?q=o1")
        page(client, "/admin/fencekit/effect/add/", 403)
        page(client, "/admin/fencekit/lock/add/", 403)
        index = page(client, "/admin/")
        for what in ("Locks", "FIFO queues", "Idempotency records", "Fences", "Effects"):
            assert what in index

    def test_pages_that_the_admin_has_for_every_model(self) -> None:
        handle = get_lock().acquire("account:1", ttl=LEASE)
        client = boss()
        for kind in ("lock", "queue", "record"):
            page(client, f"/admin/fencekit/{kind}/account_3A1/delete/", 403)
            page(client, f"/admin/fencekit/{kind}/account_3A1/history/")
        client.post(f"{LOCKS}account_3A1/force-release/", {"token": str(int(handle.token))})
        assert "Forced open" in page(client, f"{LOCKS}account_3A1/history/")
        page(signed_in(), f"{LOCKS}account_3A1/history/", 403)

    def test_pages_follow_each_other(self) -> None:
        redis = get_client()
        with redis.pipeline() as pipeline:
            for number in range(1500):
                pipeline.set(names("fencekit", f"n{number}").lock, "o:a:5", ex=30)
                pipeline.set(f"else:{number}", "x")
            pipeline.execute()
        seen: set[str] = set()
        cursor, pages = "", 0
        while True:
            found = find(redis, "fencekit", "lock", cursor=cursor)
            seen |= set(found.names)
            pages += 1
            if found.cursor is None:
                break
            cursor = found.cursor
        assert len(seen) == 1500
        assert pages > 2
        client = boss()
        assert 'id="next-page"' in page(client, LOCKS)
        assert "Redis could not be asked" in page(client, f"{LOCKS}?cursor=nonsense")

    def test_a_server_that_is_down_is_said(self) -> None:
        client = boss()
        with override_settings(FENCEKIT={"REDIS_URL": "redis://127.0.0.1:1/0"}):
            assert "Redis could not be asked" in page(client, LOCKS)
        with override_settings(FENCEKIT={}):
            assert "REDIS_URL" in page(client, LOCKS)


def test_names_are_found_on_every_node_of_a_cluster(cluster_server: Cluster) -> None:
    from redis.cluster import RedisCluster  # noqa: PLC0415 - only this test needs it

    with RedisCluster.from_url(cluster_server.url) as redis:
        for number in range(30):
            redis.set(names("fencekit", f"n{number}").lock, "o:a:5", ex=30)
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            found = find(redis, "fencekit", "lock", cursor=cursor, size=5)
            seen += found.names
            cursor = found.cursor
        assert sorted(seen) == sorted(f"n{number}" for number in range(30))


class TestPermissions:
    def test_without_any_nothing_is_seen(self) -> None:
        get_lock().acquire("account:1", ttl=LEASE)
        client = signed_in()
        for path in ("", "account_3A1/change/", "account_3A1/force-release/"):
            page(client, LOCKS + path, 403)
        assert "Locks" not in page(client, "/admin/")

    def test_to_view_is_not_to_release(self) -> None:
        get_lock().acquire("account:1", ttl=LEASE)
        client = signed_in("view_lock")
        assert "account:1" in page(client, LOCKS)
        assert "Force open" not in page(client, f"{LOCKS}account_3A1/change/")
        url = f"{LOCKS}account_3A1/force-release/"
        page(client, url, 403)
        assert client.post(url).status_code == 403
        page(client, "/admin/fencekit/record/", 403)
        assert get_lock().try_acquire("account:1", ttl=LEASE) is None

    def test_to_release_needs_to_view(self) -> None:
        get_lock().acquire("account:1", ttl=LEASE)
        client = signed_in("force_release_lock")
        page(client, f"{LOCKS}account_3A1/force-release/", 403)

    def test_nobody_is_sent_to_sign_in(self) -> None:
        page(Client(), LOCKS, 302)


class TestForceRelease:
    def test_it_asks_says_what_it_does_and_fences_the_holder(self) -> None:
        handle = get_lock().acquire("account:1", ttl=LEASE, owner_id="worker-7")
        client = signed_in("view_lock", "force_release_lock")
        assert "Force open" in page(client, f"{LOCKS}account_3A1/change/")
        url = f"{LOCKS}account_3A1/force-release/"
        asked = page(client, url)
        assert "worker-7" in asked
        assert "its token is refused" in asked
        # Asking does nothing.
        assert get_lock().try_acquire("account:1", ttl=LEASE) is None
        answer = client.post(url, {"token": str(handle.token)}, follow=True)
        assert "account:1 was forced open" in answer.content.decode()
        with pytest.raises(FencedOutError):
            FenceGate(get_client()).check(handle.token)
        assert get_lock().try_acquire("account:1", ttl=LEASE) is not None
        entry = LogEntry.objects.get()
        assert (entry.object_id, entry.user.username) == ("account:1", "clerk")
        assert "worker-7" in entry.get_change_message()
        assert str(handle.token) in entry.get_change_message()
        assert entry.get_admin_url() == f"{LOCKS}account_3A1/change/"

    def test_another_holder_than_was_shown_is_left_alone(self) -> None:
        handle = get_lock().acquire("account:1", ttl=LEASE)
        url = f"{LOCKS}account_3A1/force-release/"
        client = boss()
        handle.release()
        get_lock().acquire("account:1", ttl=LEASE)
        answer = client.post(url, {"token": str(handle.token)}, follow=True)
        assert "another holder by now" in answer.content.decode()
        assert get_lock().try_acquire("account:1", ttl=LEASE) is None
        assert not LogEntry.objects.exists()

    def test_a_free_lock_is_said(self) -> None:
        get_lock().acquire("account:1", ttl=LEASE).release()
        client = boss()
        url = f"{LOCKS}account_3A1/force-release/"
        for answer in (client.get(url, follow=True), client.post(url, follow=True)):
            assert "free already" in answer.content.decode()
        assert "Force open" not in page(client, f"{LOCKS}account_3A1/change/")
        page(client, f"{LOCKS}nothing/force-release/", 404)

    def test_a_server_that_is_down_is_said_and_nothing_is_logged(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handle = get_lock().acquire("account:1", ttl=LEASE)
        client = boss()
        url = f"{LOCKS}account_3A1/force-release/"

        def fails(*_: object, **__: object) -> bool:
            raise StoreUnavailable("force_release")

        # Between looking and forcing; then altogether.
        with monkeypatch.context() as patch:
            patch.setattr(DistributedLock, "force_release", fails)
            answer = client.post(url, {"token": str(handle.token)}, follow=True)
        assert "Redis could not be asked" in answer.content.decode()
        assert not LogEntry.objects.exists()
        with override_settings(FENCEKIT={"REDIS_URL": "redis://127.0.0.1:1/0"}):
            answer = client.post(url, {"token": str(handle.token)}, follow=True)
        assert "Redis could not be asked" in answer.content.decode()
        assert get_lock().try_acquire("account:1", ttl=LEASE) is None

    def test_what_may_have_been_done_is_logged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        handle = get_lock().acquire("account:1", ttl=LEASE)
        client = boss()
        force = DistributedLock.force_release

        def done_unheard(*args: Any, **kwargs: Any) -> bool:
            force(*args, **kwargs)
            raise OutcomeUnknown("force_release")

        monkeypatch.setattr(DistributedLock, "force_release", done_unheard)
        url = f"{LOCKS}account_3A1/force-release/"
        answer = client.post(url, {"token": str(handle.token)}, follow=True)
        assert "Redis could not be asked" in answer.content.decode()
        assert get_lock().try_acquire("account:1", ttl=LEASE) is not None
        logged = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
        assert [said.partition(" ")[0] for said in logged] == ["Forced", "No"]

    def test_it_is_not_done_when_it_cannot_be_logged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        handle = get_lock().acquire("account:1", ttl=LEASE)
        client = boss()

        def fails(*_: object) -> None:
            raise OperationalError("disk full")

        monkeypatch.setattr(LockAdmin, "log_change", fails)
        with pytest.raises(OperationalError):
            client.post(f"{LOCKS}account_3A1/force-release/", {"token": str(handle.token)})
        assert get_lock().try_acquire("account:1", ttl=LEASE) is None

    def test_a_forged_form_is_refused(self) -> None:
        handle = get_lock().acquire("account:1", ttl=LEASE)
        client: Any = Client(enforce_csrf_checks=True)
        client.force_login(User.objects.create_superuser("boss"))
        url = f"{LOCKS}account_3A1/force-release/"
        assert client.post(url, {"token": str(handle.token)}).status_code == 403
        assert get_lock().try_acquire("account:1", ttl=LEASE) is None
