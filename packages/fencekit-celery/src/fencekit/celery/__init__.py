"""Celery tasks that take effect once, however often they are delivered."""

__version__ = "0.1.0"
