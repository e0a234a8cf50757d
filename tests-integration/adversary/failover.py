"""Primaries that fail while their replica lags, and slots that move, under contention.

Round after round 24 threads add to eight accounts, kept on a server of their own that never fails:
each once plainly, reading and then writing, and once fenced, where reading shows the token and a
write with a lower one is refused. Meanwhile, as the seed decides, the replica falls behind for a
while and is promoted, or the accounts' slots move between the masters of a cluster.

Judged: every token is new, and higher than that of a grant that had ended before it was asked for;
the fenced accounts lose nothing; nor do the plain ones where a replica confirmed every grant
(``min_replicas=1``, leases that are not renewed) or where only slots moved. Where nobody confirmed
the grants the plain accounts must lose updates, or the harness does not bite.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import combinations
from typing import Any

import redis

from fencekit import DistributedLock
from fencekit.drivers.sync import SyncDriver
from fencekit.errors import FenceKitError
from harness import servers
from harness.clients import close, make
from harness.proxy import Proxy
from harness.topologies import Cluster, cluster, primary_with_replicas

__all__ = ["run"]

_NAMES, _THREADS = tuple("abcdefgh"), 24
# A waiter behind a lock that the failover lost learns of it when the lease ends: these come anew.
_LEASE, _WAIT = timedelta(seconds=4), timedelta(seconds=0.2)
# Seconds between reading and writing: every second holder is in the middle of it still when the
# others have found the new primary, which takes them one.
_SHORT, _LONG = (0.0, 0.03), (1.0, 2.5)
# One hasty round in three or four catches somebody in the middle.
_ENOUGH = 12
_READ = """
if tonumber(redis.call('HGET', KEYS[1], 'token') or 0) > tonumber(ARGV[1]) then return -1 end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return tonumber(redis.call('HGET', KEYS[1], 'value') or 0)
"""
_WRITE = """
if tonumber(redis.call('HGET', KEYS[1], 'token') or 0) > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[2])
return 1
"""


@dataclass
class Round:
    """One primary, or one while of the cluster's.

    Attributes:
        what: hasty, sure or moving.
        grants: by name, when each was asked for, when granted and its token.
        added: by account, updates that were told to have been made.
        told: what else became of acquires and releases.
    """

    what: str
    grants: dict[str, list[tuple[float, float, int]]] = field(
        default_factory=lambda: {name: [] for name in _NAMES}
    )
    added: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)

    def adds(self, lock: DistributedLock, accounts: Any, ended: threading.Event, seed: int) -> None:
        """In a thread: add to the accounts until it is over."""
        chance = random.Random(seed)
        while not ended.is_set():
            name, asked = chance.choice(_NAMES), time.monotonic()
            try:
                handle = lock.acquire(name, ttl=_LEASE, wait=_WAIT)
            except FenceKitError as error:
                self.told[type(error).__name__] += 1
                time.sleep(0.01)  # a refusal for want of replicas comes at once
                continue
            self.grants[name].append((asked, time.monotonic(), int(handle.token)))
            plain, fenced = (f"{self.what}:{kind}:{name}" for kind in ("plain", "fenced"))
            token = int(handle.token)
            before = int(accounts.get(plain) or 0)
            value = accounts.eval(_READ, 1, fenced, token)
            time.sleep(chance.uniform(*chance.choice([_SHORT, _LONG])))
            if not handle.lost.is_set():
                accounts.set(plain, before + 1)
                self.added[plain] += 1
            if value >= 0 and accounts.eval(_WRITE, 1, fenced, token, value + 1):
                self.added[fenced] += 1
            try:
                handle.release()
            except FenceKitError as error:
                self.told[type(error).__name__] += 1

    @contextlib.contextmanager
    def contention(self, url: str, accounts: Any, chance: random.Random, **options: Any) -> Any:
        """Run the block while all threads of two processes' worth of clients contend."""
        ended = threading.Event()
        made = [make(url, **options) for _ in range(2)]
        wanted = 1 if self.what == "sure" else 0
        locks = [
            DistributedLock(client, min_replicas=wanted, replica_timeout=timedelta(seconds=0.2))
            for client in made
        ]
        threads = [
            threading.Thread(
                target=self.adds, args=(locks[n % 2], accounts, ended, chance.getrandbits(32))
            )
            for n in range(_THREADS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()
            for client in made:
                SyncDriver.of(client).close()
                close(client)

    def wrong(self) -> list[str]:
        """What must not be, of the tokens."""
        found = []
        for name, each in self.grants.items():
            if len({token for _, _, token in each}) < len(each):
                found.append(f"{self.what}, {name}: a token came twice")
            for (_, granted, token), (asked, _, later) in combinations(sorted(each), 2):
                if granted < asked and later < token:
                    found.append(f"{self.what}, {name}: {later} was granted after {token}")
        return found


def _fail_over(round_: Round, accounts: Any, chance: random.Random) -> None:
    with (
        primary_with_replicas() as group,
        Proxy.before(group.primary) as proxy,
        round_.contention(proxy.url, accounts, chance),
    ):
        time.sleep(chance.uniform(0.2, 0.6))
        group.replicas[0].stall()
        time.sleep(chance.uniform(0.5, 1.0))
        new = group.replicas[0].promote()
        proxy.server = (new.host, new.port)
        proxy.cut()
        # The old primary is gone for everybody, and with it what only it had.
        group.primary.kill()
        time.sleep(chance.uniform(1.5, 2.5))


def _move_slots(round_: Round, group: Cluster, accounts: Any, chance: random.Random) -> None:
    with round_.contention(group.url, accounts, chance, topology="cluster"):
        for _ in range(chance.randint(2, 5)):
            time.sleep(chance.uniform(0.1, 0.4))
            group.move(f"fencekit:{{{chance.choice(_NAMES)}}}:lock")


def run(minutes: float) -> bool:
    """Let it happen for so long; returns whether all held, and the plain accounts did not."""
    chance = random.Random(random.getrandbits(32))  # of the seed that main has set
    deadline = time.monotonic() + minutes * 60
    rounds: list[Round] = []
    lost, added = Counter[str](), Counter[str]()
    with (
        servers.start() as server,
        cluster() as group,
        redis.Redis.from_url(server.url) as accounts,
    ):
        while time.monotonic() < deadline or len(rounds) < 2 * 3:
            what = ("hasty", "sure", "moving")[len(rounds) % 3]
            round_ = Round(what)
            rounds.append(round_)
            if what == "moving":
                _move_slots(round_, group, accounts, chance)
            else:
                _fail_over(round_, accounts, chance)
        for account in {name for round_ in rounds for name in round_.added}:
            fenced = ":fenced:" in account
            raw = accounts.hget(account, "value") if fenced else accounts.get(account)
            told = sum(round_.added[account] for round_ in rounds)
            kind = account.rpartition(":")[0]
            added[kind] += told
            lost[kind] += told - int(raw or 0)
    wrong = [text for round_ in rounds for text in round_.wrong()]
    kinds = Counter(round_.what for round_ in rounds)
    grants = sum(len(each) for round_ in rounds for each in round_.grants.values())
    print(f"{dict(kinds)} rounds, {grants:,} grants, tokens out of order: {len(wrong)}")
    for text in wrong[:10]:
        print(f"  {text}")
    for kind in sorted(added):
        print(f"  {kind:14} lost {lost[kind]:4} of {added[kind]:6,} updates")
    print(f"  told besides: {dict(sum((r.told for r in rounds), Counter()))}")
    safe = [kind for kind in added if kind != "hasty:plain"]
    bites = lost["hasty:plain"] > 0
    if not bites and kinds["hasty"] < _ENOUGH:
        print(f"with {_ENOUGH} hasty rounds the plain accounts must lose something; these were few")
        bites = True
    if not bites:
        print("the plain accounts lost nothing: the harness does not bite")
    return not wrong and bites and not any(lost[kind] for kind in safe)
