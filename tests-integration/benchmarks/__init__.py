"""Benchmarks of every distribution, as ratios inside one run; never published.

    python -m benchmarks [GROUP ... | --peers] [--only WORD] [--no-fail] [--record]

A figure is a ratio to a floor that is measured beside it, in interleaved rounds: machines differ,
and the same machine differs from minute to minute. The usual floor is a bare EVALSHA of a trivial
script through the user's own client, which is the least that any lock built on it must pay.

    figures       what is measured, what it must reach, and what is made of many rounds
    stand         the server, and the pinning of server and client to one core
    report        the table
    core          fencekit-core: one module for each group of scenarios
    cache         fencekit-cache: the same
    django        fencekit-django, on a PostgreSQL of its own
    celery        fencekit-celery, through a real prefork worker

    peers         other libraries beside ours, each in an environment of its own
    record        the figures that are kept, and the page and its charts made of them (`page`)

A group is a package of this name with `SCENARIOS`; add it to `GROUPS` in `__main__`.
"""
