"""A trigger's refusal, made the error that it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from django.db import DatabaseError
from fencekit.django.errors import UnfencedWrite
from fencekit.errors import FencedOutError
from fencekit.hooks import tell_rejected

__all__ = ["SQLSTATE", "translate_on", "translated"]

# A class of our own: those that begin with 0 to 4 or A to H are the standard's.
SQLSTATE: Final = "ZF001"


def translate_on(connection: Any) -> None:
    """Have a connection raise a trigger's refusal as `FencedOutError`."""
    wrappers = connection.execute_wrappers
    if connection.vendor == "postgresql" and translated not in wrappers:
        # In front: `connection.execute_wrapper(…)`, which may be open now, removes the last one.
        wrappers.insert(0, translated)


def translated(
    execute: Callable[..., Any],
    sql: str,
    params: Any,
    many: bool,  # noqa: FBT001 - Django hands it over by position
    context: Any,
) -> Any:
    """Execute a statement; as an execute wrapper of Django's.

    Raises:
        UnfencedWrite: a strict trigger was shown no token.
        FencedOutError: a trigger was shown a token that is lower than the row's.
    """
    try:
        return execute(sql, params, many, context)
    except DatabaseError as error:
        refusal = _refusal(error.__cause__)
        if refusal is None:
            raise
        raise refusal from error


def _refusal(cause: Any) -> FencedOutError | None:
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if state != SQLSTATE:
        return None
    facts = json.loads(cause.diag.message_detail)
    if facts["shown"] is None:
        return UnfencedWrite(facts["table"], current=facts["stored"])
    tell_rejected(facts["table"], facts["shown"], facts["stored"])
    return FencedOutError(facts["table"], token=facts["shown"], current=facts["stored"])
