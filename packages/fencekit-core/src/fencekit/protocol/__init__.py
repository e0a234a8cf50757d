"""What is said to the server and what its answers mean, without a clock, a socket or redis.

A public, documented layer: every algorithm of fencekit is here, written once, driven by the sync
and the async driver alike, and tested with ``next()`` and ``.send()``.
"""
