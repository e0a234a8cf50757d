"""The tasks of the shop. `place` is what a web view would call."""

# Celery has no types, and neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import os
import time
from functools import lru_cache
from typing import Any, Final

from celery import Celery, chord

from fencekit.celery import current_claim, idempotent_task
from orders.shop import Shop

URL: Final = os.environ.get("ORDERS_REDIS_URL", "redis://localhost:6379/0")
SHOP_URL: Final = os.environ.get("ORDERS_SHOP_URL", URL)
# How long the bank takes, seconds.
SLOW: Final = float(os.environ.get("ORDERS_SLOW", "0.1"))

app: Any = Celery("orders", broker=URL, backend=URL)
app.conf.update(
    fencekit_redis_url=URL,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": float(os.environ.get("ORDERS_VISIBILITY", "300")),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "unacked_restore_limit": 1000,
    },
)


@lru_cache(maxsize=1)
def shop() -> Shop:
    """The bank and the mail server."""
    return Shop(SHOP_URL)


@app.task(shared=False, name="charge")
@idempotent_task(key="order", lease="2s", ttl="1h")
def charge(order: str, amount: int) -> str:
    """Charge the order. The bank is told the key, for a worker may die before it hears."""
    time.sleep(SLOW)
    return shop().charge(order, amount, request=current_claim().key)


@app.task(shared=False, name="confirm")
@idempotent_task(key="order", lease="2s", ttl="1h")
def confirm(order: str) -> str:
    """Send the e-mail."""
    time.sleep(SLOW / 2)
    return shop().send(order, request=current_claim().key)


@app.task(shared=False, name="close")
@idempotent_task(key="order", lease="2s", ttl="1h")
def close(results: list[str], order: str) -> str:
    """Close the order, with the answers of the bank and of the mail server."""
    shop().close(order, results)
    return order


def place(order: str, amount: int) -> Any:
    """Place an order: charge and confirm it at the same time, then close it."""
    return chord([charge.s(order, amount), confirm.s(order)])(close.s(order))
