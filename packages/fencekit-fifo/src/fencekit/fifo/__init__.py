"""Locks on Redis whose waiters are served in strict order of arrival."""

__version__ = "0.1.0"
