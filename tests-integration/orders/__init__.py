"""An example: orders that are charged, confirmed by e-mail and closed, each once.

Start a worker as any other, from ``tests-integration`` with a Redis at hand::

    ORDERS_REDIS_URL=redis://localhost:6379/0 celery -A orders.app worker

and place orders from Python: ``from orders.app import place; place("o-1", 500)``.
"""
