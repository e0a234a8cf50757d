"""`fencekit doctor`: ask every server, judge, try, and say what to do."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any, Final

import redis
from redis.exceptions import RedisError
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import fencekit
from fencekit.cli.checks import Finding, Level, judge
from fencekit.cli.facts import ask
from fencekit.cli.leftovers import installation
from fencekit.cli.screen import plain
from fencekit.cli.self_test import try_everything
from fencekit.cli.session import Session

__all__ = ["examine", "report", "verdict", "view"]

_STYLES: Final[dict[Level, str]] = {
    "ok": "green",
    "warning": "yellow",
    "error": "bold red",
    "unknown": "cyan",
}


def examine(
    session: Session, *, writes: bool, now: Callable[[], float] = time.time
) -> list[Finding]:
    """Everything there is to say.

    Args:
        session: where to look.
        writes: whether to try a lock, a gate and a guard.
        now: this host's clock, seconds.

    Raises:
        redis.RedisError: the server cannot be reached.
    """
    target = session.target
    nodes = target.nodes()
    found = list(installation())
    with session.screen.progress() as progress:
        task = progress.add_task("asking", total=len(nodes) + writes)
        for name, client in nodes:
            found += _examined(session, name, client, now)
            progress.advance(task)
        if writes:
            tried = try_everything(target.client, session.prefix)
            found += (replace(finding, says=session.hide(finding.says)) for finding in tried)
            progress.advance(task)
    return list(_merged(found))


def _examined(
    session: Session, name: str, client: Any, now: Callable[[], float]
) -> Iterable[Finding]:
    """What there is to say of one server; of a cluster that one does not answer is a finding."""
    is_cluster = session.target.topology == "cluster"
    try:
        return judge(ask(name, client, session.prefix, is_cluster=is_cluster, now=now))
    except RedisError as error:
        if not is_cluster:
            raise
        return [
            Finding(
                "cluster",
                "error",
                f"cannot be asked: {session.hide(str(error))}",
                "names in its slots cannot be locked until it, or a replica in its place, answers",
                "bring it back, or let a replica take over",
                (name,),
            )
        ]


def verdict(findings: Iterable[Finding]) -> tuple[int, int]:
    """How many errors and how many warnings."""
    levels = [finding.level for finding in findings]
    return levels.count("error"), levels.count("warning")


def report(session: Session, findings: list[Finding]) -> dict[str, Any]:
    """The findings for a program."""
    errors, warnings = verdict(findings)
    return {
        "target": session.target.shown,
        "topology": session.target.topology,
        "prefix": session.prefix,
        "errors": errors,
        "warnings": warnings,
        "findings": [asdict(finding) for finding in findings],
    }


def view(session: Session, findings: list[Finding]) -> RenderableType:
    """The findings for people: what is wrong last, where the eye is."""
    about = (
        f"fencekit {fencekit.__version__}, redis-py {redis.__version__}, "
        f"Python {platform.python_version()}"
    )
    nodes = {node for finding in findings for node in finding.nodes}
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    order: dict[Level, int] = {"ok": 0, "unknown": 1, "warning": 2, "error": 3}
    for finding in sorted(findings, key=lambda one: order[one.level]):
        style = _STYLES[finding.level]
        says = plain(finding.says)
        if len(nodes) > 1 and finding.nodes:
            where = "all nodes" if set(finding.nodes) == nodes else ", ".join(finding.nodes)
            says.append_text(plain(f"  [{where}]", "dim"))
        table.add_row(Text(finding.level, style=style), plain(finding.check, "bold"), says)
        for title, text in (("means", finding.means), ("cure", finding.cure)):
            if text:
                table.add_row("", Text(title, style="dim", justify="right"), plain(text))
    errors, warnings = verdict(findings)
    if errors or warnings:
        parts = [f"{n} {w}{'s' * (n != 1)}" for n, w in ((errors, "error"), (warnings, "warning"))]
        end = Text(", ".join(p for p in parts if p[0] != "0"), style="red" if errors else "yellow")
    else:
        end = Text("nothing voids the guarantees", style="green")
    target = Text.assemble(plain(session.target.shown, "bold"), f"  ({session.target.topology})")
    return Group(Text(about, style="dim"), target, "", table, "", end)


def _merged(findings: Iterable[Finding]) -> Iterable[Finding]:
    """One finding for what is the same on several nodes."""
    merged: dict[Finding, tuple[str, ...]] = {}
    for finding in findings:
        bare = replace(finding, nodes=())
        merged[bare] = (*merged.get(bare, ()), *finding.nodes)
    return (replace(finding, nodes=nodes) for finding, nodes in merged.items())
