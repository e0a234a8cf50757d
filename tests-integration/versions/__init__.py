"""Processes of different releases on one Redis, and satellites with an older core.

``python -m versions NAME`` freezes what the scripts of today take, answer and store as
``versions/NAME.json``. It does not replace a file: what a release has written stays written.
"""
