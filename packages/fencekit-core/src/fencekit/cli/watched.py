"""`fencekit watch`: a lock, looked at again and again, in place."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final

from redis.exceptions import RedisError
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fencekit.cli.screen import facts_table, plain, seconds
from fencekit.cli.session import Session
from fencekit.cli.shown import look_at_lock, readable
from fencekit.errors import StoreError

__all__ = ["watch"]

_CHANGES_SHOWN: Final = 8
_BAR_WIDTH: Final = 30


@dataclass
class _Seen:
    """What was seen so far.

    Attributes:
        name: the lock.
        now: what was seen last; None when nothing is known of the lock.
        trouble: why the server could not be asked the last time.
        longest_ms: the longest lease of this holder that was seen, for the bar.
        changes: the last changes of hands, with the time of day.
    """

    name: str
    now: dict[str, Any] | None = None
    trouble: str | None = None
    longest_ms: int = 1
    changes: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=_CHANGES_SHOWN))

    def look(self, session: Session) -> str | None:
        """Look once more; returns what has changed, None when nothing has."""
        try:
            found = look_at_lock(session, self.name)
        except (StoreError, RedisError) as error:
            changed = self.trouble is None
            self.trouble = session.hide(str(error))
            return self._note(f"cannot be asked: {self.trouble}") if changed else None
        back, self.trouble = self.trouble is not None, None
        before, self.now = self.now, found
        was, token = (before or {}).get("token"), (found or {}).get("token")
        if token != was:
            self.longest_ms = 1
        self.longest_ms = max(self.longest_ms, (found or {}).get("lease_left_ms") or 1)
        if found is not None and found["held"] and token != was:
            return self._note(f"held by {found['owner']} with token {token}")
        if was is not None and token is None:
            return self._note("free")
        return self._note("answers again") if back else None

    def _note(self, text: str) -> str:
        clock = datetime.now(timezone.utc).astimezone().strftime("%H:%M:%S")
        self.changes.append((clock, text))
        return text


def watch(session: Session, name: str, *, interval: float, times: int | None) -> None:
    """Look every ``interval`` seconds, ``times`` times or until Ctrl-C.

    On a terminal the view is updated in place. Elsewhere, and as JSON, each look that finds a
    change prints a line.
    """
    seen = _Seen(name)
    screen = session.screen
    with suppress(KeyboardInterrupt):  # that is how a watch ends
        if screen.json or not screen.out.is_terminal:
            _print_changes(session, seen, interval, times)
            return
        with Live(console=screen.out, auto_refresh=False) as live:
            for _ in _looks(session, seen, interval, times):
                live.update(_view(seen), refresh=True)


def _print_changes(session: Session, seen: _Seen, interval: float, times: int | None) -> None:
    screen = session.screen
    first = True
    for changed in _looks(session, seen, interval, times):
        if screen.json and (first or changed):
            screen.print_json({"change": changed, "lock": seen.now}, indent=None)
        elif first or changed:
            screen.out.print(plain(" ".join(seen.changes[-1]) if changed else "free"))
        first = False


def _looks(
    session: Session, seen: _Seen, interval: float, times: int | None
) -> Iterator[str | None]:
    left = times
    while left is None or left > 0:
        started = time.monotonic()
        yield seen.look(session)
        left = None if left is None else left - 1
        if left != 0:
            time.sleep(max(interval - (time.monotonic() - started), 0.0))


def _view(seen: _Seen) -> RenderableType:
    parts: list[RenderableType] = []
    if seen.now is None:
        parts.append(plain(f"{seen.name}: nothing is known of it"))
    else:
        said = readable(seen.now)
        held, left = seen.now["held"], int(seen.now["lease_left_ms"])
        said.pop("lease left")
        said["held"] = Text("yes", style="green") if held else Text("no", style="dim")
        said["lapsed tokens"] = len(seen.now["lapsed_tokens"]) or "none"
        parts.append(facts_table(said))
        lease = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=seen.longest_ms, completed=left, width=_BAR_WIDTH)
        lease.add_row(Text("lease left", style="bold"), bar, seconds(left))
        parts.append(lease)
    if seen.trouble is not None:
        parts.append(plain(f"the server cannot be asked: {seen.trouble}", "red"))
    parts.append(Text())
    parts += [plain(f"{clock}  {text}", "dim") for clock, text in seen.changes]
    parts.append(Text("Ctrl-C ends this", style="dim italic"))
    return Group(*parts)
