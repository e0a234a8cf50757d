"""Accounts and transfers, as a user of fencekit-django writes them."""
