"""The commands: what they find, lift and delete."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings
from django.utils import timezone

from fencekit import FenceToken, StoreUnavailable
from fencekit.django import Effect, Fence, fenced_atomic, get_lock, run_once
from fencekit.django.management.commands import fencekit_reseed
from harness.servers import Server
from ledger.accounts.models import Account
from ledger.curios.models import Odd


def called(name: str, *args: str, **options: Any) -> str:
    out = StringIO()
    call_command(name, *args, stdout=out, stderr=out, **options)
    return out.getvalue()


class TestReseed:
    @pytest.mark.usefixtures("redis_settings")
    def test_fences_are_lifted_and_never_lowered(self, alias: str) -> None:
        high, low = 2**52, 5
        for name, value in (("high", high), ("low", low)):
            with fenced_atomic(FenceToken(value, resource=name)):
                pass
        with fenced_atomic(FenceToken(high, resource="job", record="claim")):
            pass
        newer = get_lock().acquire("low", ttl=timedelta(seconds=5)).token
        assert "1 of 2 fences would be lifted" in called(
            "fencekit_reseed", "--dry-run", database=alias
        )
        assert "1 of 2 fences lifted" in called("fencekit_reseed", database=alias)
        assert "0 of 2 fences lifted" in called("fencekit_reseed", database=alias)
        token = get_lock().acquire("high", ttl=timedelta(seconds=5)).token
        assert token == high + 1
        info = get_lock().inspect("low")
        assert info is not None
        assert info.last == newer

    @pytest.mark.usefixtures("redis_settings")
    def test_rows_of_a_model(self, alias: str) -> None:
        row = Account.objects.create(name="a", fence_token=2**52)
        Account.objects.create(name="b")
        args = ["--model", "accounts.Account", "--resource", "account:{pk}", "--database", alias]
        assert "1 of 1 fences lifted" in called("fencekit_reseed", *args)
        token = get_lock().acquire(f"account:{row.pk}", ttl=timedelta(seconds=5)).token
        assert token > row.fence_token

    @pytest.mark.usefixtures("redis_settings", "sqlite_alias")
    def test_options_that_make_no_sense(self) -> None:
        Account.objects.create(name="a", fence_token=5)
        Odd.objects.create()
        for args in (
            ["--model", "accounts.Nothing", "--resource", "x"],
            ["--model", "accounts.Account"],
            ["--model", "accounts.Account", "--resource", "{nothing}"],
            ["--model", "accounts.Account", "--resource", "{pk.nothing}"],
            ["--model", "accounts.Account", "--resource", "a" * 600],
            ["--database", "nothing"],
            ["--model", "curios.Odd", "--resource", "x", "--field", "narrow"],
            ["--model", "curios.Odd", "--resource", "x"],
        ):
            with pytest.raises(CommandError):
                called("fencekit_reseed", *args)

    @pytest.mark.usefixtures("sqlite_alias")
    def test_redis_that_cannot_be_reached(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with fenced_atomic(FenceToken(5, resource="r")):
            pass

        def unreachable() -> Any:
            raise StoreUnavailable("down")

        monkeypatch.setattr(fencekit_reseed, "get_lock", unreachable)
        with pytest.raises(CommandError, match="after 0 lifted: down"):
            called("fencekit_reseed")


class TestPrune:
    def aged(self, days: float) -> None:
        Effect.objects.update(created_at=timezone.now() - timedelta(days=days))
        Fence.objects.update(updated_at=timezone.now() - timedelta(days=days))

    def test_old_effects_go_in_batches(self, alias: str) -> None:
        for number in range(5):
            run_once("a", str(number), lambda: None)
        with fenced_atomic(FenceToken(5, resource="r")):
            pass
        self.aged(100)
        run_once("a", "young", lambda: None)
        assert "5 effects would be deleted" in called("fencekit_prune", "--dry-run", database=alias)
        out = called("fencekit_prune", database=alias, batch=2, verbosity=2)
        assert "2 of 5 effects" in out
        assert "5 effects deleted" in out
        assert [effect.key for effect in Effect.objects.all()] == ["young"]
        assert Fence.objects.count() == 1
        assert "1 fences deleted" in called("fencekit_prune", "--fences", database=alias)

    @pytest.mark.usefixtures("sqlite_alias")
    def test_one_scope(self) -> None:
        for scope in "ab":
            run_once(scope, "1", lambda: None)
        self.aged(100)
        called("fencekit_prune", "--scope", "a")
        assert [effect.scope for effect in Effect.objects.all()] == ["b"]

    @pytest.mark.usefixtures("sqlite_alias")
    def test_options_that_make_no_sense(self) -> None:
        for args in (
            ["--days", "-1"],
            ["--days", "nan"],
            ["--days", "800000"],
            ["--batch", "0"],
            ["--database", "nothing"],
        ):
            with pytest.raises(CommandError):
                called("fencekit_prune", *args)


class TestDoctor:
    @pytest.mark.usefixtures("redis_settings")
    def test_all_is_well(self, alias: str) -> None:
        with fenced_atomic(FenceToken(5, resource="r")):
            pass
        get_lock().advance_fence("r", at_least=5)
        out = called("fencekit_doctor")
        assert "tables migrated" in out
        assert "agree with Redis" in out
        findings = json.loads(called("fencekit_doctor", "--json"))
        assert {finding["level"] for finding in findings} == {"ok"}
        isolation = [f["says"] for f in findings if "isolation" in f["says"]]
        assert len(isolation) == (connections[alias].vendor == "postgresql")

    @pytest.mark.usefixtures("redis_settings", "sqlite_alias")
    def test_redis_is_behind_the_database(self) -> None:
        with fenced_atomic(FenceToken(2**52, resource="r")):
            pass
        get_lock().acquire("r", ttl=timedelta(seconds=5))
        with pytest.raises(CommandError, match="1 of these"):
            called("fencekit_doctor")
        called("fencekit_reseed")
        assert "agree" in called("fencekit_doctor")

    @pytest.mark.usefixtures("sqlite_alias")
    def test_redis_is_not_there_or_not_said(self) -> None:
        for setting in ({"REDIS_URL": "redis://127.0.0.1:1/0"}, {}, {"UNKNOWN": "x"}):
            with override_settings(FENCEKIT=setting), pytest.raises(CommandError):
                called("fencekit_doctor")

    @pytest.mark.usefixtures("redis_settings", "sqlite_alias")
    def test_tables_are_not_migrated(self) -> None:
        call_command("migrate", "fencekit", "zero", verbosity=0)
        try:
            out = StringIO()
            with pytest.raises(CommandError):
                call_command("fencekit_doctor", stdout=out)
            assert "run migrate" in out.getvalue()
        finally:
            call_command("migrate", "fencekit", verbosity=0)

    @pytest.mark.usefixtures("sqlite_alias")
    def test_redis_that_may_evict(self, redis_settings: Server) -> None:
        redis_settings.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        try:
            # Without a limit it evicts nothing yet.
            assert "once maxmemory is set" in called("fencekit_doctor")
            redis_settings.call("CONFIG", "SET", "maxmemory", "100mb")
            out = StringIO()
            with pytest.raises(CommandError, match="void the guarantees"):
                call_command("fencekit_doctor", stdout=out)
            assert "may evict locks (maxmemory-policy allkeys-lru)" in out.getvalue()
            assert "CONFIG SET maxmemory-policy noeviction" in out.getvalue()
        finally:
            redis_settings.call("CONFIG", "SET", "maxmemory", "0")
            redis_settings.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
