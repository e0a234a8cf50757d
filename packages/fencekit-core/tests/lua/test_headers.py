"""What the header of a script says is what its body does and what its Operation passes.

The header, the first lines of the body and the Python that calls it are written by hand in three
places; this compares them for every script, so that none can drift.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
import redis

from fencekit.keys import names
from fencekit.protocol import bare, claim, fence, idempotency, lock
from fencekit.protocol.memo import Memo
from fencekit.protocol.operation import Answer, Flow, Operation
from fencekit.protocol.script import Param, Script
from fencekit.protocol.token import FenceToken
from harness.servers import Server

if TYPE_CHECKING:
    from collections.abc import Callable

LUA = files("fencekit") / "lua"
SCRIPTS = sorted(
    entry.name.removesuffix(".lua") for entry in LUA.iterdir() if entry.name.endswith(".lua")
)

NAMES = names("fencekit", "job")
TOKEN = FenceToken(1_700_000_000_000_001, resource="job")
CLAIMANT = lock.Claimant(NAMES, "me", "a" * 32, 30_000, 3_600_000)
GRANT = lock.Grant(CLAIMANT, TOKEN, 0.0, resent=True)
TERMS = claim.Terms(NAMES, "me", lease_ms=30_000, ttl_ms=60_000)
BEGUN = claim.Begun(
    TERMS,
    "a" * 32,
    claim.BeginOutcome.BEGUN,
    token=TOKEN,
    number=1,
    sent_at=0.0,
    resent=False,
)
BARE = bare.BareClaim("key", "channel", "a" * 32, 30_000)
# What an earlier step of a flow is answered with, so that the next comes.
EARLIER: dict[str, Any] = {
    "lock_inspect": [b"you:abc:7", 900, b"7", b"7", b"", b"6"],
    "claim_read": [b"done", b"me", b"1", 0, b"7", b"json", b"", b"", b"", 900],
}


def operations() -> Iterator[Operation[Any]]:
    """Yield every operation that the protocol can ask for."""
    gate: tuple[str, FenceToken, int] = ("fencekit", TOKEN, 1_000)
    memo = Memo("json", b"1")
    yield lock.acquire_operation(CLAIMANT)
    yield lock.withdraw_operation(CLAIMANT)
    yield lock.renew_operation(CLAIMANT, TOKEN, 30_000)
    yield fence.set_value(*gate, key="{job}:k", value="v", ttl_ms=5, remote=False)
    yield fence.delete(*gate, key="{job}:k", remote=False)
    yield fence.hset(*gate, key="{job}:h", mapping={"f": "v", "g": "w"}, remote=False)
    yield fence.check(*gate, remote=False, advance=True)
    yield fence.current("fencekit", "job", remote=False)
    yield idempotency.begin_operation(TERMS, "a" * 32)
    yield idempotency.withdraw(TERMS, "a" * 32)
    yield idempotency.complete_operation(BEGUN, memo, ttl_ms=1_000)
    yield idempotency.announce_operation(BEGUN, memo, claim.Announcement("notice", "told", 5))
    yield idempotency.fail(BEGUN, "Oops", terminal=False)
    yield idempotency.release(BEGUN)
    yield idempotency.renew_operation(BEGUN)
    yield idempotency.read(NAMES)
    yield idempotency.read_memo(NAMES)
    flows: list[Flow[Any]] = [
        lock.release(GRANT),
        lock.inspect(NAMES),
        lock.force_release(NAMES, 1_000),
        lock.advance(NAMES, 5, 1_000),
        idempotency.clear(NAMES),
        bare.acquire(BARE),
        bare.release(BARE),
        bare.extend(BARE),
    ]
    for flow in flows:
        yield from _steps(flow)


def _steps(flow: Flow[Any]) -> Iterator[Operation[Any]]:
    step = next(flow)
    while isinstance(step, Operation):
        yield step
        if step.script.name not in EARLIER:
            break
        try:
            step = flow.send(Answer(EARLIER[step.script.name]))
        except StopIteration:
            break
    flow.close()


OPERATIONS = {operation.script.name: operation for operation in operations()}


def body_of(name: str) -> list[str]:
    """Return the lines of a script's own file, without its comments."""
    lines = (LUA / f"{name}.lua").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("--")]


