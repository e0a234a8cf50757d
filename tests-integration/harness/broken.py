"""The rules of the scripts, each with what the script looks like without it.

A test that is marked `@bites(RULE, …)` is run as it stands, and then once more for each of its
rules, on the scripts without that rule: it must fail. So no rule stands here that no test needs,
and no test passes that could not fail.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast
from unittest import mock

import pytest

from fencekit.protocol import fence, lock
from harness.claims import without

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.lab import Lab

__all__ = ["Rule", "bites"]

_Test = TypeVar("_Test", bound="Callable[..., None]")

# How a test fails: an assertion, an error that did not come, a number that is none. An error of Lua
# is not among them: it would only show that the script was broken in another way.
_FAILED = (AssertionError, pytest.fail.Exception, ValueError)

_GATE = ("SET", "DELETE", "HSET", "CHECK")


@dataclass(frozen=True)
class Rule:
    """One rule of one or several scripts.

    Attributes:
        scripts: the constants of protocol/lock.py or protocol/fence.py that load them.
        text: the Lua that is the rule.
        instead: what stands there without it.
    """

    scripts: tuple[str, ...]
    text: str
    instead: str = ""

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Run the block without the rule."""
        with ExitStack() as stack:
            for name in self.scripts:
                module = lock if hasattr(lock, name) else fence
                broken = without(getattr(module, name), self.text, self.instead)
                stack.enter_context(mock.patch.object(module, name, broken))
            yield


def bites(*rules: Rule) -> Callable[[_Test], _Test]:
    """Run a test as it stands, and show that it fails without each of these rules."""

    def decorate(test: _Test) -> _Test:
        @functools.wraps(test)
        def both(lab: Lab, **params: Any) -> None:
            test(lab, **params)
            for rule in rules:
                with rule.removed(), pytest.raises(_FAILED):
                    test(lab.fresh(), **params)

        return cast("_Test", both)

    return decorate


# -- tokens -------------------------------------------------------------------------------------

_NEXT = "math.max(last + 1, now[1] * 1000000 + now[2])"

# A bare counter begins again when its record is lost.
RISES_WITH_THE_CLOCK = Rule(("ACQUIRE",), _NEXT, "last + 1")
# The clock alone goes back when the clock is set back.
RISES_WITH_THE_RECORD = Rule(("ACQUIRE",), _NEXT, "now[1] * 1000000 + now[2]")
# Lua's own formatting writes 1.796e+15.
ALL_DIGITS = Rule(("ACQUIRE",), "return string.format('%.0f', number)", "return tostring(number)")
ADVANCE_ONLY_LIFTS = Rule(("ADVANCE",), "elseif last < at_least then", "else")
# A release does not prolong the record's life, so it counts from the end of the lease.
GRANTED_BEYOND_THE_LEASE = Rule(("ACQUIRE",), "retention_ms + ttl_ms", "retention_ms")
RENEWED_BEYOND_THE_LEASE = Rule(("RENEW",), "retention_ms + left", "retention_ms")

# -- verdicts -----------------------------------------------------------------------------------

# What a grant finds open was never given back.
LAPSED_IS_NOTED = Rule(("ACQUIRE",), " and open == 0 then", " then")
LAPSED_IS_BOUNDED = Rule(("ACQUIRE",), "while kept > LAPSED_KEPT do", "while false do")
# What is forgotten of the list is not known any more.
TRIMMING_RAISES_THE_FLOOR = Rule(("ACQUIRE",), "floor = math.max(floor, tonumber(oldest))")
# A record that a grant creates knows nothing of the grants before it.
GRANT_SETS_THE_FLOOR = Rule(("ACQUIRE",), "return lapsed, token - 1", "return lapsed, 0")
# Nor does the first grant on a record that something else created.
FIRST_GRANT_SETS_THE_FLOOR = Rule(
    ("ACQUIRE",), "if not last or floor >= last then", "if not last then"
)
QUICK_GRANT_IS_ABOVE_THE_FLOOR = Rule(("ACQUIRE",), "floor < last and open == 0", "open == 0")
LOCK_PROVES_ONLY_ITS_TOKEN = Rule(
    ("RENEW", "RELEASE"), "last and last >= token and math.min", "last and math.min"
)
# A release that restored its record finds itself there when it is repeated.
LOCK_PROVES_ITS_TOKEN = Rule(
    ("RENEW", "RELEASE"),
    "last and last >= token and math.min(floor, token - 1) or token - 1",
    "last and floor or token",
)
ADVANCE_SETS_THE_FLOOR = Rule(
    ("ADVANCE",), "'lapsed', '', 'floor', digits(at_least)", "'lapsed', '', 'floor', '0'"
)
ADVANCE_LIFTS_THE_FLOOR = Rule(("ADVANCE",), "floor >= last and at_least or floor", "floor")
RELEASE_LOOKS_AT_THE_RECORD = Rule(
    ("RELEASE",), "return {was_released(", "return {false and was_released("
)
# What makes a release the usual one, of which nothing but `open` is noted.
QUICK_RELEASE_HAS_ONE_COPY = Rule(("RELEASE",), "if not bury and known", "if known")
QUICK_RELEASE_IS_OF_THE_LAST = Rule(("RELEASE",), "known[1] == token and ")
QUICK_RELEASE_IS_ABOVE_THE_FLOOR = Rule(
    ("RELEASE",), " and tonumber(known[2] or 0) < tonumber(token) then", " then"
)
RELEASE_RESTORES = Rule(("RELEASE",), "pcall(restore_fence, fence, token, '0', retention_ms)")
RENEW_RESTORES = Rule(("RENEW",), "restore_fence(fence, token, number, retention_ms + left)")
FLOOR_IS_UNKNOWN = Rule(("RELEASE",), "floor < token and ")
UNMINTED_IS_UNKNOWN = Rule(("RELEASE",), "token <= last and ")
OPEN_IS_LOST = Rule(("RELEASE",), " and open ~= token")
LAPSED_IS_LOST = Rule(("RELEASE",), "and not has_lapsed(lapsed, token)")

