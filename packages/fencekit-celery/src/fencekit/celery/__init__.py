"""Celery tasks that take effect once, however often they are delivered.

::

    @shared_task(bind=True, acks_late=True, reject_on_worker_lost=True)
    @idempotent_task(key="order_id", ttl="24h", lease="30s", max_attempts=5)
    def charge(self, order_id, amount):
        return gateway.charge(order_id, amount, fence=current_claim().fence)
"""

from fencekit.celery.current import TaskClaim, current_claim
from fencekit.celery.decorator import idempotent_task
from fencekit.celery.errors import NotConfigured, StillBusy
from fencekit.celery.stores import configure

__version__ = "0.1.0"

__all__ = [
    "NotConfigured",
    "StillBusy",
    "TaskClaim",
    "configure",
    "current_claim",
    "idempotent_task",
]
