"""Benchmarks of fencekit-django, on PostgreSQL.

Modules:
    updates     a fenced update against a plain one
    effects     an effect that happens once against the effect alone
"""

from benchmarks.django.effects import EFFECTS
from benchmarks.django.updates import UPDATES

__all__ = ["SCENARIOS"]

SCENARIOS = (*UPDATES, *EFFECTS)
