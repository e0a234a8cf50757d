"""Processes that are cancelled, stopped and killed while a judge watches what they see."""
