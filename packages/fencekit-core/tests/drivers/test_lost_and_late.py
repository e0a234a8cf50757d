"""Real locks and gates whose commands lose their reply, arrive twice, or arrive after everything.

A proxy stands between the client and the server. Whatever it does to one command: the operation
reports its first, true outcome, and a copy that it lets through at the end, when the lock has been
given back and taken by somebody else, changes nothing. What the scripts do is tested rule by rule
in lua/; this shows that the drivers count their copies and that the locks act on it. It bites:
see the tests of the plain scripts at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fencekit import FencedOutError, LockNotOwned, OutcomeUnknown, StoreUnavailable
from fencekit.protocol import fence, lock
from harness import broken
from harness.faults import DropCommand, DropReply, Duplicate, HoldBack, containing

if TYPE_CHECKING:
    from fencekit.protocol.script import Script
    from harness.colours import Locks
    from harness.faults import Match
    from harness.proxy import Proxy
    from harness.servers import Server

MINUTE = timedelta(minutes=1)
KEY, FENCE, GONE = "fencekit:{job}:lock", "fencekit:{job}:fence", "fencekit:{job}:gone"


@dataclass
class Scene:
    """One client behind the proxy and one beside it."""

    server: Server
    proxy: Proxy
    ours: Locks
    theirs: Locks

    def state(self) -> dict[str, Any]:
        """Everything that is stored, but for TTLs and the attempts that were withdrawn."""
        call = self.server.call
        return {
            "lock": call("GET", KEY),
            "fence": call("HGETALL", FENCE),
            "k": call("GET", "k"),
            "h": sorted(call("HGETALL", "h")),
        }

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.ours.run(function, *args, **kwargs).result(30)

    def write(self, name: str, token: Any, *args: Any) -> Any:
        return self.run(getattr(self.ours.gate, name), token, *args)


@dataclass(frozen=True)
class Deed:
    """An operation, as its user sees it.

    Attributes:
        name: for the test's id.
        script: what it runs.
        act: does it with a handle and returns what is to be judged.
        done: what `act` returns when it was done, whatever happened to its command.
    """

    name: str
    script: Callable[[], Script]
    act: Callable[[Scene, Any], Any]
    done: Any = None


def _extend(scene: Scene, handle: Any) -> bool:
    scene.ours.extend(handle, ttl=timedelta(hours=1))
    return bool(scene.server.call("PTTL", KEY) > 3_000_000)


def _release(scene: Scene, handle: Any) -> Any:
    scene.ours.release(handle)
    return scene.server.call("GET", KEY)


def _force(scene: Scene, handle: Any) -> Any:
    del handle
    return scene.ours.call("force_release", "job")


def _advance(scene: Scene, handle: Any) -> bool:
    wanted = int(handle.token) + 5
    return bool(scene.ours.call("advance_fence", "job", at_least=wanted) == wanted)


def _set(scene: Scene, handle: Any) -> Any:
    scene.write("set_if_fresh", handle.token, "k", "ours")
    return scene.server.call("GET", "k")


def _delete(scene: Scene, handle: Any) -> Any:
    scene.write("delete_if_fresh", handle.token, "k")
    return scene.server.call("GET", "k")


def _hset(scene: Scene, handle: Any) -> Any:
    scene.write("hset_if_fresh", handle.token, "h", {"f": "ours"})
    return scene.server.call("HGET", "h", "f")


def _check_and_advance(scene: Scene, handle: Any) -> Any:
    return scene.write("check_and_advance", handle.token)


DEEDS = [
    Deed("extend", lambda: lock.RENEW, _extend, done=True),
    Deed("release", lambda: lock.RELEASE, _release),
    Deed("force_release", lambda: lock.FORCE, _force, done=True),
    Deed("advance_fence", lambda: lock.ADVANCE, _advance, done=True),
    Deed("set_if_fresh", lambda: fence.SET, _set, done=b"ours"),
    Deed("delete_if_fresh", lambda: fence.DELETE, _delete),
    Deed("hset_if_fresh", lambda: fence.HSET, _hset, done=b"ours"),
    Deed("check_and_advance", lambda: fence.CHECK, _check_and_advance),
]
FAULTS: dict[str, Callable[[Match], Any]] = {
    "reply lost": DropReply,
    "reply lost twice": lambda match: DropReply(match, nth=None),
    "command lost": DropCommand,
    "sent twice": lambda match: Duplicate(match, nth=1),
    "held back": HoldBack,
}

deeds = pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.name)


@pytest.fixture
def scene(server: Server, proxy: Proxy, make_locks: Callable[..., Locks]) -> Scene:
    load_scripts(server)
    return Scene(server, proxy, make_locks(proxy.url), make_locks(server.url))


def load_scripts(server: Server) -> None:
    """Have the server know the scripts, so that each call is one command that names its sha."""
    for script in (
        lock.ACQUIRE,
        lock.RELEASE,
        lock.RENEW,
        lock.WITHDRAW,
        lock.FORCE,
        lock.ADVANCE,
        lock.INSPECT,
        fence.SET,
        fence.DELETE,
        fence.HSET,
        fence.CHECK,
    ):
        assert server.call("SCRIPT", "LOAD", script.source) == script.sha.encode()


def calls_of(script: Script) -> Match:
    return containing(script.sha)


def is_lost(scene: Scene, handle: Any) -> bool:
    try:
        scene.ours.release(handle)
    except LockNotOwned:
        return True
    return False


# -- acquire ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["reply lost", "command lost", "sent twice", "held back"])
def test_acquire_is_granted_whatever_becomes_of_one_command(scene: Scene, fault: str) -> None:
    """simstudioai/sim#6864, redis/go-redis#2985: never "not acquired" because a reply was lost."""
    struck = scene.proxy.add(FAULTS[fault](calls_of(lock.ACQUIRE)))
    handle = scene.ours.acquire("job", ttl=MINUTE)
    assert struck.fired == 1
    info = scene.theirs.call("inspect", "job")
    assert (info.owner_id, info.token) == (handle.owner_id, handle.token)
    scene.proxy.clear()
    scene.ours.release(handle)
    assert scene.server.call("GET", KEY) is None


