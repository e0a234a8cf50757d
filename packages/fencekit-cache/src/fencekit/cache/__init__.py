"""Typed caches of pydantic models on Redis."""

__version__ = "0.1.0"
