"""The whole world: all five packages on one Redis and one PostgreSQL, while everything goes wrong.

Celery workers close orders of the shop; processes lock accounts and add to them in two stores, run
jobs that others run too, and carry out transfers that are delivered many times; a crowd stands in
a FIFO queue; readers and a writer share a cache. Meanwhile the schedule, which the seed decides,
kills and stops processes, stops, restarts, fills and empties the server, cuts, delays, loses and
doubles what travels, and forbids commands.

Judged: the history of each lock and job has an order that `history` allows; what was added to the
fenced store is all there, while the plain one must have lost some, or the harness does not bite;
each transfer and each order happened once; nobody was inside the FIFO section beside a holder that
had not lost its lease; nobody read what was stale. In the end a history is falsified, and must be
refused. The figures are written as JSON to $FENCEKIT_WORLD_JSON, where that is set.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import redis

from adversary import _hands as hands
from adversary import fifo
from adversary.cache import Board
from adversary.celery import Crew
from harness import postgres, servers
from harness.children import Child
from harness.faults import Delay, DropCommand, DropReply, Duplicate, HoldBack, named
from harness.proxy import Proxy
from harness.servers import Server
from harness.topologies import follows
from harness.waiting import eventually
from harness.workers import close_app
from history import FencedMutex, Once, Operation, Undecided, check_all
from ledger import stage

__all__ = ["run"]

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
_LOCKERS, _READERS = 2, 2
# Seconds after the war in which all that was begun ends.
_PEACE = 12.0
# Clocks of two processes of one machine, and the server's that ticks by the microsecond.
_SKEW = 0.01


@dataclass
class World:
    """What there is, and what happens to it.

    Attributes:
        store: the server of locks, records, queue and cache.
        proxy: stands before it.
        stand_by: starts a server that can take its place.
        spawn: starts the process of a name anew.
        children: the processes, by name.
        crowd: who stands in the queue.
        crew: the Celery workers.
        epoch: what the wall clock is ahead of the monotonic one.
        seen: what the adversary itself did to records.
    """

    store: Server
    proxy: Proxy
    stand_by: Callable[[], Server]
    spawn: Callable[[str], Child]
    children: dict[str, Child]
    crowd: fifo.Crowd
    crew: Crew
    seen: list[Operation] = field(default_factory=list)
    epoch: float = field(default_factory=lambda: time.time() - time.monotonic())

    # -- faults, each named as in the report ----------------------------------------------------

    def kill_a_process(self, chance: random.Random) -> None:
        name = chance.choice(sorted(self.children))
        self.children[name].kill()
        self.children[name] = self.spawn(name)

    def stop_a_process_shortly(self, chance: random.Random) -> None:
        self._stop(chance, hands.LEASE * 0.4)

    def stop_a_process_past_its_lease(self, chance: random.Random) -> None:
        self._stop(chance, hands.LEASE * 2)

    def _stop(self, chance: random.Random, seconds: float) -> None:
        child = self.children[chance.choice(sorted(self.children))]
        child.pause()
        time.sleep(seconds)
        child.resume()

    def kill_one_in_the_queue(self, chance: random.Random) -> None:
        self.crowd.kill(chance.choice(self.crowd.children))
        self.crowd.spawn()

    def stop_one_in_the_queue(self, chance: random.Random) -> None:
        child = chance.choice(self.crowd.children)
        child.pause()
        time.sleep(hands.LEASE * 2)
        child.resume()

    def harm_a_celery_worker(self, chance: random.Random) -> None:
        del chance
        self.crew.harm()

    def cut_connections(self, chance: random.Random) -> None:
        self.proxy.cut(chance.choice([0.0, 0.1, 0.5]))

    def delay_replies(self, chance: random.Random) -> None:
        self._for_a_while(Delay(chance.choice([0.02, 0.2])), 1.0)

    def lose_a_reply(self, chance: random.Random) -> None:
        self._for_a_while(DropReply(named("EVALSHA"), nth=chance.randint(1, 20)), 0.5)

    def lose_a_command(self, chance: random.Random) -> None:
        self._for_a_while(DropCommand(named("EVALSHA"), nth=chance.randint(1, 20)), 0.5)

    def double_commands(self, chance: random.Random) -> None:
        del chance
        self._for_a_while(Duplicate(named("EVALSHA")), 0.5)

    def deliver_a_command_late(self, chance: random.Random) -> None:
        late = self.proxy.add(HoldBack(named("EVALSHA"), nth=chance.randint(1, 20)))
        time.sleep(chance.choice([0.2, 1.0]))
        self.proxy.remove(late)
        with contextlib.suppress(Exception):  # it may have had nothing to keep back
            late.deliver()

    def _for_a_while(self, fault: Any, seconds: float) -> None:
        self.proxy.add(fault)
        time.sleep(seconds)
        self.proxy.remove(fault)

    def forget_scripts(self, chance: random.Random) -> None:
        del chance
        self.store.call("SCRIPT", "FLUSH")

    def restart_with_its_data(self, chance: random.Random) -> None:
        del chance
        self.store.kill()
        time.sleep(0.3)
        self.store.launch()

    def hand_over_to_a_replica(self, chance: random.Random) -> None:
        """As before an upgrade: writes wait until the replica has all, and go on there.

        So nothing is lost but connections, scripts and subscriptions. What a failover loses is the
        business of an adversary of its own.
        """
        del chance
        new = self.stand_by()
        new.call("REPLICAOF", "127.0.0.1", self.store.port)
        eventually(lambda: follows(new), timeout=10)
        self.store.call("CLIENT", "PAUSE", 30_000, "WRITE")
        eventually(lambda: _offset(new) == _offset(self.store), timeout=10)
        new.call("REPLICAOF", "NO", "ONE")
        self.proxy.server = (new.host, new.port)
        self.proxy.cut()
        self.store.stop()
        self.store = new

    def stop_the_server(self, chance: random.Random) -> None:
        self.store.pause()
        time.sleep(chance.choice([0.3, 1.2]))
        self.store.resume()

    def pause_clients(self, chance: random.Random) -> None:
        self.store.call("CLIENT", "PAUSE", chance.choice([200, 1000]))

    def forbid_writes_as_a_replica(self, chance: random.Random) -> None:
        del chance
        self.store.call("REPLICAOF", "127.0.0.1", "1")
        time.sleep(0.7)
        self.store.call("REPLICAOF", "NO", "ONE")

    def fill_the_memory(self, chance: random.Random) -> None:
        del chance
        self.store.call("CONFIG", "SET", "maxmemory", "1")
        time.sleep(0.7)
        self.store.call("CONFIG", "SET", "maxmemory", "0")

    def forbid_publishing(self, chance: random.Random) -> None:
        del chance
        self.store.call("ACL", "SETUSER", "default", "-publish")
        time.sleep(0.7)
        self.store.call("ACL", "SETUSER", "default", "+publish")

    def evict_a_key(self, chance: random.Random) -> None:
        kind = chance.choice(["lock", "fence", "idem"])
        name = f"account:{chance.randint(1, hands.ACCOUNTS)}"
        if kind == "idem":
            name = f"job-{int(time.monotonic() / hands.ORDER_SECONDS) - chance.randint(0, 2)}"
        self._lose(name, kind)

    def lose_everything_of_a_name(self, chance: random.Random) -> None:
        self._lose(f"account:{chance.randint(1, hands.ACCOUNTS)}", "lock", "fence", "gone")

    def empty_the_cache(self, chance: random.Random) -> None:
        del chance
        for key in range(hands.ENTRIES):
            self.store.call("DEL", f":entry:{key}", f"{{:entry:{key}}}:fill")

    def _lose(self, name: str, *kinds: str) -> None:
        began = time.monotonic()
        self.store.call("DEL", *(f"fencekit:{{{name}}}:{kind}" for kind in kinds))
        what = "forget" if kinds == ("fence",) else "wipe"
        self.seen.append(Operation(what, began, time.monotonic(), key=name, by="adversary"))


def _offset(server: Server) -> str:
    return server.info("replication")["master_repl_offset"]


FAULTS = sorted(
    name for name in vars(World) if not name.startswith("_") and callable(vars(World)[name])
)


def schedule(seconds: float, seed: int) -> list[tuple[float, str, int]]:
    """What happens: pause before it, fault, and the seed of its own chances."""
    chance = random.Random(seed)
    plan, total = [], 0.0
    bag: list[str] = []
    while total < seconds:
        bag = bag or chance.sample(FAULTS, len(FAULTS))  # each before any comes again
        pause = chance.uniform(0.1, 0.8)
        plan.append((pause, bag.pop(), chance.getrandbits(32)))
        total += pause
    return plan


def run(minutes: float, seed: int | None = None) -> bool:
    """Let it happen for so long; returns whether everything held, and the plain store did not."""
    seed = random.getrandbits(31) if seed is None else seed
    if not postgres.installed():
        print(postgres.MISSING)
        return False
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fk-world-")))
        store = stack.enter_context(servers.start(args=DURABLE))
        broker = stack.enter_context(servers.start(args=DURABLE))
        outside = stack.enter_context(servers.start())
        proxy = stack.enter_context(Proxy.before(store))
        server = stack.enter_context(postgres.start())
        stage.set_up()
        databases = stage.Databases(lambda: server)
        stack.callback(databases.close)
        os.environ["LEDGER_ALIAS"] = "postgres"
        databases.ready("postgres")
        _open_accounts()
        os.environ.update(ORDERS_REDIS_URL=broker.url, ORDERS_SHOP_URL=outside.url)
        board = folder / "board"
        board.write_bytes(bytes(8192))
        env = {
            "DJANGO_SETTINGS_MODULE": "ledger.settings",
            "LEDGER_ALIAS": "postgres",
            "LEDGER_POSTGRES_HOST": databases.places["postgres"]["HOST"],
            "LEDGER_POSTGRES_NAME": databases.places["postgres"]["NAME"],
            "LEDGER_REDIS_URL": proxy.url,
        }
        spawned: Counter[str] = Counter()

        def spawn(name: str) -> Child:
            spawned[name] += 1
            path = folder / f"book-{name}-{spawned[name]}"
            path.touch()
            kind, number = name.split("-")
            turn = int(number) + 100 * (spawned[name] - 1)
            if kind == "locker":
                return Child(hands.work, proxy.url, outside.url, str(path), turn, env=env)
            # Only reader 0 writes, in each of its lives.
            return Child(hands.read, proxy.url, str(board), str(path), int(number))

        names = [f"locker-{n}" for n in range(_LOCKERS)] + [f"reader-{n}" for n in range(_READERS)]
        children = {name: spawn(name) for name in names}
        crowd = fifo.Crowd(proxy.url, "fifo", folder)
        crew = Crew(broker, outside)

        def stand_by() -> Server:
            return stack.enter_context(servers.start(args=DURABLE))

        world = World(store, proxy, stand_by, spawn, children, crowd, crew)
        report = _war(world, minutes * 60, seed, folder, Board(str(board)))
        report |= _stores(outside)
    return _judge(report)


def _open_accounts() -> None:
    from ledger.accounts.models import Account  # noqa: PLC0415

    for number in range(1, hands.ACCOUNTS + 3):
        Account.objects.create(pk=number, name=f"account {number}")


def _war(world: World, seconds: float, seed: int, folder: Path, board: Board) -> dict[str, Any]:
    import orders.app as shop  # noqa: PLC0415 - reads the environment

    faults: Counter[str] = Counter()
    failed: list[str] = []
    orders: list[str] = []
    began = time.monotonic()
    errors: Counter[str] = Counter()
    try:
        time.sleep(2.0)  # all are up
        for pause, what, own in schedule(seconds, seed):
            if time.monotonic() > began + max(seconds - _PEACE, seconds * 0.5):
                break
            time.sleep(pause)
            _order(shop, orders)
            random.seed(own)  # what the crew's own chances come from
            try:
                getattr(world, what)(random.Random(own))
                faults[what] += 1
            except OSError as error:
                # The fault before, still under way, kept this one from happening.
                failed.append(f"{what}: {error}")
            world.crew.keep()
            for name, child in world.children.items():
                if not child.alive:
                    failed.append(f"{name} ended: {child.errors[-500:]}")
                    world.children[name] = world.spawn(name)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not _closed(shop, orders, world.crew):
            time.sleep(0.2)
    finally:
        for child in world.children.values():
            child.kill()
        stays = world.crowd.end(errors)
        world.crew.end()
        gc.collect()
        close_app(shop.app)
    history, counts = _read(folder, world)
    return {
        "seed": seed,
        "seconds": round(time.monotonic() - began),
        "faults": dict(sorted((faults + world.crew.done).items())),
        "faults in all": faults.total(),
        "unexpected": failed,
        "history": history,
        "counts": dict(sorted(counts.items())),
        "stays": len(stays),
        "fifo": fifo.judge(stays),
        "orders": len(orders),
        "reads": [board.floors(key)[0] for key in range(hands.ENTRIES)],
    }


def _order(shop: Any, orders: list[str]) -> None:
    name = f"o-{len(orders)}"
    with contextlib.suppress(Exception):  # the broker may be away; nobody ordered then
        shop.place(name, 500)
        orders.append(name)


def _closed(shop: Any, orders: list[str], crew: Crew) -> bool:
    """Whether all are; those whose message the broker lost with a worker are placed again."""
    crew.keep()
    client = shop.shop().client
    done = {one.split()[0].decode() for one in client.lrange("closed", 0, -1)}
    left = [name for name in orders if name not in done]
    broker: Any = redis.Redis.from_url(shop.URL)
    with broker:
        if left and not broker.llen("celery") and not broker.hlen("unacked"):
            for name in left:
                shop.place(name, 500)
            time.sleep(3)
    return not left


def _read(folder: Path, world: World) -> tuple[list[Operation], Counter[str]]:
    """Read all books: the operations, and what was counted."""
    history, counts = list(world.seen), Counter[str]()
    for path in folder.glob("book-*"):
        asked: dict[int, Operation] = {}
        for text in path.read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # its writer was killed
            if "count" in line:
                counts[line["count"]] += 1
            elif "kind" in line:
                asked[line["n"]] = Operation(
                    line["kind"], line["at"], None, _hashable(line["argument"]), None,
                    line["by"], line["key"],
                )  # fmt: skip
            else:
                was = asked[line["n"]]
                answer = _hashable(line["answer"])
                asked[line["n"]] = replace(was, ended=line["at"], answer=answer)
        history += asked.values()
    return [*history, *_ends_of_leases(history, world.epoch)], counts


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _ends_of_leases(history: list[Operation], epoch: float) -> list[Operation]:
    """The moments from which each lease may have ended, unless it was given back."""
    granted: dict[tuple[str, int], float] = {}
    given_back = set()
    for one in sorted(history, key=lambda one: one.began):
        if one.kind in {"acquire", "begin"}:
            token = one.answer[1] if isinstance(one.answer, tuple) else one.answer
            started = one.kind == "acquire" or (one.answer or "")[:1] in {
                ("begun",),
                ("reclaimed",),
            }
            if isinstance(token, int) and started:
                # The token is the time of the grant, unless it had to be lifted above another.
                granted[one.key, token] = max(one.began, min(token / 1e6 - epoch, one.end))
        elif one.kind == "renew" and one.answer == "renewed":
            granted[one.key, one.argument] = one.began
        elif one.answer in {"released", "given", "done"}:
            token = one.argument[0] if one.kind == "complete" else one.argument
            given_back.add((one.key, token))
    return [
        Operation("lapse", at + hands.LEASE - _SKEW, None, token, key=key)
        for (key, token), at in granted.items()
        if (key, token) not in given_back
    ]


def _stores(outside: Server) -> dict[str, Any]:
    """What was written in each store, and what is left of it."""
    from ledger.accounts.models import Account, Branch, Transfer  # noqa: PLC0415

    plain: Any = redis.Redis.from_url(outside.url, decode_responses=True)
    names = [f"account:{number}" for number in range(1, hands.ACCOUNTS + 1)]
    with plain:
        writes = sum(int(plain.get(f"{name}:writes") or 0) for name in names)
        left = sum(int(plain.get(name) or 0) for name in names)
        shop = {what: plain.lrange(what, 0, -1) for what in ("charges", "mails", "closed")}
    fenced_writes = Branch.objects.count()
    fenced_left = sum(Account.objects.get(pk=n).balance for n in range(1, hands.ACCOUNTS + 1))
    transfers = Counter(Transfer.objects.values_list("order", flat=True))
    moved = Account.objects.get(pk=hands.ACCOUNTS + 2).balance
    return {
        "plain": {"writes": writes, "lost": writes - left},
        "fenced": {"writes": fenced_writes, "lost": fenced_writes - fenced_left},
        "transfers": {
            "orders": len(transfers),
            "more than once": sum(count - 1 for count in transfers.values()),
            "money in the wrong place": moved - 5 * len(transfers),
        },
        "shop": {
            what: {"done": len(found), "more than once": len(found) - len(set(found))}
            for what, found in shop.items()
        },
    }


def _judge(report: dict[str, Any]) -> bool:
    history: list[Operation] = report.pop("history")
    mutex, once = FencedMutex(refusals=False), Once()
    locks = [one for one in history if one.key.startswith("account:")]
    jobs = [one for one in history if one.key.startswith("job-")]
    faults: list[str] = [*report["unexpected"], *report.pop("fifo")]
    verdicts: dict[str, Any] = {}
    try:
        verdicts |= check_all(locks, mutex)
        verdicts |= check_all(jobs, once)
    except Undecided as error:
        faults.append(f"undecided: {error}")
    faults += [
        f"{key}: no legal order at {[str(one) for one in verdict.stuck]}"
        for key, verdict in verdicts.items()
        if not verdict
    ]
    if not _bites(locks, mutex):
        faults.append("a falsified history was accepted: the checker does not bite")
    counts = report["counts"]
    report["histories"] = {"checked": len(verdicts), "operations": len(history)}
    if report["plain"]["lost"] <= 0:
        faults.append("the plain store lost nothing: the harness does not bite")
    wrong = {
        "updates lost in the fenced store": report["fenced"]["lost"],
        "transfers carried out twice": report["transfers"]["more than once"],
        "money in the wrong place": report["transfers"]["money in the wrong place"],
        "stale reads": counts.get("STALE", 0),
        **{f"{what} twice": found["more than once"] for what, found in report["shop"].items()},
        "orders not closed": report["orders"] - report["shop"]["closed"]["done"],
        "locks, jobs or transfers that never happened": int(
            not (locks and jobs and report["transfers"]["orders"] and report["stays"])
        ),
    }
    faults += [f"{count} {what}" for what, count in wrong.items() if count]
    faults += [f"{count} × {what}" for what, count in counts.items() if what.startswith("other")]
    report["found"] = faults
    if path := os.environ.get("FENCEKIT_WORLD_JSON"):
        Path(path).write_text(json.dumps(report, indent=1, default=str) + "\n")
    _print(report)
    return not faults


def _bites(history: list[Operation], model: FencedMutex) -> bool:
    """Whether a second holder, put into the middle of somebody's hold, is refused."""
    releases = [one for one in history if one.kind == "release" and one.answer == "released"]
    grants = {one.answer: one for one in history if one.kind == "acquire" and one.ended}
    for release in releases:
        grant = grants.get(release.argument)
        if grant is not None and grant.end < release.began - 0.01:
            at = (grant.end + release.began) / 2
            false = Operation("acquire", at, at, answer=release.argument + 1, key=release.key)
            ours = [one for one in history if one.key == release.key]
            return not check_all([*ours, false], model)[release.key]
    return False


def _print(report: dict[str, Any]) -> None:
    print(f"schedule {report['seed']}, {report['seconds']} s, {report['faults in all']} faults:")
    for what, count in report["faults"].items():
        print(f"  {count:4} {what.replace('_', ' ')}")
    print(f"histories: {report['histories']}; FIFO stays: {report['stays']}")
    print(f"plain store: {report['plain']}; fenced store: {report['fenced']}")
    print(f"transfers: {report['transfers']}; shop: {report['shop']} of {report['orders']} orders")
    print(f"counted: {report['counts']}")
    for fault in report["found"][:20]:
        print(f"FAULT {fault}")
