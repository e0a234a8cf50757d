"""The admin as people see it, in headless Chromium; screenshots are kept when asked for.

Red with a list that makes the page wider than a phone, and with a block that hides a stylesheet.

    FENCEKIT_SCREENSHOTS=/tmp/shots pytest packages/fencekit-django/tests/databases/test_browser.py

Chromium and its driver come from the system (Debian: `chromium chromium-driver`); the driver speaks
the WebDriver protocol, plain HTTP, so that no further package is needed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.servers.basehttp import ThreadedWSGIServer
from django.core.wsgi import get_wsgi_application
from django.test import override_settings

from fencekit import FenceToken, IdempotencyGuard
from fencekit.django import fenced_atomic, get_client, get_lock, run_once
from harness.ports import free_port
from harness.processes import Process
from harness.waiting import eventually

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
LEASE = timedelta(minutes=5)
# By name: colour scheme, and width in pixels.
LOOKS = {"desktop": ("light", 1200), "dark": ("dark", 1200), "phone": ("light", 390)}
WIDE = 800
COLOUR = "getComputedStyle(document.querySelector(arguments[0])).backgroundColor"
NO_COLOUR = {"", "rgba(0, 0, 0, 0)"}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"

pytestmark = [
    pytest.mark.usefixtures("sqlite_alias", "redis_settings"),
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="Chromium is not installed: apt-get install chromium chromium-driver",
    ),
]


class Browser:
    """A headless Chromium, driven over WebDriver."""

    def __init__(self, url: str) -> None:
        self._url = url
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,900"]
        options = {"binary": CHROMIUM, "args": [*arguments, "--disable-dev-shm-usage"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options}
        session = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{session['sessionId']}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - our own driver
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own driver
            return json.load(answer)["value"]

    def open(self, url: str) -> None:
        self.ask("POST", f"{self._session}/url", {"url": url})

    def find(self, css: str) -> str:
        found = self.ask(
            "POST", f"{self._session}/element", {"using": "css selector", "value": css}
        )
        element: str = found[ELEMENT]
        return element

    def run(self, script: str, *args: Any) -> Any:
        body = {"script": script, "args": args}
        return self.ask("POST", f"{self._session}/execute/sync", body)

    def follow(self, css: str) -> None:
        """Click, and wait for the page that comes; the click itself does not."""
        self.run("window.isLeft = true")
        self.ask("POST", f"{self._session}/element/{self.find(css)}/click", {})

        def has_come() -> bool:
            with suppress(OSError):  # asked in between the two
                return bool(self.run("return !window.isLeft && document.readyState === 'complete'"))
            return False

        eventually(has_come, timeout=30)

    def type(self, css: str, text: str) -> None:
        self.ask("POST", f"{self._session}/element/{self.find(css)}/value", {"text": text})

    @property
    def text(self) -> str:
        text: str = self.run("return document.body.innerText")
        return text

    def has(self, css: str) -> bool:
        return bool(self.run("return !!document.querySelector(arguments[0])", css))

    def look(self, name: str) -> None:
        """See that the page is dressed and as wide as a phone; keep how it looks if wanted."""
        folder = os.environ.get("FENCEKIT_SCREENSHOTS")
        for look, (scheme, width) in LOOKS.items():
            self._emulate(scheme, width)
            if folder:
                Path(folder).mkdir(parents=True, exist_ok=True)
                picture = base64.b64decode(self.ask("GET", f"{self._session}/screenshot"))
                (Path(folder) / f"{name}-{look}.png").write_bytes(picture)
            assert self.run("return document.documentElement.scrollWidth") <= width
        for part in ("#header", ".breadcrumbs"):
            if self.has(part):
                assert self.run(f"return {COLOUR}", part) not in NO_COLOUR
        self._emulate(*LOOKS["desktop"])

    def _emulate(self, scheme: str, width: int) -> None:
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < WIDE}
        for command, params in (
            ("Emulation.setEmulatedMedia", media),
            ("Emulation.setDeviceMetricsOverride", size),
        ):
            body = {"cmd": command, "params": params}
            self.ask("POST", f"{self._session}/goog/cdp/execute", body)

    def close(self) -> None:
        with suppress(OSError):
            self.ask("DELETE", self._session)


@pytest.fixture
def browser() -> Iterator[Browser]:
    port = free_port()
    driver = Process([str(DRIVER), f"--port={port}"])
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{url}/status", timeout=5) as answer:  # noqa: S310 - our own driver
            return bool(json.load(answer)["value"]["ready"])
        return False

    try:
        eventually(answers, timeout=20)
        browser = Browser(url)
        yield browser
        browser.close()
    finally:
        driver.kill()


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the ledger, with its static files."""
    # In another thread, which has connections of its own.
    monkeypatch.setenv("LEDGER_ALIAS", "default")

    application: Any = StaticFilesHandler(get_wsgi_application())
    server = make_server("127.0.0.1", 0, application, ThreadedWSGIServer, _Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with override_settings(DEBUG=True):  # static files are only served then
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def signed_in(browser: Browser, site: str) -> Callable[..., Browser]:
    def sign_in(*permissions: str) -> Browser:
        user = User.objects.create_user("clerk", password="secret", is_staff=True)  # noqa: S106 - nobody else is there
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        browser.open(f"{site}/admin/login/?next=/admin/")
        browser.type("#id_username", "clerk")
        browser.type("#id_password", "secret")
        browser.follow("input[type=submit]")
        return browser

    return sign_in


def test_list_filter_inspect_and_force_open(signed_in: Callable[..., Browser], site: str) -> None:
    handle = get_lock().acquire("account:1", ttl=LEASE, owner_id="worker-7")
    for number in range(3):
        get_lock().acquire(f"report:{number}", ttl=LEASE)
    IdempotencyGuard(get_client()).run("charge:1", lambda: "receipt", ttl=LEASE)
    with fenced_atomic(FenceToken(5, resource="account:1")):
        run_once("transfers", "order-1", lambda: {"transfer": 1})
    everything = ("view_lock", "view_queue", "view_record", "view_fence", "view_effect")
    browser = signed_in(*everything, "force_release_lock")
    browser.look("1-index")
    for what in ("Locks", "FIFO queues", "Idempotency records", "Fences", "Effects"):
        assert what in browser.text

    browser.open(f"{site}/admin/fencekit/lock/")
    assert "report:2" in browser.text
    browser.look("2-locks")
    browser.type("#searchbar", "account")
    browser.follow("#changelist-search input[type=submit]")
    assert "worker-7" in browser.text
    assert "report:2" not in browser.text
    browser.look("3-filtered")

    browser.follow("#result_list tbody a")
    assert str(handle.token) in browser.text
    browser.look("4-lock")
    browser.follow("#force-release")
    assert "Are you sure?" in browser.text
    assert "its token is refused" in browser.text
    browser.look("5-confirmation")
    assert get_lock().try_acquire("account:1", ttl=LEASE) is None
    browser.follow("#confirm")
    assert "The lock account:1 was forced open" in browser.text
    browser.look("6-forced-open")
    assert get_lock().try_acquire("account:1", ttl=LEASE) is not None
    assert LogEntry.objects.get().object_id == "account:1"

    for model, text in (("record", "charge:1"), ("fence", "account:1"), ("effect", "order-1")):
        browser.open(f"{site}/admin/fencekit/{model}/")
        assert text in browser.text
        browser.look(f"7-{model}")


def test_without_the_permission_to_force_open(signed_in: Callable[..., Browser], site: str) -> None:
    get_lock().acquire("account:1", ttl=LEASE, owner_id="worker-7")
    browser = signed_in("view_lock")
    browser.open(f"{site}/admin/fencekit/lock/account_3A1/change/")
    assert "worker-7" in browser.text
    assert not browser.has("#force-release")
    browser.look("8-without-permission")
    browser.open(f"{site}/admin/fencekit/lock/account_3A1/force-release/")
    assert "403" in browser.text
    browser.open(f"{site}/admin/fencekit/record/")
    assert "403" in browser.text
    assert get_lock().try_acquire("account:1", ttl=LEASE) is None
