"""Benchmarks of fencekit-celery: a task that does nothing, through a real prefork worker."""

from __future__ import annotations

from benchmarks.celery.throughput import THROUGHPUT

SCENARIOS = (*THROUGHPUT,)
