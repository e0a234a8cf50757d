"""Settings of the ledger; see the variables that are read here."""

import os
from typing import Any
from urllib.parse import urlsplit

SECRET_KEY = "not a secret: for tests and demonstrations only"  # noqa: S105 - it says so itself
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "ledger.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
DATABASE_ROUTERS = ["ledger.routing.Router"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "fencekit.django",
    "ledger.accounts",
    "ledger.curios",
]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

FENCEKIT = {"REDIS_URL": os.environ.get("LEDGER_REDIS_URL", "redis://localhost:6379/0")}


def _postgres(**options: Any) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ.get("LEDGER_POSTGRES_HOST", "/nowhere"),
        "NAME": os.environ.get("LEDGER_POSTGRES_NAME", "ledger"),
        "USER": "postgres",
        "OPTIONS": options,
    }


def _mariadb(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.mysql",
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "NAME": parts.path.strip("/"),
        "OPTIONS": {"charset": "utf8mb4"},
    }


DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("LEDGER_SQLITE", "ledger.sqlite3"),
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode = wal; PRAGMA synchronous = normal;",
        },
    },
    # The same database, twice.
    "postgres": _postgres(),
}
if os.environ.get("LEDGER_WITHOUT_POSTGRES"):
    del DATABASES["postgres"]
else:
    from psycopg import IsolationLevel

    DATABASES["repeatable"] = _postgres(isolation_level=IsolationLevel.REPEATABLE_READ)
if url := os.environ.get("FENCEKIT_TEST_MARIADB_URL"):
    DATABASES["mariadb"] = _mariadb(url)
