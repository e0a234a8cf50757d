"""The smallest ACL of docs/reference/acl.md: enough (the suite runs under it), and not too much."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from conformance.columns import documented_acl
from conformance.stage import LONG, Rig, Site, got, ms
from fencekit import FenceKitError, StoreRefused
from harness import kinds
from harness.fixtures import ServerPool, skip_unless_installed
from harness.servers import ACL_PASSWORD, ACL_USER, start

_LUA = Path(__file__).parents[2] / "packages" / "fencekit-core" / "src" / "fencekit" / "lua"
_RULES = documented_acl("single").split()
_COMMANDS = [rule for rule in _RULES if rule.startswith("+")]
# Without these the scripts are not refused: wakes are only an optimisation.
_WAKES = {"+publish", "+subscribe", "+unsubscribe", "+ping"}


def test_the_page_names_what_the_scripts_call_and_no_more() -> None:
    source = "".join(path.read_text() for path in _LUA.rglob("*.lua"))
    called = {name.lower() for name in re.findall(r"redis\.p?call\('(\w+)'", source)}
    sent = {"eval", "evalsha", "subscribe", "unsubscribe", "ping"}
    assert {rule[1:] for rule in _COMMANDS} == called | sent


@pytest.mark.parametrize("kind", [kinds.VALKEY_9_1, kinds.REDIS_6_2], ids=str)
@pytest.mark.parametrize("missing", [rule for rule in _COMMANDS if rule not in _WAKES])
def test_no_command_can_be_left_out(
    kind: kinds.ServerKind, missing: str, servers: ServerPool
) -> None:
    skip_unless_installed(kind)
    server = servers.clean(kind, acl=documented_acl("single"))
    rules = [rule for rule in _RULES if rule != missing]
    server.call("ACL", "SETUSER", ACL_USER, "reset", "resetchannels", "on", f">{ACL_PASSWORD}")
    server.call("ACL", "SETUSER", ACL_USER, *rules)
    with pytest.raises(StoreRefused) as refused:
        _everything(server.url)
    assert refused.value.code == "NOPERM"


def test_everything_runs_with_all_of_them(servers: ServerPool) -> None:
    server = servers.clean(kinds.default_kind(), acl=documented_acl("single"))
    server.call("ACL", "SETUSER", ACL_USER, "reset", "resetchannels", "on", f">{ACL_PASSWORD}")
    server.call("ACL", "SETUSER", ACL_USER, *_RULES)
    server.call("ACL", "LOG", "RESET")
    _everything(server.url)
    denied = {dict(zip(entry[::2], entry[1::2], strict=True))[b"object"] for entry in _log(server)}
    # What the page says may be left out, and what redis-py tries by itself.
    assert denied <= {b"info", b"client|setinfo", b"client", b"hello"}


def _log(server: Any) -> list[list[Any]]:
    entries: list[list[Any]] = server.call("ACL", "LOG")
    return entries


def _everything(url: str) -> None:
    """Call everything that has a script of its own, and raise the first refusal."""
    from harness.clients import opened  # noqa: PLC0415

    rig = Rig(Site(url), "sync")
    lock, gate, guard = rig.lock(), rig.gate(), rig.guard(begin_grace=ms(10))
    try:
        handle = lock.acquire("job", ttl=LONG)
        lock.extend(handle, ttl=LONG)
        lock.inspect("job")
        gate.set_if_fresh(handle.token, "fencekit:app:x", "1")
        gate.hset_if_fresh(handle.token, "fencekit:app:y", {"a": 1})
        gate.delete_if_fresh(handle.token, "fencekit:app:x")
        gate.check_and_advance(handle.token)
        gate.current_max("job")
        lock.release(handle)
        lock.acquire("job", ttl=ms(1))
        rig.run(rig.sleep(0.01))
        lock.acquire("job", ttl=LONG)
        lock.force_release("job")
        lock.advance_fence("job", at_least=5)
        _withdrawn(lock)
        claim = guard.begin("key", ttl=LONG)
        claim.renew()
        claim.fail("again")
        claim = guard.begin("key", ttl=LONG)
        claim.release()
        guard.run("key", lambda: 1, ttl=LONG)
        guard.get_result("key")
        guard.status("key")
        guard.clear("key")
    finally:
        with opened(url):
            rig.run(rig.close())


def _withdrawn(lock: Any) -> None:
    """Run the script that ends an acquire of unknown outcome."""
    from fencekit.protocol.lock import withdraw_operation  # noqa: PLC0415

    claimant = lock._claimant("job", LONG, "me")
    lock._driver.execute(withdraw_operation(claimant))


@pytest.mark.parametrize("missing", ["+publish", "+subscribe", "&fencekit:*"])
async def test_without_wakes_waiters_look_for_themselves(
    missing: str, colour: Any, caplog: pytest.LogCaptureFixture
) -> None:
    acl = " ".join(rule for rule in _RULES if rule != missing)
    with start(acl=acl) as server:
        rig = Rig(Site(server.url), colour)
        lock = rig.lock()
        handle = await got(lock.acquire("job", ttl=ms(1500)))

        async def wait() -> Any:
            return await got(lock.acquire("job", ttl=LONG, wait=LONG))

        waiter = rig.start(wait())
        await rig.sleep(0.2)
        await got(handle.release())
        await got((await waiter.result()).release())
        if missing != "+publish":
            assert "refuses the wake channel" in caplog.text
        await rig.close()


def test_a_refusal_names_the_cure() -> None:
    with start(acl="~fencekit:* -@all +ping") as server:
        rig = Rig(Site(server.url), "sync")
        with pytest.raises(FenceKitError, match="smallest ACL"):
            rig.lock().acquire("job", ttl=LONG)
        rig.run(rig.close())
