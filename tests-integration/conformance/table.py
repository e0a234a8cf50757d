"""The page docs/reference/support.md, made of what was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from conformance.columns import profile_of
from conformance.results import Outcome, Run
from harness import kinds

__all__ = ["page"]

_PRIMITIVES = {
    "test_lock.py": "`DistributedLock`",
    "test_redis_lock.py": "`RedisLock`",
    "test_fifo.py": "`FifoLock`",
    "test_gate.py": "`FenceGate`",
    "test_guard.py": "`IdempotencyGuard`",
    "test_cache.py": "`GenericCache`, `SyncGenericCache`",
    "test_example.py": "the README's first example",
}
_WAYS = {
    "single": "alone",
    "unix": "Unix socket",
    "tls": "TLS",
    "sentinel": "Sentinel",
    "cluster": "cluster of three",
    "single-acl": "smallest ACL",
    "cluster-acl": "cluster, smallest ACL",
}
_ELSEWHERE = {
    "test_cluster.py": "slots that move, MOVED, ASK, nodes that die",
    "test_failover.py": "replicas that lag, primaries that fail, Sentinel's failover",
    "test_acl.py": "each command of the smallest ACL taken away",
    "test_columns.py": "the choice of columns",
    "test_cases.py": "public reports about caches: races, tags, prefixes",
    "test_trouble_cases.py": "public reports about caches: processes, loops, servers that are away",
    "test_value_cases.py": "public reports about caches: values",
}


@dataclass(frozen=True)
class _Cell:
    outcome: Outcome
    facts: dict[str, str]


def page(runs: list[Run]) -> str:
    """The whole page; of the runs, the one with the newest redis-py comes first."""
    cells = [cell for run in runs for cell in _cells(run)]
    counts = Counter(one.what for run in runs for one in run.outcomes)
    clients = _clients(runs)
    tests = f"{counts['passed']:,} tests passed, {counts['failed']} failed"
    skipped = f"{counts['skipped']} make no sense in their column"
    parts = [
        "# What is supported\n",
        "Written by `hatch run conformance`, which tries each primitive in each column of a",
        "matrix. A mark says that all tests there passed.\n",
        f"In {_columns(cells)} columns {tests}; {skipped}, as listed below.",
        f"Python {runs[0].python}, {', '.join(_long_names(runs))}.\n",
        "## Servers, and how they are reached\n",
        _table(
            "server",
            {kind.name: _spoken(kind.name) for kind in kinds.ALL_KINDS},
            _WAYS,
            cells,
            lambda facts: (facts["kind"], facts["topology"] + facts["acl"]),
        ),
        "## Primitives and clients\n",
        _table(
            "primitive",
            _PRIMITIVES,
            clients,
            cells,
            lambda facts: (facts["module"], facts["client"]),
        ),
        "## The client's settings\n",
        _table(
            "protocol",
            {"2": "RESP2", "3": "RESP3"},
            {"bytes": "replies as bytes", "str": "`decode_responses=True`"},
            cells,
            lambda facts: (facts["resp"], facts["replies"]),
        ),
        "fencekit's own connections speak RESP2, whatever the client speaks.\n",
        "## What has no columns\n",
        "\n".join(_elsewhere(runs)) + "\n",
        "## What makes no sense in its column\n",
        "\n".join(_skips(runs)) + "\n",
        "Why not all combinations have a column: [](../decisions/0011-conformance-columns.md).",
    ]
    return "\n".join(parts) + "\n"


def _cells(run: Run) -> Iterable[_Cell]:
    for outcome in run.outcomes:
        facts = profile_of(outcome.column) if outcome.module in _PRIMITIVES else None
        if facts is not None:
            make = run.redis if facts["family"] == "redis" else run.valkey
            client = f"{facts['family']}-py {_short(make)} {facts['colour']}"
            yield _Cell(outcome, {**facts, "client": client, "module": outcome.module})


def _clients(runs: list[Run]) -> dict[str, str]:
    makes = [f"redis-py {_short(run.redis)}" for run in runs]
    makes.append(f"valkey-py {_short(runs[0].valkey)}")
    names = [f"{make} {colour}" for make in makes for colour in ("sync", "async")]
    return {name: name.replace(" sync", ", sync").replace(" async", ", async") for name in names}


def _long_names(runs: list[Run]) -> list[str]:
    return [*(f"redis-py {run.redis}" for run in runs), f"valkey-py {runs[0].valkey}"]


def _short(text: str) -> str:
    return ".".join(text.split(".")[:2])


def _spoken(kind: str) -> str:
    family, _, number = kind.partition("-")
    return f"{family.capitalize()} {number}"


def _columns(cells: list[_Cell]) -> int:
    return len({(cell.facts["client"], cell.outcome.column) for cell in cells})


def _table(
    corner: str,
    rows: dict[str, str],
    columns: dict[str, str],
    cells: list[_Cell],
    place: Callable[[dict[str, str]], tuple[Any, Any]],
) -> str:
    found: dict[tuple[Any, Any], Counter[str]] = {}
    for cell in cells:
        found.setdefault(place(cell.facts), Counter())[cell.outcome.what] += 1
    lines = [f"| {corner} | " + " | ".join(columns.values()) + " |", "| --- " * (len(columns) + 1)]
    lines[1] += "|"
    for row, name in rows.items():
        marks = [_mark(found.get((row, column), Counter())) for column in columns]
        lines.append(f"| {name} | " + " | ".join(marks) + " |")
    return "\n".join(lines) + "\n"


def _mark(counts: Counter[str]) -> str:
    if counts["failed"]:
        return f"**{counts['failed']} failed**"
    return "✓" if counts["passed"] else "–"


def _elsewhere(runs: list[Run]) -> Iterable[str]:
    for module, about in _ELSEWHERE.items():
        counts = Counter(one.what for one in _of(runs, module))
        yield f"- {about}: {_mark(counts)} {counts['passed']} tests"


def _of(runs: list[Run], module: str) -> Iterable[Outcome]:
    return (one for run in runs for one in run.outcomes if one.module == module)


def _skips(runs: list[Run]) -> Iterable[str]:
    reasons: dict[str, set[str]] = {}
    for run in runs:
        for one in run.outcomes:
            if one.what == "skipped":
                reasons.setdefault(one.reason, set()).add(one.test.replace(".py::", "::"))
    for reason, tests in sorted(reasons.items()):
        yield f"- {reason}: " + ", ".join(f"`{test}`" for test in sorted(tests))
