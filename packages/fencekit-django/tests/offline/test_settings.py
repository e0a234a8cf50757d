"""The setting FENCEKIT, the system checks, and the field: nothing here asks a server."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import models
from django.test import override_settings

import fencekit
import fencekit.django
from fencekit.django import AddFenceTrigger, FenceTokenField, get_client, get_lock
from fencekit.django import checks as ours
from fencekit.django.conf import load
from fencekit.django.fields import fence_problem

CLIENT = object()


class Client:
    def execute_command(self) -> None: ...


def make_client() -> Client:
    return Client()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"REDIS": "redis://x"}, "unknown keys: REDIS"),
        ({"redis_url": "redis://x"}, "unknown keys: redis_url"),
        ({3: "x"}, "unknown keys: 3"),
        ({"REDIS_URL": 3}, "must be a str"),
        ({"REDIS_URL": "redis://x", "CLIENT": "a.b"}, "not both"),
        ({"PREFIX": "a b"}, "PREFIX"),
        ({"PREFIX": "{a}"}, "PREFIX"),
        ("redis://x", "must be a dict"),
    ],
)
def test_a_wrong_setting_is_refused_and_reported(setting: Any, says: str) -> None:
    with override_settings(FENCEKIT=setting):
        with pytest.raises(ImproperlyConfigured, match=says):
            load()
        assert "fencekit.E003" in {str(found.id) for found in checks.run_checks()}


def test_no_setting_is_fine_until_a_client_is_wanted() -> None:
    with override_settings(FENCEKIT={}):
        assert load().prefix == "fencekit"
        with pytest.raises(ImproperlyConfigured, match="REDIS_URL"):
            get_client()


def test_client_by_dotted_path(monkeypatch: pytest.MonkeyPatch) -> None:
    import json  # noqa: PLC0415 - any module that can be imported by name

    client = Client()
    monkeypatch.setattr(json, "client", client, raising=False)
    monkeypatch.setattr(json, "make_client", make_client, raising=False)
    with override_settings(FENCEKIT={"CLIENT": "json.client"}):
        assert get_client() is client
    with override_settings(FENCEKIT={"CLIENT": "json.make_client"}):
        assert get_client() is get_client()
        assert isinstance(get_client(), Client)
    with (
        override_settings(FENCEKIT={"CLIENT": "json.nothing"}),
        pytest.raises(ImproperlyConfigured, match="CLIENT"),
    ):
        get_client()


def test_the_client_and_the_lock_follow_the_setting() -> None:
    with override_settings(FENCEKIT={"REDIS_URL": "redis://localhost:1/0", "PREFIX": "p"}):
        first = get_client()
        assert get_client() is first
        assert get_lock().prefix == "p"
    with override_settings(FENCEKIT={"REDIS_URL": "redis://localhost:2/0"}):
        assert get_client() is not first
        assert get_lock().prefix == "fencekit"


def named(field: models.Field[Any, Any], name: str) -> models.Field[Any, Any]:
    field.set_attributes_from_name(name)
    return field


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (FenceTokenField(), None),
        (models.BigIntegerField(), None),
        (models.IntegerField(), "64 bits"),
        (models.PositiveIntegerField(), "64 bits"),
        (models.CharField(), "64 bits"),
        (models.BigIntegerField(null=True), "null"),
        (FenceTokenField(null=True), "null"),
        (models.BigIntegerField(primary_key=True), "primary key"),
    ],
)
def test_what_can_be_a_fence(field: models.Field[Any, Any], problem: str | None) -> None:
    found = fence_problem(named(field, "fence_token"))
    assert (found is None) if problem is None else (problem in str(found))


def test_checks_of_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    for field, identifiers in (
        (models.IntegerField(), ["fencekit.E002"]),
        (models.BigIntegerField(null=True), ["fencekit.E002"]),
        (models.BigIntegerField(), []),
        # Says so itself.
        (FenceTokenField(null=True), []),
    ):
        monkeypatch.setattr(ours, "_fence_of", lambda _, f=field: named(f, "fence_token"))
        found = ours._check_fences([apps.get_app_config("curios")])
        assert sorted({str(each.id) for each in found}) == identifiers
    null = named(FenceTokenField(null=True), "fence_token")
    monkeypatch.setattr(models.PositiveBigIntegerField, "check", lambda *_, **__: [])
    assert [each.id for each in null.check()] == ["fencekit.E001"]
    assert named(FenceTokenField(), "fence_token").check() == []


@pytest.mark.parametrize(
    ("database", "identifiers"),
    [
        ({"ENGINE": "django.db.backends.sqlite3"}, ["fencekit.W001"]),
        (
            {
                "ENGINE": "django.db.backends.sqlite3",
                "OPTIONS": {"transaction_mode": "IMMEDIATE"},
            },
            [],
        ),
        (
            {
                "ENGINE": "django.db.backends.sqlite3",
                "OPTIONS": {"transaction_mode": "exclusive"},
            },
            [],
        ),
        (
            {
                "ENGINE": "django.db.backends.sqlite3",
                "OPTIONS": {"transaction_mode": "DEFERRED"},
            },
            ["fencekit.W001"],
        ),
        ({"ENGINE": "django.db.backends.mysql"}, []),
        ({"ENGINE": "django.db.backends.mysql", "OPTIONS": {"client_flag": 0}}, ["fencekit.E004"]),
        ({"ENGINE": "django.db.backends.mysql", "OPTIONS": {"client_flag": 2 | 64}}, []),
        (
            {
                "ENGINE": "django.db.backends.mysql",
                "OPTIONS": {"isolation_level": "Repeatable Read"},
            },
            ["fencekit.W004"],
        ),
        (
            {"ENGINE": "django.db.backends.mysql", "OPTIONS": {"isolation_level": None}},
            ["fencekit.W004"],
        ),
        (
            {"ENGINE": "django.db.backends.mysql", "OPTIONS": {"isolation_level": "serializable"}},
            [],
        ),
        ({"ENGINE": "django.db.backends.postgresql"}, []),
    ],
)
@pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
def test_checks_of_databases(database: dict[str, Any], identifiers: list[str]) -> None:
    with override_settings(DATABASES={"default": database}):
        assert [found.id for found in ours._check_databases()] == identifiers


class Splitting:
    def db_for_write(self, model: type[models.Model], **_: object) -> str:
        return {"Fence": "default", "Effect": "postgres"}.get(model.__name__, "repeatable")

    db_for_read = db_for_write


def test_checks_of_routers() -> None:
    with override_settings(DATABASE_ROUTERS=[Splitting()]):
        found = ours._check_routers(None)
    identifiers = [each.id for each in found]
    assert identifiers[0] == "fencekit.W003"
    assert set(identifiers[1:]) == {"fencekit.W002"}
    assert "'repeatable'" in found[1].msg
    assert ours._check_routers(None) == []


def test_manage_check_finds_nothing() -> None:
    call_command("check")


def test_the_field_goes_into_migrations_and_back() -> None:
    name, path, args, kwargs = FenceTokenField(db_column="x").clone().deconstruct()
    assert (name, path, args) == (None, "fencekit.django.fields.FenceTokenField", [])
    assert kwargs == {"db_column": "x", "default": 0, "db_default": 0, "editable": False}


def test_what_is_exported() -> None:
    assert fencekit.fenced_update is fencekit.django.fenced_update
    for name in fencekit.django.__all__:
        assert getattr(fencekit.django, name) is not None
    with pytest.raises(AttributeError):
        _ = fencekit.django.no_such  # type: ignore[attr-defined]
    assert AddFenceTrigger("Account").reversible
