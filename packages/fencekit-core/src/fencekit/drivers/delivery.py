"""How one operation is brought to the server and back: what to do with an error, and when to stop.

One decision for both drivers, without a socket. EVALSHA first, EVAL when the server does not know
the script, the other node when the slot has moved, again after a pause when the server is not
ready, and, when the connection broke before the answer came, a further copy, counted.
"""

from __future__ import annotations

from contextlib import suppress
from random import random
from typing import Any, NoReturn

from fencekit.drivers.client import Address
from fencekit.errors import OutcomeUnknown, StoreError, StoreRefused, StoreUnavailable
from fencekit.protocol.operation import Answer, Operation, Reply
from fencekit.protocol.resp import ErrorReply, pack, pack_script

_pack: Any = None
with suppress(ImportError):  # an optional speed-up; the bytes are the same
    from hiredis import pack_command as _pack

__all__ = ["Delivery", "WireLost"]

# Together: a server that restarts within some seconds is waited for, one that hangs is asked twice.
_BUDGET = 8.0
# A tidying step meets the cut that made it necessary, and must outlive it; no more than that.
_TIDY_BUDGET = 1.0
_MIN_SENDS = 2
_MAX_SENDS = 4
# Redirects followed at once. Nodes that send us to each other agree some moments later.
_PROMPT_REDIRECTS = 4
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5

# Answers that say "not now": nothing was carried out.
_NOT_NOW = frozenset({"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"})
# Answers that a fresh connection may cure: to the new primary, with fresh credentials.
_RECONNECT = frozenset({"READONLY", "NOAUTH"})


class WireLost(Exception):
    """A connection broke, or could not be made.

    Attributes:
        sent: whether the command had left, so that it may have been carried out.
    """

    def __init__(self, cause: BaseException | str, *, sent: bool) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.sent = sent
        self.cause = cause if isinstance(cause, BaseException) else None


