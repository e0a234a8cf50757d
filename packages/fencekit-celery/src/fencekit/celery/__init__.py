"""Celery tasks that take effect once, however often they are delivered.

::

    @shared_task(bind=True, acks_late=True, reject_on_worker_lost=True)
    @idempotent_task(key="order_id", ttl="24h", lease="30s", max_attempts=5)
    def charge(self, order_id, amount):
        return gateway.charge(order_id, amount, fence=current_claim().fence)
"""

from fencekit.celery import lint as _lint  # noqa: F401 - checks each worker at its start
from fencekit.celery.current import TaskClaim, current_claim
from fencekit.celery.decorator import idempotent_task
from fencekit.celery.errors import AlreadyQueued, NotConfigured, StillBusy
from fencekit.celery.stores import configure
from fencekit.celery.unique import unique_task

__version__ = "0.1.0"

__all__ = [
    "AlreadyQueued",
    "NotConfigured",
    "StillBusy",
    "TaskClaim",
    "configure",
    "current_claim",
    "idempotent_task",
    "unique_task",
]