def bindings_of(body: list[str]) -> tuple[list[str], list[str], int]:
    """Read the lines that bind KEYS and ARGV to names.

    Returns the names bound to KEYS and to ARGV, by index, and the number of those lines.
    """
    bound: dict[str, dict[int, str]] = {"KEYS": {}, "ARGV": {}}
    count = 0
    for line in body:
        found = re.fullmatch(r"local ([\w, ]+) = (.+)", line)
        if found is None or not re.search(r"\b(KEYS|ARGV)\[\d+\]", line):
            break
        targets = found[1].split(", ")
        # No comma stands inside an expression of a binding.
        values = found[2].split(", ")
        assert len(targets) == len(values), line
        for target, value in zip(targets, values, strict=True):
            source = re.fullmatch(
                r"(?:tonumber\()?(KEYS|ARGV)\[(\d+)\]\)?(?: == '1'| ~= '')?", value
            )
            assert source, f"{value!r} in {line!r} is more than a binding"
            assert int(source[2]) not in bound[source[1]], f"{source[0]} is bound twice"
            bound[source[1]][int(source[2])] = target
        count += 1
    for kind, names_by_index in bound.items():
        assert sorted(names_by_index) == list(range(1, len(names_by_index) + 1)), kind
    keys, args = ([bound[kind][i] for i in sorted(bound[kind])] for kind in ("KEYS", "ARGV"))
    return keys, args, count


def declared(params: tuple[Param, ...]) -> list[str]:
    return [param.name for param in params if not param.rest]


def rest(script: Script) -> bool:
    return bool(script.args) and script.args[-1].rest


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_header_names_what_the_body_binds(name: str) -> None:
    script = Script.load("fencekit", name)
    keys, args, _ = bindings_of(body_of(name))
    assert keys == declared(script.keys)
    assert args == declared(script.args)


@pytest.mark.parametrize("name", SCRIPTS)
def test_after_the_bindings_keys_and_argv_are_not_mentioned(name: str) -> None:
    script, body = Script.load("fencekit", name), body_of(name)
    _, _, count = bindings_of(body)
    for line in body[count:]:
        assert "KEYS" not in line
        if rest(script):
            assert not re.search(r"ARGV\[", line), "the rest is taken by a loop"
        else:
            assert "ARGV" not in line


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_operation_passes_what_the_header_names(name: str) -> None:
    script = Script.load("fencekit", name)
    assert name in OPERATIONS, "no operation of the protocol uses this script"
    operation = OPERATIONS[name]
    assert operation.script.sha == script.sha, "the script is loaded as it stands"
    assert len(operation.keys) == len(script.keys)
    for key, param in zip(operation.keys, script.keys, strict=True):
        if param.pattern.startswith("{name}:"):
            kind = param.pattern.removeprefix("{name}:")
            # The gate's record is the fence, or the record of a claim.
            assert key == f"fencekit:{{job}}:{kind}"
    if rest(script):
        assert len(operation.args) >= len(script.args)
    else:
        assert len(operation.args) == len(script.args)
    for arg, param in zip(operation.args, script.args, strict=False):
        kinds: dict[str, type | tuple[type, ...]] = {"int": int, "str": str, "bytes": (bytes, str)}
        assert isinstance(arg, kinds[param.kind]), param.name
        assert type(arg) in {int, str, bytes}, "neither a bool nor a token, which pack otherwise"


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_says_whether_it_may_be_sent_again(name: str) -> None:
    text = (LUA / f"{name}.lua").read_text(encoding="utf-8")
    (said,) = re.findall(r"^-- Safe to re-send: (yes|no)(?:, .+)$", text, re.MULTILINE)
    assert Script.load("fencekit", name).retry_safe is (said == "yes")
    assert re.search(r"^-- Returns  \S", text, re.MULTILINE), "nor what it returns"


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_depends_on_its_key_names(name: str) -> None:
    """Scripts compute no keys: each key is one of KEYS."""
    calls = re.findall(
        r"redis\.p?call\('\w+', ([^,)]+)", Script.load("fencekit", name).source.decode()
    )
    for first in calls:
        assert re.fullmatch(r"[a-z_]+", first) or first == "'TIME'", first