@pytest.mark.parametrize("then", ["released", "lapsed", "forced", "taken"])
def test_a_late_copy_of_acquire_is_granted_nothing(scene: Scene, then: str) -> None:
    late = scene.proxy.add(HoldBack(calls_of(lock.ACQUIRE)))
    handle = scene.ours.acquire("job", ttl=MINUTE)
    if then == "lapsed":
        scene.server.call("DEL", KEY)
    elif then == "forced":
        assert scene.theirs.call("force_release", "job")
    if then in {"released", "taken"}:
        scene.ours.release(handle)
    else:
        assert is_lost(scene, handle)
    taken = scene.theirs.acquire("job", ttl=MINUTE) if then == "taken" else None
    before = scene.state()
    assert late.deliver()[0] == (0 if taken else 2)
    assert scene.state() == before
    if taken:
        scene.theirs.release(taken)


def test_a_late_copy_of_acquire_before_the_release_is_freed_by_it(scene: Scene) -> None:
    late = scene.proxy.add(HoldBack(calls_of(lock.ACQUIRE)))
    handle = scene.ours.acquire("job", ttl=MINUTE)
    scene.server.call("DEL", KEY)  # the lease ends
    assert late.deliver()[0] == 1, "granted to nobody"
    assert is_lost(scene, handle)
    assert scene.server.call("GET", KEY) is None
    scene.theirs.release(scene.theirs.acquire("job", ttl=MINUTE))


