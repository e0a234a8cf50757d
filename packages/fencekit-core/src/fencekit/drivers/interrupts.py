"""What a signal's handler raises (a soft time limit, an alarm) while a connection may fail anyway.

A handler runs between any two instructions, so its exception comes out of whatever was under way,
among the errors that this may raise by itself. It belongs to whoever set the limit, and must never
be taken for a server that cannot be reached. Its class says nothing: Celery's limit is an Exception
like any other, and many an alarm raises TimeoutError, which the libraries make an error of their
own of. But its traceback leads through the handler.
"""

from __future__ import annotations

import signal
import socket
from contextlib import suppress
from functools import partial
from traceback import walk_tb
from types import CodeType

__all__ = ["close_half_made", "interrupt_behind", "is_interrupt"]

# Whose frames may hold a socket that nobody else knows of yet.
_CONNECTING = frozenset({"redis", "valkey", "socket", "ssl"})


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception was raised by the handler of a signal, not by what it interrupted."""
    handlers = _handlers()
    return any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__))


def interrupt_behind(
    error: BaseException, handled: BaseException | None = None
) -> BaseException | None:
    """What a signal's handler raised: the error itself, or what a library made it of, or None.

    Args:
        error: what came out of a call.
        handled: what was being handled when the call began; that, and what led to it, is over.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and one is not handled and id(one) not in seen:
        if is_interrupt(one):
            return one
        seen.add(id(one))
        one = one.__cause__ or one.__context__
    return None


def close_half_made(error: BaseException) -> None:
    """Close the socket that a library had in hand when it was interrupted.

    It keeps it in a local variable until it is connected, and so would the traceback, for as long
    as somebody keeps the exception.
    """
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").partition(".")[0] in _CONNECTING:
            for value in list(frame.f_locals.values()):
                if isinstance(value, socket.socket):
                    with suppress(OSError):
                        value.close()


def _handlers() -> set[CodeType]:
    """The code of the handlers that are installed, as far as it is Python."""
    codes: set[CodeType] = set()
    for number in signal.valid_signals():
        handler: object = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        for one in (handler, getattr(type(handler), "__call__", None)):  # noqa: B004 - its code is wanted
            code = getattr(one, "__code__", None)
            if isinstance(code, CodeType):
                codes.add(code)
                break
    return codes