def test_a_body_that_binds_in_another_order_is_noticed() -> None:
    """The test bites: a script pasted with two arguments exchanged."""
    body = ["local lock = KEYS[1]", "local owner, attempt = ARGV[2], ARGV[1]", "return 1"]
    _, args, _ = bindings_of(body)
    assert args == ["attempt", "owner"]
    with pytest.raises(AssertionError):
        bindings_of(["local lock = KEYS[2]", "return 1"])
    with pytest.raises(AssertionError, match="more than a binding"):
        bindings_of(["local lock = KEYS[1] .. ':x'", "return 1"])


# -- on a real server -----------------------------------------------------------------------------


@pytest.fixture
def strict(server: Server) -> Iterator[Callable[[Operation[Any]], Any]]:
    """Run an operation as a user who may touch the keys that it declares, and no others."""
    client: Any = redis.Redis.from_url(server.url)

    def run(operation: Operation[Any], command: str = "EVAL") -> Any:
        keys = [f"~{key}" for key in operation.keys]
        client.execute_command(
            "ACL", "SETUSER", "strict", "reset", "on", ">pw", "+@all", "allchannels", *keys
        )
        user: Any = redis.Redis.from_url(server.url, username="strict", password="pw")  # noqa: S106
        with user as limited:
            return limited.execute_command(
                command,
                operation.script.source,
                len(operation.keys),
                *operation.keys,
                *operation.args,
            )

    yield run
    client.execute_command("ACL", "DELUSER", "strict")
    client.close()


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_runs_and_touches_only_the_keys_it_declares(
    name: str, strict: Callable[[Operation[Any]], Any]
) -> None:
    operation = OPERATIONS[name]
    reply = strict(operation)
    assert isinstance(reply, list)
    operation.parse(reply)


def test_touching_another_key_is_noticed(strict: Callable[[Operation[Any]], Any]) -> None:
    """The test bites."""
    body = "return {redis.call('GET', 'b')}"
    script = Script.parse("x", f"--- X.\n-- Safe to re-send: yes\n{body}\n")
    with pytest.raises(redis.ResponseError, match=r"ACL failure|can't access"):
        strict(Operation(script, ("a",), (), lambda reply: reply))


@pytest.mark.parametrize("name", [name for name in SCRIPTS if OPERATIONS[name].script.read_only])
def test_a_script_that_says_it_only_reads_does(name: str, redis_client: Any) -> None:
    """EVAL_RO refuses a write wherever in the script it is tried."""
    redis_client.execute_command("EVAL_RO", *_eval(OPERATIONS[name]))
    body = "\n".join(body_of(name))
    called = set(re.findall(r"redis\.p?call\('(\w+)'", body))
    assert called <= {"GET", "PTTL", "HMGET", "HGET", "EXISTS", "TIME"}


def test_a_write_where_only_reads_are_allowed_is_noticed(redis_client: Any) -> None:
    """The test bites."""
    with pytest.raises(redis.ResponseError, match="Write commands are not allowed"):
        redis_client.execute_command("EVAL_RO", *_eval(OPERATIONS["lock_acquire"]))


def _eval(operation: Operation[Any]) -> tuple[Any, ...]:
    return (operation.script.source, len(operation.keys), *operation.keys, *operation.args)


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_runs_on_every_server(name: str, any_server: Server) -> None:
    operation = OPERATIONS[name]
    assert any_server.call("EVAL", *_eval(operation)) is not None