def test_a_late_copy_of_acquire_does_not_shorten_the_lease(scene: Scene) -> None:
    late = scene.proxy.add(HoldBack(calls_of(lock.ACQUIRE)))
    handle = scene.ours.acquire("job", ttl=timedelta(seconds=20))
    scene.ours.extend(handle, ttl=timedelta(hours=1))
    assert late.deliver() == [1, str(int(handle.token)).encode()]
    assert scene.server.call("PTTL", KEY) > 3_000_000
    scene.ours.release(handle)


def test_a_refused_acquire_whose_first_copy_comes_late_holds_nothing(scene: Scene) -> None:
    handle = scene.theirs.acquire("job", ttl=MINUTE)
    late = scene.proxy.add(HoldBack(calls_of(lock.ACQUIRE)))
    assert scene.ours.try_acquire("job", ttl=MINUTE) is None
    scene.theirs.release(handle)
    assert late.deliver() == [2]
    assert scene.server.call("GET", KEY) is None


def test_a_late_copy_of_a_waiting_acquire_holds_nothing(scene: Scene) -> None:
    handle = scene.theirs.acquire("job", ttl=MINUTE)
    late = scene.proxy.add(HoldBack(calls_of(lock.ACQUIRE), nth=2))
    waiting = scene.ours.start("acquire", "job", ttl=MINUTE, wait=timedelta(seconds=20))
    late.wait()
    scene.theirs.release(handle)
    mine = waiting.result(20)
    scene.ours.release(mine)
    assert late.deliver() == [2]
    assert scene.server.call("GET", KEY) is None


# -- withdraw -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["nothing", *FAULTS])
def test_an_acquire_that_was_never_answered_holds_nothing(scene: Scene, fault: str) -> None:
    acquires = scene.proxy.add(HoldBack(calls_of(lock.ACQUIRE), nth=None))
    withdraws = None
    if fault != "nothing":
        withdraws = scene.proxy.add(FAULTS[fault](calls_of(lock.WITHDRAW)))
    expected = OutcomeUnknown if fault == "reply lost twice" else StoreUnavailable
    with pytest.raises(expected):
        scene.ours.acquire("job", ttl=MINUTE)
    scene.proxy.clear()
    assert len(acquires.held) == 4, "and no more were sent"
    # All of them arrive, and then the withdraw that was held back.
    while acquires.held:
        assert acquires.deliver() == [2]
    before = scene.theirs.acquire("job", ttl=MINUTE)
    if isinstance(withdraws, HoldBack):
        assert withdraws.deliver() == [0]
    scene.theirs.release(before)


def test_an_acquire_that_was_carried_out_and_never_answered_is_undone(scene: Scene) -> None:
    scene.proxy.add(DropReply(calls_of(lock.ACQUIRE), nth=None))
    with pytest.raises(StoreUnavailable, match="nothing is held"):
        scene.ours.acquire("job", ttl=MINUTE)
    assert scene.server.call("GET", KEY) is None
    assert scene.server.call("HGET", FENCE, "open") == b"0", "it was given back, not lost"


# -- everything else ----------------------------------------------------------------------------


@deeds
@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "reply lost twice"])
def test_every_operation_reports_what_it_did(scene: Scene, deed: Deed, fault: str) -> None:
    scene.server.call("SET", "k", "before")
    handle = scene.ours.acquire("job", ttl=MINUTE)
    struck = scene.proxy.add(FAULTS[fault](calls_of(deed.script())))
    assert deed.act(scene, handle) == deed.done
    assert struck.fired == 1


@deeds
def test_an_operation_that_was_never_answered_says_so_and_can_be_repeated(
    scene: Scene, deed: Deed
) -> None:
    handle = scene.ours.acquire("job", ttl=MINUTE)
    scene.proxy.add(DropReply(calls_of(deed.script()), nth=None))
    with pytest.raises(OutcomeUnknown) as raised:
        deed.act(scene, handle)
    assert raised.value.sends == 4
    scene.proxy.clear()
    if deed.name == "force_release":
        assert not deed.act(scene, handle), "it is free now"
    else:
        assert deed.act(scene, handle) == deed.done


