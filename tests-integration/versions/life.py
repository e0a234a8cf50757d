"""One life of every kind of record, led by the scripts of this release, an older one, or both.

What is answered and what is stored is kept with the times taken out, so that two lives can be
compared.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fencekit import keys, locks
from fencekit.cache import SyncGenericCache
from fencekit.protocol.script import Script

__all__ = [
    "FROZEN",
    "Life",
    "Profile",
    "freeze",
    "importable",
    "profiles",
    "restore",
    "scripts",
    "spelling",
    "timeless",
]

PACKAGES = ("fencekit", "fencekit.fifo", "fencekit.cache", "fencekit.celery")
FROZEN = {
    path.stem: json.loads(path.read_text())
    for path in sorted(Path(__file__).parent.glob("[0-9]*.json"))
}
_OLD_AGE = 3_600_000
_TOKEN, _MOMENT = re.compile(r"\d{16}"), re.compile(r"\d{13}(-\d+)?|\d{10}(\.\d{1,6})?")
_HEAD = bytes.fromhex("a1010203040506")


class Profile(BaseModel):
    """What the cache keeps in a life."""

    name: str


def profiles(client: Any) -> SyncGenericCache[Profile]:
    """A cache of them on a server."""

    class Profiles(SyncGenericCache[Profile]):
        ttl = 3600
        redis_client = client

    return Profiles()


def scripts() -> dict[str, dict[str, Any]]:
    """What each script of today takes and answers, and its text."""
    found = {}
    for package in PACKAGES:
        for entry in (files(package) / "lua").iterdir():
            if entry.name.endswith(".lua"):
                name = entry.name.removesuffix(".lua")
                script = Script.load(package, name)
                found[name] = {
                    "keys": [f"{key.name} {key.pattern} {key.kind}" for key in script.keys],
                    "args": [f"{arg.name}{'+' if arg.rest else ''}" for arg in script.args],
                    "answers": _answers(entry.read_text()),
                    "source": script.source.decode(),
                }
    return found


def _answers(text: str) -> list[str]:
    """The shapes that the header says a script answers with, without what they mean."""
    lines = text.partition("-- Returns")[2].split("\n--\n")[0].split("\n-- @")[0].splitlines()
    shapes = [re.match(r"(?:--)?\s{2,}(\{.*?\})(?:\s|$)", line) for line in lines]
    return [shape[1] for shape in shapes if shape]


def importable() -> dict[str, list[str]]:
    """What a satellite can import from core, by module; under ``lua`` what its scripts include."""
    core = Path(locks.__file__).parent
    found = {"lua": sorted(path.stem for path in (core / "lua/include").glob("*.lua"))}
    for path in sorted(core.rglob("*.py")):
        parts = path.relative_to(core).with_suffix("").parts
        module = ".".join(("fencekit", *(part for part in parts if part != "__init__")))
        names: set[str] = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names.update(alias.asname or alias.name for alias in node.names)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(target.id for target in targets if isinstance(target, ast.Name))
        found[module] = sorted(names)
    return found


def spelling() -> dict[str, str]:
    """How every key and channel is spelled, by the name of what spells it."""
    names = keys.names("fencekit", "a/b")
    spelled = {field: str(getattr(names, field)) for field in keys.Names.__annotations__}
    entry = keys.cache_entry("p", "domain", "k{1}%")
    return {
        **spelled,
        "process_channel": keys.process_channel("fencekit", "id"),
        "bare_channel": keys.bare_channel("key"),
        "cache_entry": entry,
        "cache_ticket": keys.cache_ticket(entry),
        "cache_channel": keys.cache_channel(entry),
        "cache_tag": keys.cache_tag("p", "domain", "t"),
    }


@dataclass
class Life:
    """Leads it.

    Attributes:
        client: a client of an empty server.
        source: the Lua to run, by the name of the script.
        arguments: the arguments of each script, by their names, in order.
        answers: what was answered so far, without times.
    """

    client: Any
    source: Callable[[str], str]
    arguments: Callable[[str], list[str]]
    answers: list[Any] = field(default_factory=list)

    def lead(self) -> None:
        """Lead all of it."""
        self._locks()
        self._claims()
        self._queue()
        self._cache()
        self._others()

    def do(self, script: str, where: list[str], *more: Any, **given: Any) -> Any:
        """Run one script; arguments that are not given are the usual ones."""
        usual = {
            "owner": "me", "attempt": "a" * 32, "ttl_ms": _OLD_AGE, "lease_ms": _OLD_AGE,
            "retention_ms": _OLD_AGE, "bury": 0, "channel": "wake", "mode": "lock", "advance": 1,
            "fingerprint": "", "max_attempts": 2, "reclaim": "any", "task_id": "task-1",
            "encoding": "json", "result": '{"rows":42}', "published": "", "error": "Oops: no",
            "terminal": 0, "queues": 1, "seen": "", "rest": b"\0\0\0\0" + b'{"a":1}',
            "head": _HEAD, "soft_ms": 0, "px_ms": _OLD_AGE, "hold_ms": 0, "most": 400,
            "random": "r" * 32, "value": "v", "text": "told", "notice_ms": _OLD_AGE,
            "spared": "told",
        } | given  # fmt: skip
        args = [usual[name] for name in self.arguments(script) if not name.endswith("+")]
        answer = self.client.eval(self.source(script), len(where), *where, *args, *more)
        self.answers.append([script, _timeless(answer)])
        return answer

    def _locks(self) -> None:
        def take(name: str, **given: Any) -> dict[str, Any]:
            answer = self.do("lock_acquire", _of(name, "lock", "fence", "gone"), **given)
            return {"token": int(answer[1]), **given}

        for name in ("held", "lapsed", "freed", "forced"):
            mine = take(name)
            self.do("lock_renew", _of(name, "lock", "fence"), **mine)
            self.do("fence_set", [*_of(name, "fence", "lock"), f"{name}:status"], ttl_ms=0, **mine)
            if name == "held":
                take(name)
                other = {"owner": "you", "attempt": "b" * 32}
                self.do("lock_acquire", _of(name, "lock", "fence", "gone"), **other)
                self.do("lock_withdraw", _of(name, "lock", "fence", "gone"), **other)
                self.do("lock_acquire", _of(name, "lock", "fence", "gone"), **other)
            elif name == "forced":
                self.do("lock_force", _of(name, "lock", "fence"), **mine)
            elif name == "freed":
                self.do("lock_release", _of(name, "lock", "fence", "gone"), **mine)
                self.do("lock_release", _of(name, "lock", "fence", "gone"), **mine)
            else:
                self.client.delete(*_of(name, "lock"))
                take(name, owner="you", attempt="c" * 32)
                self.do("lock_release", _of(name, "lock", "fence", "gone"), **mine)
            self.do("fence_check", _of(name, "fence", "lock"), **mine)
            self.do("lock_inspect", _of(name, "lock", "fence"))
        self.do("fence_advance", _of("lifted", "fence"), at_least=7)
        self.do("fence_current", _of("lifted", "fence", "lock"))

    def _claims(self) -> None:
        for name in ("running", "retryable", "done", "announced", "failed"):
            idem = _of(name, "idem")
            self.do("claim_begin", idem)
            self.do("claim_begin", idem, attempt="b" * 32)
            self.do("claim_renew", idem)
            if name == "retryable":
                self.do("claim_fail", idem)
                self.do("claim_begin", idem, attempt="b" * 32)
                self.do("claim_release", idem, attempt="b" * 32)
            elif name == "done":
                self.do("claim_complete", idem)
                self.do("claim_complete", idem)
                self.do("claim_begin", idem, attempt="c" * 32)
                self.do("task_published", idem)
            elif name == "announced":
                both = [*idem, f"{name}:result"]
                self.do("claim_announce", both, published="task-1 ")
                self.do("claim_announce", both, published="task-1 ")
                self.do("claim_begin", idem, attempt="c" * 32)
            elif name == "failed":
                self.do("claim_fail", idem, terminal=1)
                self.do("claim_begin", idem, attempt="c" * 32)
            self.do("claim_read", idem)
            self.do("claim_result", idem)
        self.do("claim_begin", _of("cleared", "idem"))
        last = self.client.hget(*_of("cleared", "idem"), "last")
        self.do("claim_clear", _of("cleared", "idem"), seen=last)
        self.do("claim_begin", _of("withdrawn", "idem"))
        self.do("claim_withdraw", _of("withdrawn", "idem"))

    def _queue(self) -> None:
        turn = "fencekit:proc:p 5000 3600000 3600000 0 wake queued"
        every = _of("queued", "lock", "fence", "gone", "queue", "tickets", "members")
        beaten = [key for key in every if not key.endswith(":gone")]
        answer = self.do("fifo_acquire", every, turn=turn)
        for letter in "bcd":
            self.do("fifo_acquire", every, turn=turn, owner="you", attempt=letter * 32)
        self.do("fifo_beat", beaten, turn=turn, owner="you", attempt="b" * 32)
        self.do("fifo_release", every, turn=turn, token=int(answer[1]))
        held = self.client.get(every[0]).decode()
        mine = {"owner": "you", "attempt": "b" * 32, "token": int(held.rpartition(":")[2])}
        self.do("fifo_renew", beaten, **mine)
        self.do("fifo_withdraw", every, turn=turn, owner="you", attempt="d" * 32, bury=1)
        self.do("fifo_look", every[:4], attempt="e" * 32)
        self.do("fifo_stats", [every[0], every[1], every[3]])

    def _cache(self) -> None:
        pair = [":profile:1", keys.cache_ticket(":profile:1")]
        ticket = self.do("fill_begin", pair)[1]
        self.do("fill_begin", pair, attempt="b" * 32)
        self.do("fill_store", pair, held=ticket)
        self.do("fill_store", pair, held=ticket)
        self.do("entry_set", [":profile:2", keys.cache_ticket(":profile:2")])
        self.do("fill_begin", [":profile:3", keys.cache_ticket(":profile:3")])
        self.do("entry_invalidate", [":profile:3", keys.cache_ticket(":profile:3")], hold_ms=3e6)
        self.do("tag_read", [keys.cache_tag("", "profile", "t")])

    def _others(self) -> None:
        self.do("unique_take", _of("only", "unique"))
        self.do("unique_take", _of("only", "unique"), task_id="task-2")
        self.do("bare_acquire", ["bare"])
        self.do("bare_acquire", ["bare"], attempt="b" * 32)
        self.do("bare_extend", ["bare"])

    def store(self) -> list[Any]:
        """What the server holds now: key, type, value; all but what users wrote must expire."""
        held = []
        for key in sorted(one.decode() for one in self.client.keys("*")):
            kind = self.client.type(key).decode()
            value: Any
            if kind == "string":
                value = self.client.get(key)
            elif kind == "hash":
                value = sorted(self.client.hgetall(key).items())
            elif kind == "zset":
                value = self.client.zrange(key, 0, -1, withscores=True)
            else:
                value = self.client.xrange(key)
            assert self.client.pttl(key) > 0 or key.endswith(":status"), f"{key} never expires"
            held.append([key, kind, _plain(value)])
        return held


def restore(client: Any, store: list[Any]) -> None:
    """Write down what a server held."""
    for key, kind, value in store:
        if kind == "string":
            client.set(key, _raw(value))
        elif kind == "hash":
            client.hset(key, mapping={name: _raw(content) for name, content in value})
        elif kind == "zset":
            client.zadd(key, dict(value))
        else:
            for entry, fields in value:
                client.xadd(key, fields, id=entry)
        client.pexpire(key, _OLD_AGE)


def timeless(store: list[Any]) -> list[Any]:
    """A store without the moments at which it was written."""
    return [[key, kind, _timeless(value)] for key, kind, value in store]


def freeze(client: Any) -> dict[str, Any]:
    """Everything there is to be frozen."""
    now = scripts()
    life = Life(client, lambda name: str(now[name]["source"]), lambda name: now[name]["args"])
    life.lead()
    profiles(client).create(9, Profile(name="Ada"))
    return {
        "spelling": spelling(),
        "core": importable(),
        "scripts": now,
        "answers": life.answers,
        "store": life.store(),
    }


def _of(name: str, *kinds: str) -> list[str]:
    spelled = keys.names("fencekit", name)
    return [getattr(spelled, kind) for kind in kinds]


def _plain(value: Any) -> Any:
    """What JSON carries: text where it is text, else hexadecimal digits."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "hex:" + value.hex()
    if isinstance(value, dict):
        return {_plain(name): _plain(content) for name, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def _raw(text: str) -> str | bytes:
    return bytes.fromhex(text[4:]) if text.startswith("hex:") else text


def _timeless(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, list):
        return [_timeless(each) for each in value]
    if isinstance(value, dict):
        return {name: _timeless(content) for name, content in value.items()}
    if isinstance(value, float) or (isinstance(value, int) and value > 100_000):
        return "<time>"
    if isinstance(value, str) and value.startswith("hex:a1"):
        # Kind and schema, the time to refresh, the cost of the load, the JSON.
        return f"{value[:18]}<time>{value[30:]}"
    if isinstance(value, str):
        return _MOMENT.sub("<moment>", _TOKEN.sub("<token>", value))
    return value
