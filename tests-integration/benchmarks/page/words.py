"""The page around the charts: which figures stand where, and what to make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Figure, Target
from benchmarks.page import charts
from benchmarks.peers.roster import OURS, ROSTER
from benchmarks.peers.rows import ROWS
from benchmarks.peers.table import figure
from benchmarks.record import FOLDER, Record
from benchmarks.report import number

__all__ = ["write"]

_PAGE: Final = FOLDER.with_suffix(".md")

_GROUPS: Final = {
    "core": ("Locks, claims and gated writes", "`fencekit-core`"),
    "fifo": ("FIFO locks", "`fencekit-fifo`"),
    "cache": ("Caches", "`fencekit-cache`"),
    "django": ("Django", "`fencekit-django`, on a PostgreSQL of its own"),
    "celery": ("Celery", "`fencekit-celery`, through a real prefork worker"),
}

# Which rows of the peers stand in one chart: its name, title, the beginnings of their names, scale.
_CHARTS: Final = (
    (
        "lock-speed",
        "Lock cycles: speed, of two bare scripts (longer is better)",
        ("lock-sync", "lock-async", "lock-tasks", "fifo-cycle"),
        "linear",
    ),
    (
        "handoff",
        "Hand-offs: time, of a BLPOP hand-off of the same client (shorter is better)",
        (
            "handoff-sync",
            "handoff-async",
            "handoff-tasks",
            "fifo-handoff",
            "fifo-handoff-tasks",
            "fifo-handoff-late",
        ),
        "log",
    ),
    (
        "idle",
        "20 that wait: commands a second of each (shorter is better)",
        ("idle-threads", "idle-tasks", "fifo-idle"),
        "symlog",
    ),
    (
        "connections",
        "20 that wait: connections of their process (shorter is better)",
        ("idle-threads-connections", "idle-tasks-connections", "fifo-idle-connections"),
        "linear",
    ),
    (
        "killed",
        "The holder is killed: until the next is in, in leases (shorter is better)",
        ("killed-sync", "killed-async", "fifo-killed"),
        "linear",
    ),
    (
        "jobs",
        "Idempotent work: speed, of as many bare scripts as it needs at least (longer is better)",
        ("job-first-sync", "job-replay-sync", "job-first-async", "job-replay-async"),
        "linear",
    ),
    (
        "cache-speed",
        "Caches: speed, of the same by hand (longer is better)",
        (
            "cache-hit-sync",
            "cache-hit-async",
            "cache-write-sync",
            "cache-write-async",
            "cache-fill-sync",
            "cache-fill-async",
        ),
        "linear",
    ),
    (
        "cache-many",
        "100 hits at once: speed, of 100 GETs (longer is better)",
        ("cache-many-sync", "cache-many-async"),
        "linear",
    ),
    (
        "cache-safety",
        "Caches: loader calls in a stampede, stale values kept (shorter is better)",
        (
            "cache-stampede-sync",
            "cache-stampede-async",
            "cache-stale-sync",
            "cache-stale-async",
        ),
        "linear",
    ),
)


# What is known of figures that miss their targets now and then, by the beginnings of the scenarios.
_KNOWN: Final = {
    "handoff-": (
        "A BLPOP hand-off ends with the wake-up; whoever waits for a lock is woken, and then takes "
        "it with a script of its own, which gives it a lease from that moment on. From run to run "
        "the ratio is 1.3 to 1.7."
    ),
    "lock-sync": "Another run of the same morning had 0.92; the machine was busy during this one.",
    "claim-sync": "Other runs had 0.79 and 0.83.",
    "celery throughput": (
        "Two bare scripts by hand, which guarantee nothing, take most of it: see the line below."
    ),
}


def write() -> Path:
    """Draw the charts and write the page, of what is recorded; returns the page."""
    record = Record()
    for old in FOLDER.glob("*.svg"):
        old.unlink()
    _PAGE.write_text("\n".join(_page(record)) + "\n")
    return _PAGE


def _page(record: Record) -> Iterator[str]:
    yield from _INTRODUCTION.splitlines()
    yield from _machines(record)
    if record.rows:
        yield from _peers(record)
    for group, (title, about) in _GROUPS.items():
        found = {name: one for name, one in record.scenarios.items() if one["group"] == group}
        if found:
            yield from _group(group, title, about, found)


_INTRODUCTION: Final = """\
<!-- Written by `hatch run bench --record`, the charts too: change tests-integration/benchmarks. -->

# Benchmarks

Every figure is a ratio to a floor that is measured beside it, in turns of a fraction of a second:
machines differ, and one machine differs from minute to minute. The floor of a lock is what any
lock on that client must pay: two scripts of one command each, one that sets a key with a lease and
one that removes it. A ratio of 0.9 is nine tenths of its speed. Read them to a tenth: a second run
differs by that much, and hand-offs by more.

Some of ours are above 1. What fencekit sends goes over connections of its own, which cost less in
the client than redis-py's path for a command does, and the commands of tasks that run at once
travel together.

Measure it yourself, from a clone:

<!-- not run: it takes a quarter of an hour -->
```console
hatch run bench --peers
hatch run bench
```

