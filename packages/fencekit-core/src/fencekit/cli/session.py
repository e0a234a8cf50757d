"""What every command has in common: its server, its screen, and how its errors end it."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
)

from fencekit.cli.codes import Complaint, ExitCode
from fencekit.cli.connect import Target, connected
from fencekit.cli.screen import Screen
from fencekit.cli.secrets import Secrets
from fencekit.errors import FenceKitError, OutcomeUnknown, StoreError
from fencekit.keys import check_prefix

__all__ = ["Session", "session"]


@dataclass(frozen=True)
class Session:
    """One run of a command.

    Attributes:
        target: where it looks.
        prefix: the beginning of every key.
        screen: where it prints.
        hide: takes secrets out of the text of an error.
    """

    target: Target
    prefix: str
    screen: Screen
    hide: Callable[[str], str]

    @property
    def client(self) -> Any:
        """The client."""
        return self.target.client


@contextmanager
def session(url: str | None, prefix: str, *, json: bool) -> Iterator[Session]:
    """Run a command against the server of a URL; its errors become a message and an exit code.

    Raises:
        typer.Exit: with the exit code of what went wrong.
    """
    screen, secrets = Screen(json=json), Secrets(url or "")
    try:
        with connected(_checked(url, prefix)) as target:
            yield Session(target, prefix, screen, secrets.hide)
    except (typer.Exit, typer.Abort, BrokenPipeError):  # of `| head`, which typer knows
        raise
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except Exception as error:  # noqa: BLE001 - whatever it is, it passes through the sieve
        message, code = _explain(error)
        screen.note(f"fencekit: {secrets.hide(message)}", "red")
        if code is ExitCode.UNEXPECTED or os.environ.get("FENCEKIT_DEBUG"):
            screen.note(secrets.hide("".join(traceback.format_exception(error))), "dim")
        raise typer.Exit(code) from None


def _checked(url: str | None, prefix: str) -> str:
    if not url:
        raise Complaint("say where Redis is: --url, or FENCEKIT_REDIS_URL", ExitCode.USAGE)
    try:
        check_prefix(prefix)
    except ValueError as error:
        raise Complaint(str(error), ExitCode.USAGE) from None
    return url


def _explain(error: Exception) -> tuple[str, ExitCode]:
    """What to tell a person of an error, and the exit code."""
    if isinstance(error, Complaint):
        return str(error), error.code
    if isinstance(error, OutcomeUnknown):
        return f"{error}; it may or may not have been done: look again", ExitCode.STORE
    if isinstance(error, StoreError):
        return str(error), ExitCode.STORE
    if isinstance(error, FenceKitError):
        return str(error), ExitCode.NO
    if isinstance(error, AuthenticationError):
        return f"the server does not accept the name or password ({error})", ExitCode.STORE
    if isinstance(error, NoPermissionError):
        return f"the server's ACL forbids it ({error})", ExitCode.STORE
    if isinstance(error, RedisError | RedisClusterException | OSError):
        return f"the server cannot be asked: {error}", ExitCode.STORE
    return f"unexpected {type(error).__name__}: {error}", ExitCode.UNEXPECTED
