"""Fenced writes and exactly-once effects in Django's own transactions."""

__version__ = "0.1.0"