# -- whose lock it is ---------------------------------------------------------------------------

ACQUIRE_KNOWS_ITS_ATTEMPT = Rule(
    ("ACQUIRE",), "if holder == owner and whose == attempt then", "if false then"
)
ACQUIRE_TELLS_ATTEMPTS_APART = Rule(
    ("ACQUIRE",), "if holder == owner and whose == attempt then", "if holder == owner then"
)
ACQUIRE_NEVER_SHORTENS = Rule(("ACQUIRE",), "math.max(ttl_ms, redis.call('PTTL', lock))", "ttl_ms")
ACQUIRE_SETS_THE_LEASE_ANEW = Rule(
    ("ACQUIRE",), "redis.call('PEXPIRE', lock, math.max(ttl_ms, redis.call('PTTL', lock)))"
)
RENEW_IS_CHECKED = Rule(
    ("RENEW",),
    "if redis.call('GET', lock) ~= owner .. ':' .. attempt .. ':' .. number then",
    "if not redis.call('GET', lock) then",
)
RENEW_NEVER_SHORTENS = Rule(
    ("RENEW",), "math.max(ttl_ms, redis.call('PTTL', lock))\nredis", "ttl_ms\nredis"
)
RELEASE_IS_CHECKED = Rule(
    ("RELEASE",),
    "redis.call('GET', lock) == owner .. ':' .. attempt .. ':' .. token",
    "redis.call('GET', lock)",
)
WITHDRAW_IS_CHECKED = Rule(
    ("WITHDRAW",), "string.sub(held, 1, #stem) == stem", "string.sub(held, 1, #owner) == owner"
)
FORCE_IS_CHECKED = Rule(
    ("FORCE",),
    "if not held or tonumber(string.match(held, ':(%d+)$')) ~= token then",
    "if not held then",
)
FORCE_KNOWS_ITS_FIRST_COPY = Rule(
    ("FORCE",),
    "return {last and last > token and (open == token or has_lapsed(lapsed, token)) and 1 or 0}",
    "return {0}",
)
FORCE_ONLY_CLAIMS_ITS_OWN = Rule(("FORCE",), "last and last > token and", "last and")
FORCE_LEAVES_IT_OPEN = Rule(("FORCE",), "'open', digits(token)", "'open', '0'")
FORCE_SHUTS_OUT = Rule(
    ("FORCE",),
    "digits(next_token(math.max(last or 0, token)))",
    "digits(math.max(last or 0, token))",
)

# -- late copies --------------------------------------------------------------------------------

GONE_IS_REFUSED = Rule(
    ("ACQUIRE",), "if redis.call('ZSCORE', gone, attempt) then\n  return {2}\nend\n"
)
WITHDRAW_BURIES = Rule(
    ("WITHDRAW",), "  bury_attempt(gone, attempt)\n  return holds", "  return holds"
)
RELEASE_BURIES = Rule(("RELEASE",), "  if bury then\n    bury_attempt(gone, attempt)\n  end\n")
LATE_RELEASE_BURIES = Rule(
    ("RELEASE",),
    "\n  withdraw_attempt(lock, fence, gone, owner, attempt, retention_ms, channel)",
)
# Of a copy that was granted the lock anew, after the lease and before the release.
LATE_RELEASE_WITHDRAWS = Rule(
    ("RELEASE",),
    "\n  withdraw_attempt(lock, fence, gone, owner, attempt, retention_ms, channel)",
    "\n  bury_attempt(gone, attempt)",
)
GONE_ENDS = Rule(
    ("WITHDRAW",),
    "redis.call('ZREMRANGEBYSCORE', gone, '-inf', string.format('%.0f', now_ms - GONE_MS))",
)

# -- the gate -----------------------------------------------------------------------------------

STALE_IS_REFUSED = Rule(_GATE, "token < highest or ")
TOKEN_OF_THE_LOCK_COUNTS = Rule(
    _GATE, "local highest = math.max(last or 0, held or 0)", "local highest = last or 0"
)
FAILS_CLOSED = Rule(_GATE, " or (not last and token ~= held and mode ~= 'remote')")
REMOTE_TAKES_THE_FIRST = Rule(_GATE, "and mode ~= 'remote')", ")")
REMOTE_LOOKS_AT_NO_LOCK = Rule(_GATE, "if mode == 'lock' then", "if true then")
WRITES_ARE_NOTED = Rule(
    ("SET", "DELETE", "HSET"), "\nnote_token(record, lock, mode, token, retention_ms)"
)
ADVANCE_IS_NOTED = Rule(("CHECK",), "\n  note_token(record, lock, mode, token, retention_ms)")
CHECK_IS_NOT_NOTED = Rule(("CHECK",), "if advance then", "if true then")
LOST_RECORD_COMES_BACK_WHOLE = Rule(
    ("SET",), "if last and floor < last and not proven then", "if last then"
)
CURRENT_COUNTS_THE_LOCK = Rule(
    ("CURRENT",), "math.max(last or 0, held or 0)\nreturn", "last or 0\nreturn"
)