class Delivery:
    """One operation under way.

    Attributes:
        operation: what is brought.
        node: where its last answer sent it, as a cluster's node spells it; None: nowhere else.
        at: where the last copy went, in a cluster.
        asking: whether the node must be told that we were sent to it (ASK).
        reconnect: whether the connection just used is of no further use.
        sends: copies that left and may be carried out.
    """

    __slots__ = (
        "_asked_anew",
        "_fails_over",
        "_redirects",
        "_started",
        "_tries",
        "_whole",
        "asking",
        "at",
        "node",
        "operation",
        "reconnect",
        "sends",
        "sent_at",
    )

    def __init__(
        self, operation: Operation[Any], started: float, *, fails_over: bool = False
    ) -> None:
        self.operation = operation
        self._fails_over = fails_over
        self.node: Address | None = None
        self.at: Address | None = None
        self.asking = False
        self.reconnect = False
        self.sends = 0
        self.sent_at = started
        self._started = started
        self._tries = 0
        self._whole = False
        self._redirects = 0
        self._asked_anew = False

    @property
    def replies(self) -> int:
        """How many replies one copy is answered with."""
        return 1 + self.asking + (self.operation.replication is not None)

    @property
    def patience(self) -> float:
        """Seconds that the server was asked to wait before it answers."""
        replication = self.operation.replication
        return 0.0 if replication is None else replication.timeout_ms / 1000

    def packed(self) -> bytes:
        """The bytes of one copy."""
        data = _packed(self.operation, whole=self._whole)
        if self.asking:
            data = pack("ASKING") + data
        replication = self.operation.replication
        if replication is not None:
            # On the same connection, or WAIT answers for somebody else's writes.
            data += pack("WAIT", replication.replicas, replication.timeout_ms)
        return data

    def leaving(self, now: float) -> None:
        """A copy is being sent."""
        self.sends += 1
        self.sent_at = now

    def answered(self, replies: list[Reply], now: float) -> Answer | float:
        """Read the replies to a copy: the answer, or the seconds to pause before another copy.

        Raises:
            StoreRefused: the server answered with an error that another copy would not change.
        """
        reply = replies[1] if self.asking else replies[0]
        if not isinstance(reply, ErrorReply):
            confirmed = replies[-1] if self.operation.replication is not None else 0
            if isinstance(confirmed, ErrorReply):
                raise self._refusal(confirmed)
            return Answer(reply, self.sends, self.sent_at, confirmed)
        self.sends -= 1  # an error that is handled here says that nothing was carried out
        code = reply.code
        if code == "NOSCRIPT" and not self._whole:
            self._whole = True
            return 0.0
        self.asking = False
        if code in {"MOVED", "ASK"}:
            self._redirects += 1
            pause = 0.0 if self._redirects <= _PROMPT_REDIRECTS else self._pause(now)
            if pause is not None:
                self.asking = code == "ASK"
                host, _, port = reply.text.split()[2].rpartition(":")
                self.node = Address(host, int(port))
                return pause
        if code in _NOT_NOW and not self.operation.hasty:
            pause = self._pause(now)
            if pause is not None:
                return pause
        if code in _RECONNECT:
            self.reconnect = True
            if not self._asked_anew:
                self._asked_anew = True
                return 0.0
            if self._fails_over and code == "READONLY" and (pause := self._pause(now)) is not None:
                return pause
        raise self._refusal(reply)

    def lost(self, lost: WireLost, now: float) -> float:
        """The connection broke: the seconds to pause before another copy.

        Raises:
            OutcomeUnknown: a copy left, none was answered, and it is time to stop.
            StoreUnavailable: no copy ever left, and it is time to stop.
        """
        self.node = None
        self.asking = False
        if lost.sent and not self.operation.script.retry_safe:
            self._give_up(lost)
        if self.operation.hasty and (self.sends > 1 or not lost.sent):
            self._give_up(lost)
        pause = self._pause(now)
        if pause is None:
            self._give_up(lost)
        return pause

    def _pause(self, now: float) -> float | None:
        self._tries += 1
        if self.sends >= _MAX_SENDS:
            return None
        late = now - self._started > (_BUDGET if self.operation.patient else _TIDY_BUDGET)
        # A tidying step that one silent server has kept waiting is not sent to it again.
        least = _MIN_SENDS if self.operation.patient or not self.sends else 1
        if late and self._tries >= least:
            return None
        longest: float = min(_FIRST_PAUSE * 2.0**self._tries, _LONGEST_PAUSE)
        return longest * (0.5 + random() / 2)  # noqa: S311 - jitter, not a secret

    def _refusal(self, reply: ErrorReply) -> StoreRefused:
        refused = StoreRefused(reply.code, reply.text)
        refused.sends = self.sends + 1
        return refused

    def _give_up(self, lost: WireLost) -> NoReturn:
        error: StoreError
        if self.sends:
            copies = "copy" if self.sends == 1 else "copies"
            error = OutcomeUnknown(
                f"{self.operation.script.name}: {self.sends} {copies} sent, no answer ({lost})",
                sends=self.sends,
            )
        else:
            error = StoreUnavailable(f"{self.operation.script.name}: not sent ({lost})")
        error.sends = self.sends
        raise error from lost.cause


def _packed(operation: Operation[Any], *, whole: bool) -> bytes:
    script, keys = operation.script, operation.keys
    if _pack is not None and not whole:
        head = ("EVALSHA", script.sha, f"{len(keys)}") if script.sha else (script.name,)
        words: list[Any] = [*head, *keys]
        # No ints: of those hiredis asks for the repr, where a signal's handler may raise (Ctrl-C, a
        # soft time limit), and it goes on with what was never made: the interpreter crashed.
        for arg in operation.args:
            words.append(f"{arg}" if arg.__class__ is int else arg)  # noqa: PERF401 - half the time
        try:
            command: bytes = _pack(tuple(words))
        except TypeError:  # a lone surrogate, which our own packing names
            return pack_script(operation)
        return command
    return pack_script(operation, whole=whole)
