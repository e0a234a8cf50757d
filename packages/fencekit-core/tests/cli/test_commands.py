"""`ls`, `show`, `watch`, `release`, `idem` and `fifo`: what they say, and how they end.

Shown to fail: `release` that asks the server again who holds the lock after the question (a later
holder is thrown out), `ls` with KEYS, a name printed as markup, an exit code of 0 for no such name.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from fencekit import DistributedLock, FencedOutError, FenceGate, IdempotencyGuard, LockNotOwned
from fencekit.drivers.sync import SyncDriver
from fencekit.keys import names
from harness import clients
from harness.fixtures import ServerPool
from harness.kinds import default_kind
from harness.servers import Server
from harness.statistics import CommandStats
from harness.topologies import Cluster

from .conftest import Fencekit

LEASE, HOUR = timedelta(seconds=30), timedelta(hours=1)


def url_of(client: Any) -> str:
    return f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"


@pytest.fixture(params=["single", "cluster"])
def place(request: pytest.FixtureRequest) -> Server | Cluster:
    """A server and a cluster, with a lock, two records and a queue each."""
    fixture = "server" if request.param == "single" else "cluster_server"
    found: Server | Cluster = request.getfixturevalue(fixture)
    with clients.opened(found.url, topology=request.param) as client:
        guard = IdempotencyGuard(client)
        DistributedLock(client).acquire("invoices", ttl=LEASE, owner_id="worker-1")
        guard.run("charge:1", lambda: {"card": "4711"}, ttl=HOUR)
        guard.begin("charge:2", ttl=HOUR, renew=False, task_id="t-2")
        client.xadd(names("fencekit", "line").queue, {"w": "me:1", "c": "x"})
        SyncDriver.of(client).close()
    return found


def test_ls_lists_what_there_is(fencekit: Fencekit, place: Server | Cluster) -> None:
    ran = fencekit("ls", "--url", place.url, "--json")
    said = [(row["name"], row["kind"], row["state"], row["owner"]) for row in ran.data]
    assert said[0] == ("charge:1", "record", "done", said[0][3])
    assert said[1][:3] == ("charge:2", "record", "running")
    assert said[2:] == [
        ("invoices", "lock", "held", "worker-1"),
        ("line", "queue", "1 waiting", None),
    ]
    assert 0 < ran.data[2]["left_ms"] <= 30_000
    seen = fencekit("ls", "--url", place.url)
    assert [line.split()[0] for line in seen.out.splitlines() if line.strip()][2:] == [
        *("charge:1", "charge:2", "invoices", "line")
    ]
    only = fencekit("ls", "rge:", "--kind", "record", "--url", place.url, "--json", "--limit", "1")
    assert len(only.data) == 1
    assert "more than 1" in only.err
    assert fencekit("ls", "nothing like it", "--url", place.url).out == "nothing\n"
    assert (ran.code, seen.code, only.code) == (0, 0, 0)


def test_ls_does_not_stop_the_server(
    fencekit: Fencekit, server: Server, commandstats: CommandStats
) -> None:
    fencekit("ls", "--url", server.url)
    assert commandstats.counts()["scan"]
    assert not commandstats.counts()["keys"]


def test_somebody_elses_text_is_shown_as_text(fencekit: Fencekit, redis_client: Any) -> None:
    evil = "[bold]a[/bold]"
    redis_client.set(names("fencekit", evil).lock, "me\x1b[2J[red]:attempt:7", px=60_000)
    for arguments in (("ls",), ("show", evil)):
        ran = fencekit(*arguments, "--url", url_of(redis_client))
        assert evil in ran.out
        assert "me\\x1b[2J[red]" in ran.out
        assert "\x1b" not in ran.out


def test_show_tells_holder_and_fence(fencekit: Fencekit, place: Server | Cluster) -> None:
    ran = fencekit("show", "invoices", "--url", place.url, "--json")
    assert (ran.code, ran.data["owner"], ran.data["held"]) == (0, "worker-1", True)
    assert ran.data["token"] == ran.data["highest_token"] > 1_700_000_000_000_000
    assert ran.data["queued"] == 0
    seen = fencekit("show", "invoices", "--url", place.url)
    assert "worker-1" in seen.out
    assert re.search(r"^lease left +\d+\.\d s *$", seen.out, re.MULTILINE)


@pytest.mark.parametrize("command", ["show", "idem show", "idem reset", "fifo show"])
def test_of_no_such_name_nothing_is_known(fencekit: Fencekit, server: Server, command: str) -> None:
    ran = fencekit(*command.split(), "nobody", "--url", server.url)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "fencekit: nothing is known of 'nobody'\n"
    assert fencekit(*command.split(), "nobody", "--url", server.url, "--json").data is None


@pytest.mark.parametrize("command", ["show", "watch", "release --force", "idem show", "fifo show"])
def test_what_cannot_be_a_name_is_refused(fencekit: Fencekit, server: Server, command: str) -> None:
    ran = fencekit(*command.split(), "a b", "--url", server.url)
    assert (ran.code, ran.out) == (2, "")
    assert "'a b' has whitespace" in ran.err


# -- release ---------------------------------------------------------------------------------------


def test_release_takes_the_lock_away_and_shuts_its_holder_out(
    fencekit: Fencekit, server: Server, redis_client: Any
) -> None:
    lock, gate = DistributedLock(redis_client), FenceGate(redis_client)
    handle = lock.acquire("job", ttl=LEASE, owner_id="worker-1")
    ran = fencekit("release", "job", "--force", "--yes", "--url", server.url, "--json")
    assert ran.code == 0
    assert ran.data["released"] is True
    assert (ran.data["holder"], ran.data["token"]) == ("worker-1", int(handle.token))
    assert ran.data["fence"] > int(handle.token)
    assert "is held by worker-1" in ran.err
    with pytest.raises(FencedOutError):
        gate.set_if_fresh(handle.token, "status", "late")
    with pytest.raises(LockNotOwned):
        lock.release(handle)
    again = fencekit("release", "job", "--force", "--yes", "--url", server.url)
    assert (again.code, again.out) == (1, "it is free already\n")


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_release_asks_first(
    fencekit: Fencekit, redis_client: Any, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    DistributedLock(redis_client).acquire("job", ttl=LEASE, owner_id="worker-1")
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    ran = fencekit("release", "job", "--force", "--json", "--url", url_of(redis_client))
    assert ran.code == code, ran.err
    assert "Force it open? [y/N]" in ran.err
    held = DistributedLock(redis_client).inspect("job")
    assert held is not None
    assert (held.owner_id is None) is (code == 0)
    assert (json.loads(ran.out)["released"] is True) if code == 0 else ran.out == ""


def test_release_leaves_a_later_holder_alone(
    fencekit: Fencekit, server: Server, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = DistributedLock(redis_client)
    handle = lock.acquire("job", ttl=LEASE)

    def while_asked() -> str:
        lock.release(handle)
        lock.acquire("job", ttl=LEASE, owner_id="worker-2")
        return "yes\n"

    monkeypatch.setattr(sys, "stdin", Mock(readline=while_asked))
    ran = fencekit("release", "job", "--force", "--url", server.url)
    assert (ran.code, ran.out) == (1, "it has changed hands; nothing was done\n")
    held = lock.inspect("job")
    assert held is not None
    assert held.owner_id == "worker-2"


def test_release_without_force_says_why_not(fencekit: Fencekit, server: Server) -> None:
    ran = fencekit("release", "job", "--url", server.url)
    assert ran.code == 2
    assert "--force takes it away" in ran.err


def test_release_of_what_is_no_lock_of_ours_does_nothing(
    fencekit: Fencekit, server: Server, redis_client: Any
) -> None:
    redis_client.set("fencekit:{job}:lock", "somebody's")
    ran = fencekit("release", "job", "--force", "--yes", "--url", server.url)
    assert ran.code == 1
    assert "holds no lock of fencekit's" in ran.err
    assert redis_client.get("fencekit:{job}:lock") == b"somebody's"


# -- idem and fifo ---------------------------------------------------------------------------------


def test_idem_show_never_tells_the_result(fencekit: Fencekit, place: Server | Cluster) -> None:
    for options in ((), ("--json",)):
        ran = fencekit("idem", "show", "charge:1", "--url", place.url, *options)
        assert ran.code == 0
        assert "4711" not in ran.out
        assert "done" in ran.out
    facts = fencekit("idem", "show", "charge:2", "--url", place.url, "--json").data
    assert (facts["state"], facts["attempts"], facts["task_id"]) == ("running", 1, "t-2")


@pytest.mark.parametrize("key", ["charge:1", "charge:2"])
def test_idem_reset_has_the_job_run_again(
    fencekit: Fencekit, place: Server | Cluster, key: str
) -> None:
    ran = fencekit("idem", "reset", key, "--yes", "--url", place.url, "--json")
    assert (ran.code, ran.data["reset"]) == (0, True)
    assert "shut out" in ran.err or "does it again" in ran.err
    topology = "cluster" if isinstance(place, Cluster) else "single"
    with clients.opened(place.url, topology=topology) as client:
        assert IdempotencyGuard(client).begin(key, ttl=HOUR, renew=False).started
        SyncDriver.of(client).close()


def test_idem_reset_asks_first(
    fencekit: Fencekit, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = IdempotencyGuard(redis_client)
    guard.run("charge", lambda: 1, ttl=HOUR)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    ran = fencekit("idem", "reset", "charge", "--url", url_of(redis_client))
    assert (ran.code, ran.out) == (1, "")
    assert "its next delivery does it again" in ran.err
    assert guard.get_result("charge") == 1


def test_fifo_show_tells_holder_and_queue(
    fencekit: Fencekit, server: Server, redis_client: Any
) -> None:
    fifo = pytest.importorskip("fencekit.fifo")
    lock = fifo.SyncFifoLock(redis_client, "line")
    with lock.hold() as lease:
        redis_client.xadd(names("fencekit", "line").queue, {"w": "me:1", "c": "x"})
        ran = fencekit("fifo", "show", "line", "--url", server.url, "--json")
    assert (ran.data["token"], ran.data["waiting"]) == (int(lease.fence), 1)
    assert ran.code == 0


def test_fifo_show_without_fencekit_fifo_says_what_is_missing(
    fencekit: Fencekit, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fencekit.fifo", None)
    ran = fencekit("fifo", "show", "line", "--url", server.url)
    assert ran.code == 2
    assert "pip install fencekit-fifo" in ran.err


def test_the_smallest_acl_is_enough_for_one_name(fencekit: Fencekit, servers: ServerPool) -> None:
    from conformance.columns import documented_acl  # noqa: PLC0415 - as the page says today

    server = servers.clean(default_kind(), acl=documented_acl("single"))
    with clients.opened(server.url) as client:
        DistributedLock(client).acquire("job", ttl=LEASE)
        IdempotencyGuard(client).run("charge", lambda: 1, ttl=HOUR)
        SyncDriver.of(client).close()
    shown = fencekit("show", "job", "--url", server.url, "--json")
    assert (shown.code, shown.data["held"], shown.data["queued"]) == (0, True, None)
    for command_line in (
        *("watch job -n 1", "idem show charge", "idem reset charge -y", "release job --force -y"),
    ):
        ran = fencekit(*command_line.split(), "--url", server.url)
        assert ran.code == 0, ran.err
    ran = fencekit("ls", "--url", server.url)
    assert ran.code == 3
    assert "the server's ACL forbids it" in ran.err


# -- watch -----------------------------------------------------------------------------------------


@contextmanager
def watching(url: str) -> Iterator[Callable[[], Any]]:
    """A `watch --json` in a process of its own; the call returns the next line it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fencekit.cli", "watch", "job", "--json", "-i", "0.05"],
        env=os.environ | {"FENCEKIT_REDIS_URL": url},
        stdout=subprocess.PIPE,
        text=True,
    )
    stdout = process.stdout
    assert stdout is not None
    try:
        yield lambda: json.loads(stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait()
        stdout.close()
    assert code == 0  # that is how a watch ends


def test_watch_prints_a_line_for_each_change(server: Server, redis_client: Any) -> None:
    lock = DistributedLock(redis_client)
    with watching(server.url) as line:
        assert line() == {"change": None, "lock": None}
        handle = lock.acquire("job", ttl=LEASE, owner_id="worker-1")
        held = line()
        assert held["change"] == f"held by worker-1 with token {int(handle.token)}"
        assert held["lock"]["owner"] == "worker-1"
        lock.release(handle)
        assert line()["change"] == "free"


@pytest.mark.slow
def test_watch_goes_on_when_the_server_comes_back(fresh_server: Server) -> None:
    with watching(fresh_server.url) as line:
        assert line() == {"change": None, "lock": None}
        fresh_server.kill()
        assert "cannot be asked" in line()["change"]
        fresh_server.launch()
        assert line()["change"] == "answers again"


def test_watch_ends_after_so_many_looks(fencekit: Fencekit, server: Server) -> None:
    ran = fencekit("watch", "job", "-n", "2", "-i", "0.05", "--url", server.url)
    assert (ran.code, ran.out) == (0, "free\n")


# -- all -------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_ends_with_3(fencekit: Fencekit) -> None:
    ran = fencekit("show", "job", "--url", "redis://127.0.0.1:1/0")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("fencekit: the server cannot be asked: ")


def test_without_a_url_nothing_is_asked(fencekit: Fencekit) -> None:
    ran = fencekit("show", "job")
    assert (ran.code, ran.err) == (
        2,
        "fencekit: say where Redis is: --url, or FENCEKIT_REDIS_URL\n",
    )


def test_a_prefix_of_ones_own(fencekit: Fencekit, server: Server, redis_client: Any) -> None:
    DistributedLock(redis_client, prefix="mine").acquire("job", ttl=LEASE)
    assert fencekit("show", "job", "--url", server.url, "--prefix", "mine").code == 0
    assert fencekit("show", "job", "--url", server.url).code == 1
    assert fencekit("show", "job", "--url", server.url, "--prefix", "a{b").code == 2


def test_the_version_is_told(fencekit: Fencekit) -> None:
    assert fencekit("--version").out == "fencekit 0.1.0\n"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    story = f"import sys; sys.modules[{missing!r}] = None; import fencekit.cli; fencekit.cli.main()"
    ran = subprocess.run([sys.executable, "-c", story], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert 'pip install "fencekit-core[cli]"' in ran.stderr
    assert "Traceback" not in ran.stderr


def test_importing_the_library_loads_neither_the_command_nor_its_libraries() -> None:
    story = "import sys, fencekit; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", story], capture_output=True, text=True, check=True)
    assert not {"typer", "rich", "fencekit.cli", "opentelemetry"} & set(ran.stdout.split())
