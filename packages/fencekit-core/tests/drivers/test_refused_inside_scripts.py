"""What happens when a server refuses a command in the middle of a script: scripts do not roll back.

How it bites: the scripts of release and withdraw with their first write, which makes the rest
allowed at maxmemory, behind a write that is not; acquire with the lock before its record; release
whose wake is called, not tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencekit import LockNotAcquired, LockNotOwned, OutcomeUnknown, StoreRefused
from fencekit.drivers import aio_wake, wake
from fencekit.keys import Names, names
from fencekit.protocol import lock as protocol
from harness import clients
from harness.claims import without
from harness.colours import Locks
from harness.conditions import cannot_save, out_of_memory, read_only
from harness.faults import DropReply, containing
from harness.fixtures import ServerPool
from harness.proxy import Proxy
from harness.servers import ACL_USER, Server
from harness.waiting import eventually

LONG = timedelta(seconds=30)
JOB: Names = names("fencekit", "job")
ALL = "~fencekit:* &fencekit:* +@all"


@pytest.fixture
def limited(servers: ServerPool) -> Server:
    """A server whose clients may do everything, until the test forbids something."""
    server = servers.clean(acl=ALL)
    allow(server)
    return server


def allow(server: Server) -> None:
    server.call("ACL", "SETUSER", ACL_USER, *ALL.split())


def forbid(server: Server, *rules: str) -> None:
    server.call("ACL", "SETUSER", ACL_USER, *rules)


def is_free(server: Server) -> bool:
    return bool(server.call("EXISTS", JOB.lock) == 0)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(StoreRefused) as caught:
        call()
    return caught.value.code


# Out of memory


@pytest.mark.parametrize("colour", ["sync"])
def test_out_of_memory(any_server: Server, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(any_server.url)
    handle = locks.acquire("job", ttl=timedelta(seconds=5), renew=True)
    lost = locks.acquire("lost", ttl=LONG)
    any_server.call("DEL", names("fencekit", "lost").fence)
    with out_of_memory(any_server):
        assert refused(lambda: locks.acquire("other", ttl=LONG)) == "OOM"
        assert any_server.call("KEYS", "fencekit:{other}:*") == []
        locks.extend(handle, ttl=LONG)
        assert any_server.call("PTTL", JOB.lock) > 25_000
        with pytest.raises(LockNotAcquired):
            locks.acquire("job", ttl=LONG)
        locks.release(handle)
        assert is_free(any_server)
        locks.release(handle)
        locks.release(lost)
        assert refused(lambda: locks.acquire("job", ttl=LONG)) == "OOM"
    locks.release(locks.acquire("job", ttl=LONG))


def test_out_of_memory_while_a_grant_is_withdrawn(any_server: Server) -> None:
    """Its reply is lost with its memory, so the next copy finds the server full."""
    with Proxy.before(any_server) as proxy, clients.opened(proxy.url) as client:
        _withdraw(client, "other", "a" * 32)  # the script is known
        client.set(JOB.lock, f"me:{'b' * 32}:123", px=30_000)
        with out_of_memory(any_server):
            assert _withdraw(client, "job", "b" * 32) == [1]
            assert _withdraw(client, "job", "c" * 32) == [0]
        assert is_free(any_server)
        assert any_server.call("ZCARD", JOB.gone) == 2


def _withdraw(client: Any, name: str, attempt: str, script: Any = protocol.WITHDRAW) -> Any:
    key = names("fencekit", name)
    arguments = ("me", attempt, 60_000, key.wake)
    return client.eval(script.source, 3, key.lock, key.fence, key.gone, *arguments)


@pytest.mark.parametrize("colour", ["sync"])
def test_out_of_memory_bites(
    server: Server, make_locks: Callable[..., Locks], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = without(
        protocol.RELEASE, "redis.call('DEL', lock)", "redis.call('SET', lock, '', 'PX', 1)"
    )
    monkeypatch.setattr(protocol, "RELEASE", first)
    locks = make_locks(server.url)
    handle = locks.acquire("job", ttl=LONG)
    with out_of_memory(server):
        assert refused(lambda: locks.release(handle)) == "OOM"
        assert not is_free(server)


# READONLY, MISCONF


@pytest.mark.parametrize(("condition", "code"), [(read_only, "READONLY"), (cannot_save, "MISCONF")])
def test_refuses_writes(
    server: Server, make_locks: Callable[..., Locks], condition: Any, code: str
) -> None:
    locks = make_locks(server.url)
    handle = locks.acquire("job", ttl=LONG)
    with condition(server):
        began = time.monotonic()
        assert refused(lambda: locks.acquire("other", ttl=LONG)) == code
        assert refused(lambda: locks.acquire("other", ttl=LONG, wait=LONG)) == code
        assert refused(lambda: locks.release(handle)) == code
        assert refused(lambda: locks.extend(handle, ttl=LONG)) == code
        assert refused(lambda: locks.set_if_fresh(handle.token, "status", "running")) == code
        assert time.monotonic() - began < 2
        assert locks.is_held_by(handle)
        assert server.call("KEYS", "fencekit:{other}:*") == []
    locks.release(handle)
    assert is_free(server)


def test_renewals_outlive_a_server_that_refuses_writes_for_a_while(
    server: Server, make_locks: Callable[..., Locks]
) -> None:
    locks = make_locks(server.url)
    handle = locks.acquire("job", ttl=timedelta(seconds=1), renew=True)
    with read_only(server):
        time.sleep(0.6)
    time.sleep(0.7)
    assert locks.is_held_by(handle)
    assert not handle.lost.is_set()
    locks.release(handle)


# A command that the ACL forbids


@pytest.mark.parametrize("command", ["hset", "pexpire", "set", "time", "hmget", "zscore", "get"])
def test_acquire_with_a_forbidden_command(
    limited: Server, make_locks: Callable[..., Locks], command: str
) -> None:
    forbid(limited, f"-{command}")
    locks = make_locks(limited.url)
    assert refused(lambda: locks.acquire("job", ttl=LONG)) == "NOPERM"
    assert is_free(limited)
    allow(limited)
    locks.release(locks.acquire("job", ttl=LONG))


@pytest.mark.parametrize("colour", ["sync"])
def test_acquire_with_a_forbidden_command_bites(
    limited: Server, make_locks: Callable[..., Locks], monkeypatch: pytest.MonkeyPatch
) -> None:
    early = "redis.call('SET', lock, owner .. ':' .. attempt .. ':1', 'PX', ttl_ms)\n"
    first = without(protocol.ACQUIRE, "redis.call('HSET'", early + "redis.call('HSET'")
    monkeypatch.setattr(protocol, "ACQUIRE", first)
    forbid(limited, "-hset")
    locks = make_locks(limited.url)
    assert refused(lambda: locks.acquire("job", ttl=LONG)) == "NOPERM"
    assert not is_free(limited)


@pytest.mark.parametrize("command", ["hset", "pexpire", "hmget"])
def test_release_with_a_forbidden_command(
    limited: Server, make_locks: Callable[..., Locks], command: str
) -> None:
    """It was ours and is free: that is the verdict, and the waiter is woken all the same."""
    locks = make_locks(limited.url)
    handle = locks.acquire("job", ttl=LONG)
    waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
    eventually(lambda: limited.call("PUBSUB", "NUMSUB", JOB.wake)[1] == 1)
    time.sleep(0.1)
    forbid(limited, f"-{command}")
    locks.release(handle)
    locks.release(handle)
    # Woken, it met the same rule, long before the lease would have been over.
    assert refused(lambda: waiting.result(2)) == "NOPERM"
    assert is_free(limited)
    allow(limited)
    locks.release(locks.acquire("job", ttl=LONG))


@pytest.mark.parametrize("colour", ["sync"])
@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("hset", ("redis.pcall('HSET'", "redis.call('HSET'")),
        ("hmget", ("redis.pcall('HMGET'", "redis.call('HMGET'")),
        ("hmget", ("pcall(restore_fence, fence,", "restore_fence(fence,")),
    ],
    ids=["hset", "hmget", "restore"],
)
def test_release_with_a_forbidden_command_bites(
    limited: Server,
    make_locks: Callable[..., Locks],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    change: tuple[str, str],
) -> None:
    called = without(protocol.RELEASE, *change)
    monkeypatch.setattr(protocol, "RELEASE", called)
    locks = make_locks(limited.url)
    handle = locks.acquire("job", ttl=LONG)
    forbid(limited, f"-{command}")
    assert refused(lambda: locks.release(handle)) == "NOPERM"
    allow(limited)
    with pytest.raises(LockNotOwned):  # though it was ours, and nobody else's since
        locks.release(handle)


@pytest.mark.parametrize("rules", [("-publish",), ("resetchannels",), ("resetchannels", "&other")])
def test_a_wake_that_is_forbidden_fails_nothing(
    limited: Server, make_locks: Callable[..., Locks], rules: tuple[str, ...]
) -> None:
    forbid(limited, *rules)
    locks = make_locks(limited.url)
    handle = locks.acquire("job", ttl=LONG)
    waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
    time.sleep(0.3)
    locks.release(handle)
    assert is_free(limited) or waiting.done()
    if "-publish" in rules:
        # Listening, it is not woken, and hears of it from whoever is cut off, or at the lease.
        limited.call("PUBLISH", JOB.wake, "free")
    locks.release(waiting.result(2))
    locks.acquire("job", ttl=LONG)
    assert locks.call("force_release", "job")


@pytest.mark.parametrize("colour", ["sync"])
def test_a_wake_that_is_forbidden_bites(
    limited: Server, make_locks: Callable[..., Locks], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = without(protocol.RELEASE, "redis.pcall('PUBLISH'", "redis.call('PUBLISH'")
    monkeypatch.setattr(protocol, "RELEASE", called)
    forbid(limited, "resetchannels")
    locks = make_locks(limited.url)
    handle = locks.acquire("job", ttl=LONG)
    assert refused(lambda: locks.release(handle)) == "NOPERM"


def test_waiters_without_a_channel_go_on_looking_without_a_word_but_one(
    limited: Server,
    make_locks: Callable[..., Locks],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For longer than the hub takes to ask whether its server is there, which answers +PONG."""
    for module in (wake, aio_wake):
        monkeypatch.setattr(module, "PING_EVERY", 0.4)
    forbid(limited, "resetchannels")
    locks = make_locks(limited.url)
    handle = locks.acquire("job", ttl=LONG)
    waiting = locks.start("acquire", "job", ttl=LONG, wait=LONG)
    time.sleep(1.5)
    locks.release(handle)
    locks.release(waiting.result(2))
    said = [record for record in caplog.records if record.name.startswith(("fencekit", "asyncio"))]
    assert [record.levelname for record in said] == ["WARNING"]
    assert "refuses the wake channel" in said[0].getMessage()


def test_withdraw_of_an_acquire_whose_retry_is_refused(
    limited: Server, make_locks: Callable[..., Locks]
) -> None:
    with Proxy.before(limited) as proxy:
        locks = make_locks(proxy.url)
        locks.release(locks.acquire("other", ttl=LONG))
        # The first copy is granted and its reply lost; the second is answered with an error.
        struck = proxy.add(DropReply(containing(protocol.ACQUIRE.sha)))
        acquire = locks.start("acquire", "job", ttl=LONG)
        struck.wait()
        forbid(limited, "-pexpire")
        # The withdraw frees the lock, and is then refused as well: no more is known.
        with pytest.raises(OutcomeUnknown):
            acquire.result(10)
        eventually(lambda: is_free(limited))
        allow(limited)
        locks.close()


# A command that goes beside a script


def test_wait(limited: Server, make_locks: Callable[..., Locks]) -> None:
    locks = make_locks(limited.url, min_replicas=1)
    forbid(limited, "-wait")
    assert refused(lambda: locks.acquire("job", ttl=LONG)) == "NOPERM"
    assert is_free(limited)