@deeds
def test_a_copy_that_comes_after_the_release_changes_nothing_for_the_next_holder(
    scene: Scene, deed: Deed
) -> None:
    handle = scene.ours.acquire("job", ttl=MINUTE)
    late = scene.proxy.add(HoldBack(calls_of(deed.script())))
    deed.act(scene, handle)
    if deed.name != "release":
        assert is_lost(scene, handle) is (deed.name == "force_release")
    successor = scene.theirs.acquire("job", ttl=timedelta(seconds=50))
    gate = scene.theirs.gate
    scene.theirs.run(gate.set_if_fresh, successor.token, "k", "theirs").result(20)
    scene.theirs.run(gate.hset_if_fresh, successor.token, "h", {"f": "theirs"}).result(20)
    before = scene.state()
    late.deliver()
    assert scene.state() == before
    assert scene.server.call("PTTL", KEY) <= 50_000
    scene.theirs.release(successor)


@deeds
def test_the_verdict_is_the_same_after_any_of_them_lost_its_reply(scene: Scene, deed: Deed) -> None:
    handle = scene.ours.acquire("job", ttl=MINUTE)
    scene.proxy.add(DropReply(calls_of(deed.script())))
    deed.act(scene, handle)
    scene.proxy.clear()
    scene.proxy.add(DropReply(calls_of(lock.RELEASE)))
    assert is_lost(scene, handle) is (deed.name == "force_release")
    assert is_lost(scene, handle) is (deed.name == "force_release")


def test_a_lost_lease_is_reported_though_the_reply_is_lost(scene: Scene) -> None:
    handle = scene.ours.acquire("job", ttl=MINUTE)
    scene.server.call("DEL", KEY)
    successor = scene.theirs.acquire("job", ttl=MINUTE)
    scene.theirs.release(successor)
    scene.proxy.add(DropReply(calls_of(lock.RELEASE)))
    assert is_lost(scene, handle)
    assert is_lost(scene, handle)


@pytest.mark.parametrize("fault", ["reply lost", "sent twice", "held back"])
def test_a_stale_write_is_refused_whatever_becomes_of_its_command(scene: Scene, fault: str) -> None:
    handle = scene.ours.acquire("job", ttl=MINUTE)
    scene.server.call("DEL", KEY)
    scene.theirs.acquire("job", ttl=MINUTE)
    struck = scene.proxy.add(FAULTS[fault](calls_of(fence.SET)))
    with pytest.raises(FencedOutError):
        scene.write("set_if_fresh", handle.token, "k", "stale")
    if isinstance(struck, HoldBack):
        struck.deliver()
    assert scene.server.call("GET", "k") is None


# -- it bites -----------------------------------------------------------------------------------


def test_it_bites_without_the_release_burying_the_attempt(scene: Scene) -> None:
    with broken.RELEASE_BURIES.removed():
        load_scripts(scene.server)
        late = scene.proxy.add(HoldBack(calls_of(lock.ACQUIRE)))
        scene.ours.release(scene.ours.acquire("job", ttl=MINUTE))
        assert late.deliver()[0] == 1, "held for a minute, by nobody"


def test_it_bites_without_the_withdraw_burying_the_attempt(scene: Scene) -> None:
    with broken.WITHDRAW_BURIES.removed():
        load_scripts(scene.server)
        acquires = scene.proxy.add(HoldBack(calls_of(lock.ACQUIRE), nth=None))
        with pytest.raises(StoreUnavailable):
            scene.ours.acquire("job", ttl=MINUTE)
        assert acquires.deliver()[0] == 1


def test_it_bites_without_the_attempt_being_known(scene: Scene) -> None:
    with broken.ACQUIRE_KNOWS_ITS_ATTEMPT.removed():
        load_scripts(scene.server)
        scene.proxy.add(DropReply(calls_of(lock.ACQUIRE)))
        assert scene.ours.try_acquire("job", ttl=MINUTE) is None, "its own lock stands in its way"
