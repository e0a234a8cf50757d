"""What is compared: a module for each library, imported where that library is installed.

A module has a function for each role that its library plays:

    lock(client, url, name, lease)      `acquire()` returns what `release(held)` takes
    alock(client, url, name, lease)     the same, awaited
    fifo(client, url, name, lease)      an async lock that serves in order of arrival
    jobs(client, url, work)             returns a function of a key, which does the work once
    ajobs(client, url, work)            the same, awaited
    cache(client, url)                  `get`, `set`, `forget`, `load`, and `many` if it has that
    acache(client, url)                 the same, awaited

`client` is a redis-py client with its defaults; who makes a client of its own is given the URL.
A lease is in whole seconds. What is cached is the model `Profile`; a cache without types is given
its JSON. Each library is used as its own documentation shows it, with its defaults.
"""
