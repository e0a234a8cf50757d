"""The world outside: a bank and a mail server, which know a request again by its idempotency key.

Kept in a Redis of its own, so that nothing here depends on what the workers' Redis forgets.
"""

from __future__ import annotations

from typing import Any

import redis

__all__ = ["Shop"]

# In one step, as a bank books: who asks may be killed at any moment.
_ONCE = """
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 1 then
  redis.call('RPUSH', KEYS[2], ARGV[3])
end
"""


class Shop:
    """What the bank and the mail server have done."""

    def __init__(self, url: str) -> None:
        self.client: Any = redis.Redis.from_url(url)

    def charge(self, order: str, amount: int, *, request: str) -> str:
        """Charge a card; the same request again is answered as before."""
        return self._once("charge", order, request, f"{order}:{amount}")

    def send(self, order: str, *, request: str) -> str:
        """Send an e-mail; the same request again sends nothing."""
        return self._once("mail", order, request, f"mail to {order}")

    def close(self, order: str, results: list[str]) -> None:
        """Note that an order is closed, and with what."""
        self.client.rpush("closed", f"{order} {'|'.join(map(str, results))}")

    def _once(self, kind: str, order: str, request: str, answer: str) -> str:
        self.client.incr(f"{kind}s:asked")
        self.client.eval(_ONCE, 2, f"{kind}s:requests", f"{kind}s", request, answer, order)
        return answer