The first makes an environment for each peer and compares; it fails where a peer is ahead and
nobody says why. The second measures each distribution against its targets, and fails where one is
missed. Add a name (`core`, `fifo`, `cache`, `django`, `celery`) to measure one of them, `--only
WORD` for a part, `--record` to write this page anew.
"""


def _machines(record: Record) -> Iterator[str]:
    every = [*record.scenarios.values(), *record.rows.values()]
    known = list(dict.fromkeys(one["machine"] for one in every))
    yield from ("", f"Measured on: {'; '.join(known)}." if known else "Nothing is recorded.", "")


def _peers(record: Record) -> Iterator[str]:
    yield from (
        "## Beside others",
        "",
        "Each library runs in an environment of its own, as its documentation shows it, with its",
        "defaults, on the same redis-py and the same server. Each of its processes measures the",
        "floor itself, so that figures of different environments may stand beside each other.",
        "",
    )
    order = [one.name for one in ROSTER if one.name in record.versions]
    versions = [f"{name} {record.versions[name]}".strip() for name in order]
    yield f"Who took part: {', '.join(versions)}."
    for name, reason in record.absent.items():
        yield f"Not installed: {name}, because {reason}"
    yield ""
    for name, title, names, scale in _CHARTS:
        rows = [record.rows[row] for row in names if row in record.rows]
        if rows:
            yield from _chart(
                name,
                title,
                lambda path, theme, r=rows, s=scale: charts.bars(r, path, theme, scale=s),
            )
    yield from _table(record.rows)


def _table(rows: Mapping[str, Any]) -> Iterator[str]:
    yield "All rows, of the peers the best first; a speed is better when it is more, all else less."
    group = ""
    reasons = {row.name: row.why for row in ROWS}
    for name, row in rows.items():
        if row["group"] != group:
            group = row["group"]
            yield from ("", f"### {group}", "")
            yield f"| measured | {OURS} | peers | we are |"
            yield "| --- | ---: | --- | --- |"
        peers = "; ".join(_peer(name, row["measured"][name]) for name in charts.ranked(row))
        ours = f"{figure(row['measured'][OURS]['value'])} {row['unit']}".strip()
        why = f": {reasons[name]}" if row["verdict"] != "ahead" and reasons[name] else ""
        yield f"| {row['what']} | {ours} | {peers} | {row['verdict']}{why} |"
    yield ""


def _peer(name: str, one: Mapping[str, Any]) -> str:
    # The times that a ratio is made of would fill the page.
    tells = one["note"] and (one["value"] is None or "unanswered" in one["note"])
    return f"{name} {figure(one['value'])}" + (f" ({one['note']})" if tells else "")


def _group(group: str, title: str, about: str, found: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield f"{about}, with `hatch run bench {group}`."
    yield ""
    margins = list(_margins(found))
    if margins:
        yield from _chart(
            group,
            f"Figures of {group} beside their targets",
            lambda path, theme: charts.margins(margins, path, theme),
        )
    yield "| scenario | measured | value | target |"
    yield "| --- | --- | ---: | --- |"
    for name, scenario in found.items():
        first = True
        for told in scenario["figures"]:
            one = _figure(told)
            target = "" if one.target is None else str(one.target)
            if one.passed is False:
                target = f"**missed**: {target}"
            who = f"{name}: {scenario['about']}" if first else ""
            first = False
            yield f"| {who} | {one.what} | {number(one)} | {target} |"
    yield from ("", *_missed(found), "")


def _missed(found: Mapping[str, Any]) -> Iterator[str]:
    """A line for each figure that missed its target, with what is known of it."""
    for name, scenario in found.items():
        for told in scenario["figures"]:
            one = _figure(told)
            if one.passed is False:
                known = next((why for start, why in _KNOWN.items() if name.startswith(start)), "")
                missed = f"{name}, {one.what}: {number(one)}, not {one.target}"
                yield f"- Missed: {missed}. {known}".rstrip()


def _figure(told: Mapping[str, Any]) -> Figure:
    target = None if told["target"] is None else Target(**told["target"])
    return Figure(told["what"], told["value"], told["unit"], target, told["note"])


def _margins(found: Mapping[str, Any]) -> Iterator[tuple[str, float, bool]]:
    """Figures with a bound, and how many times better than it they are; noughts have no ratio."""
    for name, scenario in found.items():
        for told in scenario["figures"]:
            one = _figure(told)
            if one.target is None or one.target.relation == "=" or not one.value:
                continue
            better = one.value / one.target.bound
            margin = better if one.target.relation == "≥" else 1 / better
            yield f"{name}: {one.what}", margin, one.passed is True


def _chart(name: str, title: str, draw: Any) -> Iterator[str]:
    yield from (f"**{title}**", "")
    for theme in charts.THEMES:
        path = FOLDER / f"{name}-{theme.name}.svg"
        draw(path, theme)
        # matplotlib leaves blanks at the ends of lines.
        path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
        yield f"```{{image}} {FOLDER.name}/{path.name}"
        yield f":class: only-{theme.name}"
        yield f":alt: {title}"
        yield "```"
        yield ""
