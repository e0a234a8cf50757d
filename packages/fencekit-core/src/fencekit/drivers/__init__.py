"""The only rooms with a door to the network: connections, threads, event loops and clocks.

`sync` and `aio` perform operations and flows; `wake` hears of releases; `keeper` renews leases.
redis errors end here: what leaves is one of `fencekit.errors`.
"""
