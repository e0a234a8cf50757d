"""`fencekit doctor` names what voids the guarantees, what comes of it, and what to do about it.

Each finding is made on a real server that has what it is about, and shown not to be made on one
that has it not: without its check a test finds nothing, with one that always speaks the healthy
server is told off.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencekit.cli import checks, doctor, facts, leftovers
from fencekit.cli.checks import Finding, judge
from fencekit.cli.facts import ClockReading, NodeFacts
from fencekit.drivers.sync import SyncDriver
from harness import clients, kinds
from harness.conditions import cannot_save, out_of_memory, read_only
from harness.fixtures import ServerPool
from harness.servers import ACL_PASSWORD, ACL_USER, Server, start
from harness.topologies import Cluster, Replication, Sentinels, cluster
from harness.waiting import eventually

from .conftest import Fencekit

DOCS = Path(__file__).parents[4] / "docs" / "reference" / "acl.md"


@pytest.fixture(scope="module")
def healthy() -> Iterator[Server]:
    with start(args=("--appendonly", "yes", "--maxmemory", "200mb")) as server:
        yield server


def assert_told(finding: dict[str, Any], level: str, says: str, means: str, cure: str) -> None:
    assert finding["level"] == level
    for part, word in (("says", says), ("means", means), ("cure", cure)):
        assert word in finding[part], finding


def test_nothing_is_wrong_with_a_healthy_server(fencekit: Fencekit, healthy: Server) -> None:
    ran = fencekit("doctor", healthy.url, "--json")
    assert {finding["level"] for finding in ran.data["findings"]} == {"ok"}, ran.out
    checked = {finding["check"] for finding in ran.data["findings"]}
    assert {"version", "replication", "eviction", "memory", "persistence", "clock"} < checked
    assert (ran.code, ran.data["errors"], ran.data["warnings"]) == (0, 0, 0)
    seen = fencekit("doctor", "--url", healthy.url)
    assert (seen.code, seen.err) == (0, "")
    assert "nothing voids the guarantees" in seen.out


def test_the_self_test_leaves_nothing_that_stays(fencekit: Fencekit, healthy: Server) -> None:
    healthy.clean()
    fencekit("doctor", healthy.url)
    keys = healthy.call("KEYS", "*")
    assert keys
    assert all(0 < healthy.call("PTTL", key) <= 120_000 for key in keys), keys
    healthy.clean()
    assert "self-test" not in fencekit("doctor", healthy.url, "--look-only").out
    assert healthy.call("KEYS", "*") == []


@pytest.mark.parametrize(("limit", "level"), [("100mb", "error"), ("0", "warning")])
def test_eviction(fencekit: Fencekit, fresh_server: Server, limit: str, level: str) -> None:
    fresh_server.call("CONFIG", "SET", "maxmemory-policy", "volatile-lru", "maxmemory", limit)
    ran = fencekit("doctor", fresh_server.url, "--json")
    found = ran.finding("eviction")
    assert_told(found, level, "volatile-lru", "a second worker enters", "noeviction")
    assert ran.code == (1 if level == "error" else 0)
    assert fencekit("doctor", fresh_server.url, "--strict").code == 1


def test_no_persistence(fencekit: Fencekit, server: Server) -> None:
    found = fencekit("doctor", server.url, "--json").finding("persistence")
    assert_told(found, "warning", "no append-only file, no snapshots", "forgets", "appendonly yes")


def test_snapshots_alone(fencekit: Fencekit, fresh_server: Server) -> None:
    fresh_server.call("CONFIG", "SET", "save", "3600 1")
    found = fencekit("doctor", fresh_server.url, "--json").finding("persistence")
    assert_told(found, "warning", "snapshots alone", "since the last one", "appendonly yes")


def test_a_server_that_cannot_save(fencekit: Fencekit, fresh_server: Server) -> None:
    with cannot_save(fresh_server):
        ran = fencekit("doctor", fresh_server.url, "--json")
    assert_told(ran.finding("saving"), "error", "the last snapshot", "MISCONF", "disk")
    assert_told(ran.finding("self-test"), "error", "MISCONF", "your workers", "mend")


@pytest.mark.parametrize(
    "told",
    [
        (60, "60 s ahead of this host's", "refuses every new holder"),
        (-60, "60 s behind this host's", "a stale writer passes"),
    ],
    ids=["ahead", "behind"],
)
def test_a_clock_off_by_a_minute(
    fencekit: Fencekit,
    healthy: Server,
    monkeypatch: pytest.MonkeyPatch,
    told: tuple[int, str, str],
) -> None:
    ahead, says, means = told

    def examine(session: Any, *, writes: bool) -> list[Finding]:
        return doctor_examine(session, writes=writes, now=lambda: time.time() - ahead)

    doctor_examine = doctor.examine
    monkeypatch.setattr(doctor, "examine", examine)
    found = fencekit("doctor", healthy.url, "--json").finding("clock")
    assert_told(found, "warning", says, means, "chrony")


def test_a_slow_network_is_no_wrong_clock() -> None:
    clock = ClockReading(ahead=3.0, round_trip=2.0)
    (found,) = checks.clock(NodeFacts("n", clock=clock))
    assert found.level == "ok"


ALL_KEYS = "~fencekit:* &fencekit:* +@all"
FIFO_RULES = "+exists +xadd +xdel +xlen +xrange +zrem"


def limited(servers: ServerPool, rules: str) -> Server:
    server = servers.clean(kinds.default_kind(), acl=ALL_KEYS)
    server.call("ACL", "SETUSER", ACL_USER, "reset", "resetchannels", "on", f">{ACL_PASSWORD}")
    server.call("ACL", "SETUSER", ACL_USER, *rules.split())
    return server


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (
            f"{ALL_KEYS} -eval -evalsha",
            (
                "error",
                "scripts are forbidden",
                "nothing of fencekit works",
                f"ACL SETUSER {ACL_USER} +eval +evalsha",
            ),
        ),
        (
            f"{ALL_KEYS} -zadd -pexpire",
            (
                "error",
                "PEXPIRE, ZADD forbidden",
                "NOPERM",
                f"{ACL_USER} +pexpire +zadd",
            ),
        ),
        (
            "~other:* &fencekit:* +@all",
            ("error", "GET, SET, DEL", "NOPERM", "the key pattern (~PREFIX:*) that is missing"),
        ),
        (
            "~fencekit:* +@all",
            (
                "warning",
                "PUBLISH, SUBSCRIBE",
                "twice a second",
                "the channel pattern (&PREFIX:*)",
            ),
        ),
    ],
    ids=["scripts", "commands", "keys", "channels"],
)
def test_an_acl_that_forbids(
    fencekit: Fencekit,
    servers: ServerPool,
    rules: str,
    told: tuple[str, str, str, str],
) -> None:
    server = limited(servers, rules)
    ran = fencekit("doctor", server.url, "--json")
    assert_told(ran.finding("permissions"), *told)
    assert ran.finding("self-test")["level"] == told[0]
    assert ACL_PASSWORD not in ran.out + ran.err


def test_what_may_not_be_asked_is_not_known_and_no_error(
    fencekit: Fencekit, servers: ServerPool
) -> None:
    from conformance.columns import documented_acl  # noqa: PLC0415 - as the page says today

    rules = f"{documented_acl('single')} {FIFO_RULES}"
    ran = fencekit("doctor", limited(servers, rules).url, "--json")
    levels = {one["check"]: one["level"] for one in ran.data["findings"]}
    assert {check for check, level in levels.items() if level == "unknown"} == {
        *("version", "replication", "eviction", "persistence")
    }
    assert levels["permissions"] == levels["self-test"] == levels["clock"] == "ok"
    assert ran.code == 0


def test_what_is_checked_is_what_the_page_on_acls_names() -> None:
    single, on_a_cluster = DOCS.read_text().split("```text\n")[1:3]
    assert set(facts.NEEDED) == {word[1:] for word in single.split() if word.startswith("+")}
    extra = on_a_cluster.partition("```")[0]
    assert set(facts.NEEDED_ON_A_CLUSTER) == {word[1:] for word in extra.split()}


def test_fifo_locks_need_what_the_page_names_and_no_more(
    fencekit: Fencekit, servers: ServerPool
) -> None:
    from conformance.columns import documented_acl  # noqa: PLC0415 - as the page says today

    fifo = pytest.importorskip("fencekit.fifo")
    assert f"| `{FIFO_RULES}` | FIFO locks |" in DOCS.read_text()
    assert set(facts.NEEDED_FOR_FIFO) == {rule[1:] for rule in FIFO_RULES.split()}
    scripts = Path(str(fifo.__file__)).parent.rglob("*.lua")
    called = re.findall(r"redis\.p?call\('(\w+)'", "".join(path.read_text() for path in scripts))
    assert {name.lower() for name in called} - set(facts.NEEDED) == set(facts.NEEDED_FOR_FIFO)

    server = limited(servers, documented_acl("single"))
    found = fencekit("doctor", server.url, "--json").finding("permissions")
    assert_told(found, "warning", "EXISTS, XADD", "all others work", "+exists +xadd")
    server.call("ACL", "SETUSER", ACL_USER, *FIFO_RULES.split())
    assert fencekit("doctor", server.url, "--json").finding("permissions")["level"] == "ok"
    with clients.opened(server.url) as client:
        with fifo.SyncFifoLock(client, "line").hold() as lease:
            assert lease.fence
        SyncDriver.of(client).close()


@pytest.mark.skipif(kinds.REDIS_6_2.find() is None, reason=kinds.REDIS_6_2.missing)
def test_on_a_server_that_cannot_be_asked_for_permissions_they_are_tried(
    fencekit: Fencekit, servers: ServerPool
) -> None:
    server = servers.clean(kinds.REDIS_6_2, acl=f"{ALL_KEYS} -zadd")
    ran = fencekit("doctor", server.url, "--json")
    assert "permissions" not in {one["check"] for one in ran.data["findings"]}
    assert ran.finding("version")["says"].startswith("Redis 6.2")


def test_a_read_only_replica(fencekit: Fencekit, fresh_server: Server) -> None:
    with read_only(fresh_server):
        ran = fencekit("doctor", fresh_server.url, "--json")
    found = ran.finding("replication")
    assert_told(found, "error", "a read-only replica of 127.0.0.1:1", "READONLY", "the primary")
    assert "READONLY" in ran.finding("self-test")["says"]
    assert ran.code == 1


def test_a_primary_with_replicas(fencekit: Fencekit, replicated_server: Replication) -> None:
    primary = replicated_server.primary
    found = fencekit("doctor", primary.url, "--json").finding("replication")
    assert_told(found, "warning", "1 replica;", "cut off", "min_replicas=1")
    primary.call("CONFIG", "SET", "min-replicas-to-write", "1")
    found = fencekit("doctor", primary.url, "--json").finding("replication")
    assert found["level"] == "ok"
    primary.call("CONFIG", "SET", "min-replicas-to-write", "2")
    ran = fencekit("doctor", primary.url, "--json")
    assert_told(ran.finding("replication"), "error", "1 of the 2", "NOREPLICAS", "bring")
    assert "NOREPLICAS" in ran.finding("self-test")["says"]


def test_a_server_that_is_full(fencekit: Fencekit, fresh_server: Server) -> None:
    with out_of_memory(fresh_server):
        ran = fencekit("doctor", fresh_server.url, "--json")
    assert_told(ran.finding("memory"), "error", "used", "OOM", "maxmemory")
    assert_told(ran.finding("self-test"), "error", "OOM", "can still be released", "mend")


def test_a_cluster_is_looked_at_node_by_node(fencekit: Fencekit, cluster_server: Cluster) -> None:
    node = cluster_server.nodes[1]
    node.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        ran = fencekit("doctor", cluster_server.url, "--json")
        seen = fencekit("doctor", cluster_server.url)
    finally:
        node.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert ran.data["topology"] == "cluster"
    assert ran.finding("cluster")["says"] == "3 primaries, all slots served"
    assert sorted(ran.finding("cluster")["nodes"]) == sorted(
        f"127.0.0.1:{node.port}" for node in cluster_server.nodes
    )
    bad, good = sorted(
        (one for one in ran.data["findings"] if one["check"] == "eviction"),
        key=lambda one: len(one["nodes"]),
    )
    assert (bad["level"], bad["nodes"]) == ("warning", [f"127.0.0.1:{node.port}"])
    assert (good["level"], len(good["nodes"])) == ("ok", 2)
    assert "[all nodes]" in seen.out


@pytest.mark.slow
def test_a_cluster_with_a_hole_and_without_a_node(fencekit: Fencekit) -> None:
    with cluster() as group:
        first, second, _ = group.nodes
        first.call("CLUSTER", "DELSLOTS", *range(100))
        eventually(lambda: b"cluster_state:fail" in first.call("CLUSTER", "INFO"))
        ran = fencekit("doctor", group.url, "--json", "--look-only")
        bad = next(f for f in ran.data["findings"] if f["level"] == "error")
        assert_told(bad, "error", "16284 of 16384", "CLUSTERDOWN", "missing nodes")
        assert (ran.code, bad["nodes"]) == (1, [f"127.0.0.1:{first.port}"])
        first.kill()
        ran = fencekit("doctor", second.url, "--json", "--look-only")
        bad = next(f for f in ran.data["findings"] if f["nodes"] == [f"127.0.0.1:{first.port}"])
        assert_told(bad, "error", "cannot be asked", "cannot be locked", "bring it back")
        assert ran.code == 1
        assert fencekit("ls", "--url", second.url).code == 3


@pytest.mark.slow
def test_a_primary_behind_sentinels(fencekit: Fencekit, sentinel_server: Sentinels) -> None:
    ran = fencekit("doctor", sentinel_server.url, "--json")
    assert ran.finding("self-test")["level"] == "ok"
    assert ran.data["target"] == sentinel_server.url
    found = fencekit("doctor", sentinel_server.sentinels[0].url, "--json", "--look-only")
    assert_told(found.finding("replication"), "error", "a Sentinel", "no lock", "redis+sentinel://")


# -- what no server of ours can show ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "level", "says"),
    [
        ({"redis_version": "6.0.16"}, "error", "Redis 6.0.16"),
        ({"redis_version": "6.2.0"}, "ok", "Redis 6.2.0"),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, "ok", "Valkey 7.2.5"),
        ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.30"}, "warning", "Dragonfly"),
    ],
)
def test_versions(info: dict[str, Any], level: str, says: str) -> None:
    (found,) = checks.version(NodeFacts("n", info=info))
    assert found.level == level
    assert says in found.says


def test_a_cluster_with_a_hole() -> None:
    state = {"cluster_state": "fail", "cluster_slots_ok": "10923", "cluster_size": "3"}
    (found,) = checks.cluster(NodeFacts("n", cluster=state))
    assert found.level == "error"
    assert "10923 of 16384" in found.says


def test_nearly_full() -> None:
    (found,) = checks.memory(NodeFacts("n", info={"maxmemory": 1000, "used_memory": 950}))
    assert found.level == "warning"


def test_every_complaint_names_its_consequence_and_its_cure() -> None:
    worst = NodeFacts(
        "n",
        info={"redis_version": "5.0.0", "role": "master", "connected_slaves": 2}
        | {"maxmemory_policy": "allkeys-lru", "maxmemory": 10, "used_memory": 10}
        | {"aof_enabled": 0},
        config={"save": ""},
        clock=ClockReading(ahead=-90, round_trip=0.001),
        forbidden=("zadd", "publish"),
        cluster={"cluster_state": "fail"},
    )
    found = list(judge(worst))
    assert [one.check for one in found if one.level == "ok"] == []
    assert all(one.means and one.cure for one in found)
    assert "empties its replicas" in next(o.means for o in found if o.check == "persistence")


def test_the_older_distribution_is_noticed(
    monkeypatch: pytest.MonkeyPatch, fencekit: Fencekit, server: Server
) -> None:
    def distribution(name: str) -> Any:
        versions = {"fencekit": "0.9.1", "fencekit-core": "0.1.0"}
        if name not in versions:
            raise PackageNotFoundError(name)
        return SimpleNamespace(
            version=versions[name], files=(), metadata={"Name": name}, locate_file=str
        )

    monkeypatch.setattr(leftovers, "distribution", distribution)
    ran = fencekit("doctor", server.url, "--json", "--look-only")
    assert_told(
        ran.finding("installation"), "error", "fencekit 0.9.1", "one folder", "pip uninstall"
    )
    assert ran.code == 1


def test_files_that_an_older_one_left_are_noticed(tmp_path: Path) -> None:
    package = tmp_path / "fencekit"
    (package / "cli").mkdir(parents=True)
    for name in ("__init__.py", "cli/app.py", "old_lock.py"):
        (package / name).touch()
    ours: Any = SimpleNamespace(
        files=("fencekit/__init__.py", "fencekit/cli/app.py"),
        metadata={"Name": "fencekit-core"},
        locate_file=lambda name: tmp_path / name,
    )
    assert leftovers._strays([ours]) == ["fencekit/old_lock.py"]
    editable: Any = SimpleNamespace(**vars(ours) | {"files": ("_fencekit_core.pth",)})
    assert leftovers._strays([editable]) == []
