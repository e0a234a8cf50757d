"""The peers beside fencekit, each in an environment of its own, as ratios to one floor.

Modules:
    roster          who is compared, in which version and in which roles
    environments    an environment for each, made once and kept
    contenders      a module for each library, imported where it is installed
    asked, aasked   what a contender is asked, in a process of its environment
    arena           asks them in turns, on one server
    locks, works    what is asked of locks, and of caches and idempotent jobs
    rows            the rows of the table, and why we are not ahead where we are not
    table           the table on the terminal

Every process measures its own floor with the same client in the same turns, so that figures of
different environments may be put beside each other.
"""
