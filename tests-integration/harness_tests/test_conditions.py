"""A server refuses as told to, on every kind, and takes writes again afterwards."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

from harness.conditions import cannot_save, out_of_memory, paused_clients, read_only
from harness.wire import ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.servers import Server


@pytest.mark.parametrize(
    ("condition", "error"),
    [(out_of_memory, "OOM"), (read_only, "READONLY"), (cannot_save, "MISCONF")],
)
def test_refuses_writes_but_not_reads(
    any_server: Server,
    condition: Callable[[Server], AbstractContextManager[None]],
    error: str,
) -> None:
    any_server.call("SET", "key", "1")
    with condition(any_server):
        with pytest.raises(ReplyError, match=error):
            any_server.call("SET", "key", "2")
        with pytest.raises(ReplyError, match=error):
            any_server.call("EVAL", "return redis.call('SET', KEYS[1], 3)", 1, "key")
        assert any_server.call("GET", "key") == b"1"
    any_server.call("SET", "key", "4")


def test_clients_can_be_paused(server: Server) -> None:
    with paused_clients(server, "WRITE"):
        assert server.call("GET", "key") is None
        with pytest.raises(TimeoutError):
            server.call("SET", "key", "1", timeout=0.05)
    server.call("SET", "key", "1")
