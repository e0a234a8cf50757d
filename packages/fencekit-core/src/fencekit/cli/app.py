"""The commands, their arguments and what they print. What they do is in the modules beside."""

from __future__ import annotations

# Parameters are keyword-only: typer passes them so, and an order of options means nothing.
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

import fencekit
from fencekit.cli import doctor as doctors
from fencekit.cli import listed
from fencekit.cli.codes import Complaint, ExitCode
from fencekit.cli.screen import facts_table, plain, seconds
from fencekit.cli.session import Session, session
from fencekit.cli.shown import (
    checked,
    lock_of,
    look_at_lock,
    look_at_queue,
    look_at_record,
    readable,
)
from fencekit.cli.watched import watch as watch_lock
from fencekit.idempotency import IdempotencyGuard
from fencekit.keys import DEFAULT_PREFIX
from fencekit.listing import KINDS, Kind

__all__ = ["app", "run"]

app = typer.Typer(
    name="fencekit",
    help="See and mend what fencekit keeps in Redis: locks, idempotency records, FIFO queues.",
    no_args_is_help=True,
    # Variables in a traceback would show the URL. Unexpected errors are told by `session`.
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
idem = typer.Typer(help="Idempotency records.", no_args_is_help=True)
fifo = typer.Typer(help="FIFO queues (needs fencekit-fifo).", no_args_is_help=True)
app.add_typer(idem, name="idem")
app.add_typer(fifo, name="fifo")

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        envvar="FENCEKIT_REDIS_URL",
        help="Where Redis is; better kept in the environment, for a command line can be read "
        "by every user of the host.",
        show_default=False,
        metavar="URL",
    ),
]
Prefix = Annotated[
    str, typer.Option("--prefix", envvar="FENCEKIT_PREFIX", help="The beginning of every key.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Name = Annotated[str, typer.Argument(help="The name of the lock.", show_default=False)]
Key = Annotated[str, typer.Argument(help="The idempotency key.", show_default=False)]


@app.callback(invoke_without_command=True)
def main(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """See and mend what fencekit keeps in Redis."""
    if version:
        typer.echo(f"fencekit {fencekit.__version__}")
        raise typer.Exit


@app.command()
def doctor(
    *,
    where: Annotated[
        str | None, typer.Argument(help="Where Redis is, as --url.", metavar="URL")
    ] = None,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    look_only: Annotated[
        bool,
        typer.Option("--look-only", help="Write nothing: leave the self-test of a lock out."),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    json: Json = False,
) -> None:
    """Look for what voids the guarantees: what it means, and what to do about it.

    Ends with 1 when it found an error. The self-test takes and gives back a lock and a job of its
    own, whose keys are gone after a minute.
    """
    with session(where or url, prefix, json=json) as run:
        findings = doctors.examine(run, writes=not look_only)
        run.screen.show(doctors.report(run, findings), doctors.view(run, findings))
        errors, warnings = doctors.verdict(findings)
        if errors or (strict and warnings):
            raise typer.Exit(ExitCode.NO)


@app.command("ls")
def ls(
    *,
    contains: Annotated[
        str, typer.Argument(help="A part of the name, literally.", metavar="[TEXT]")
    ] = "",
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", "-k", help="Only lock, record or queue; may be repeated."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 1000,
    json: Json = False,
) -> None:
    """List locks that are held, idempotency records and FIFO queues.

    Looks through all keys of the server with SCAN, which never stops it.
    """
    with session(url, prefix, json=json) as run:
        for word in kind or ():
            if word not in listed.WORDS:
                raise Complaint(f"--kind is lock, record or queue, not {word!r}", ExitCode.USAGE)
        kinds: Sequence[Kind] = [listed.WORDS[word] for word in kind] if kind else KINDS
        rows, more = listed.collect(run, kinds, contains=contains, limit=limit)
        run.screen.show(rows, listed.view(run, rows))
        if more:
            run.screen.note(f"there are more than {limit}: --limit, or a part of the name", "dim")


@app.command()
def show(
    *, name: Name, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, json: Json = False
) -> None:
    """Show who holds a lock, and what its fence record says."""
    with session(url, prefix, json=json) as run:
        _show(run, look_at_lock(run, checked(name)), name)


@app.command()
def watch(
    *,
    name: Name,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.05, help="Seconds between two looks.")
    ] = 1.0,
    times: Annotated[
        int | None, typer.Option("--times", "-n", min=1, help="End after so many looks.")
    ] = None,
    json: Json = False,
) -> None:
    """Watch a lock change hands, until Ctrl-C.

    On a terminal in place; elsewhere, and with --json, a line for each change.
    """
    with session(url, prefix, json=json) as run:
        watch_lock(run, checked(name), interval=interval, times=times)


@app.command()
def release(
    *,
    name: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Take the lock from its holder; there is no other way.")
    ] = False,
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    json: Json = False,
) -> None:
    """Force a lock open, and shut its holder out.

    The holder is not stopped: it goes on working until it looks. But its token is refused from now
    on, by every gate, so what it writes through one is lost.
    """
    with session(url, prefix, json=json) as run:
        if not force:
            raise Complaint(
                "only a holder can give its lock back; --force takes it away", ExitCode.USAGE
            )
        lock = lock_of(run)
        info = lock.inspect(checked(name))
        if info is None or info.owner_id is None:
            _done(run, {"name": name, "released": False}, "it is free already", ok=False)
            return
        if info.token is None:
            raise Complaint(
                f"{lock.lock_key(name)} holds no lock of fencekit's; nothing was done", ExitCode.NO
            )
        run.screen.err.print(
            Text.assemble(
                *(plain(name, "bold"), " is held by ", plain(info.owner_id, "bold")),
                f" with token {int(info.token)}, for {seconds(info.ttl_ms)} more unless renewed.",
                "\nForcing it open lets the next one in at once. The holder is not stopped, but its"
                " token is refused from now on, and its release will say that the lock was lost.",
            )
        )
        _confirm(run, "Force it open?", yes=yes)
        freed = lock.force_release(name, token=info.token)
        data = {
            "name": name,
            "released": freed,
            "holder": info.owner_id,
            "token": int(info.token),
            "fence": _fence(lock, name),
        }
        said = f"forced open; token {int(info.token)} and all below {data['fence']} are refused"
        _done(run, data, said if freed else "it has changed hands; nothing was done", ok=freed)


@idem.command("show")
def idem_show(
    *, key: Key, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, json: Json = False
) -> None:
    """Show what became of a job; never its result."""
    with session(url, prefix, json=json) as run:
        _show(run, look_at_record(run, checked(key)), key)


@idem.command("reset")
def idem_reset(
    *,
    key: Key,
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    json: Json = False,
) -> None:
    """Forget a job, so that it runs again when it comes again."""
    with session(url, prefix, json=json) as run:
        facts = look_at_record(run, checked(key))
        if facts is None:
            _show(run, None, key)
            return
        means = {
            "done": "It is done. Its result is forgotten, and its next delivery does it again.",
            "running": f"It is being run by {facts['owner']}, which is not stopped, but shut out: "
            "its token is refused, and its end is not recorded.",
        }.get(facts["state"], "Its attempts and errors are forgotten; it begins anew.")
        run.screen.err.print(Text.assemble(plain(key, "bold"), f" ({facts['state']})\n{means}"))
        _confirm(run, "Forget it?", yes=yes)
        forgotten = IdempotencyGuard(run.client, prefix=run.prefix).clear(key)
        data = {"key": key, "reset": forgotten, "was": facts["state"]}
        _done(run, data, "forgotten" if forgotten else "it has gone already", ok=forgotten)


@fifo.command("show")
def fifo_show(
    *, name: Name, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, json: Json = False
) -> None:
    """Show who holds a FIFO lock, and who waits for it."""
    with session(url, prefix, json=json) as run:
        _show(run, look_at_queue(run, checked(name)), name)


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        app(args=arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return ExitCode.OK


def _show(run: Session, facts: dict[str, Any] | None, name: str) -> None:
    if facts is None:
        if run.screen.json:
            run.screen.print_json(None)
        raise Complaint(f"nothing is known of {name!r}", ExitCode.NO)
    run.screen.show(facts, facts_table(readable(facts)))


def _done(run: Session, data: dict[str, Any], said: str, *, ok: bool) -> None:
    run.screen.show(data, plain(said))
    if not ok:
        raise typer.Exit(ExitCode.NO)


def _confirm(run: Session, question: str, *, yes: bool) -> None:
    """Ask on stderr, for stdout may be read by a program.

    Raises:
        Complaint: the answer was no, or nobody was there to answer.
    """
    if yes:
        return
    run.screen.err.print(Text(f"{question} [y/N] "), end="")
    answer = sys.stdin.readline()
    if not answer:
        run.screen.note("")
    if answer.strip().lower() not in {"y", "yes"}:
        raise Complaint("nothing was done", ExitCode.NO)


def _fence(lock: Any, name: str) -> int | None:
    info = lock.inspect(name)
    return None if info is None else info.last
