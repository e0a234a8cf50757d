"""A password is never printed: not in a result, a message, a traceback, a prompt or the help.

Shown to fail: without `Secrets.hide` (redis-py quotes a setting that it does not know), without the
look at what stands behind the address (half of a password is taken for one), and with an error that
leaves `session` as it is.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from fencekit.cli import app
from fencekit.cli.secrets import Secrets
from harness.fixtures import ServerPool
from harness.kinds import default_kind
from harness.servers import ACL_USER, Server

from .conftest import Fencekit

PASSWORD = "s3cret/p@ss?w:rd"  # noqa: S105 - of a server that lives for a test
HIDDEN = (PASSWORD, quote(PASSWORD, safe=""), "s3cret", "p@ss")


@pytest.fixture
def guarded(servers: ServerPool) -> Server:
    server = servers.clean(default_kind(), acl="~* &* +@all")
    server.call("ACL", "SETUSER", ACL_USER, "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    return server


def url_of(server: Server, password: str = PASSWORD) -> str:
    return f"redis://{ACL_USER}:{quote(password, safe='')}@127.0.0.1:{server.port}/0"


def assert_hidden(ran: Any) -> None:
    for word in HIDDEN:
        assert word not in ran.out
        assert word not in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        *(("doctor",), ("doctor", "--json"), ("ls",), ("show", "a"), ("idem", "show", "a")),
        *(("release", "a", "--force", "--yes"), ("watch", "a", "-n", "1"), ("--help",)),
        *(("show", "--help"), ("show",), ("show", "a", "--nonsense")),
    ],
    ids=" ".join,
)
def test_no_command_tells_it(
    fencekit: Fencekit,
    guarded: Server,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setenv("FENCEKIT_REDIS_URL", url_of(guarded))
    monkeypatch.setenv("FENCEKIT_DEBUG", "1")
    ran = fencekit(*arguments)
    assert ran.out + ran.err
    assert_hidden(ran)


@pytest.mark.parametrize(
    "url",
    [
        "redis://{user}:{password}@127.0.0.1:1/0",
        "redis://{user}:{raw}@127.0.0.1:1/0",
        "redis://:s3cret/p@ss@127.0.0.1:1/0",
        "redis://:12/s3cret@127.0.0.1:6379/0",
        "redis://127.0.0.1:1/0?username=u&password={password}",
        "redis://u:{password}@127.0.0.1:port/0",
        "nonsense://u:{password}@127.0.0.1:1",
        "u:{password}@127.0.0.1:1",
        "redis+sentinel://u:{password}@127.0.0.1:1/service?sentinel_password={password}",
        "redis+sentinel://u:{password}@127.0.0.1:1",
        "unix://u:{password}@/nowhere/s3cket?db=0",
        "rediss://u:{password}@127.0.0.1:1/0?ssl_cert_reqs={password}",
    ],
)
def test_no_url_is_quoted(fencekit: Fencekit, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("FENCEKIT_DEBUG", "1")
    filled = url.format(user=ACL_USER, password=quote(PASSWORD, safe=""), raw=PASSWORD)
    ran = fencekit("ls", "--url", filled)
    assert ran.code in {2, 3}
    assert ran.err
    assert_hidden(ran)


def test_half_a_password_is_not_taken_for_an_address(fencekit: Fencekit, server: Server) -> None:
    ran = fencekit("doctor", f"redis://:{server.port}/s3cret@nowhere:6379/0", "--look-only")
    assert (ran.code, ran.out) == (2, "")
    assert "%2F" in ran.err
    assert str(server.port) not in ran.err


def test_a_wrong_password_is_not_told_either(fencekit: Fencekit, guarded: Server) -> None:
    ran = fencekit("ls", "--url", url_of(guarded, "s3cret-wrong"))
    assert ran.code == 3
    assert "does not accept the name or password" in ran.err
    assert_hidden(ran)


def test_an_unexpected_error_is_told_with_its_traceback_and_without_it(
    fencekit: Fencekit, guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: Any, _name: str) -> None:
        settings = run.client.connection_pool.connection_kwargs
        raise RuntimeError(f"cannot go on with {settings!r} of {url_of(guarded)}")

    monkeypatch.setattr(app, "look_at_lock", broken)
    ran = fencekit("show", "a", "--url", url_of(guarded))
    assert ran.code == 4
    assert "unexpected RuntimeError" in ran.err
    assert "Traceback" in ran.err
    assert "'password': '***'" in ran.err
    assert_hidden(ran)


def test_where_it_looks_is_told_without_it(fencekit: Fencekit, guarded: Server) -> None:
    ran = fencekit("doctor", url_of(guarded), "--json", "--look-only")
    assert ran.data["target"] == f"redis://127.0.0.1:{guarded.port}/0"


def test_a_name_of_a_lock_is_no_secret_of_a_short_password() -> None:
    assert Secrets("redis://:ab@h/0").hide("about redis://:ab@h/0") == "***out ***"
    assert repr(Secrets("redis://:ab@h/0")) == "<Secrets>"
    assert Secrets("redis://h:6379/0").hide("redis at h:6379") == "redis at h:6379"
