"""Use everything for some minutes, and look whether anything grows.

``hatch run soak [--minutes N] [--json FILE]``

A process uses locks, the gate, records, queues and caches, in threads and in a loop, with a new
name each time, and makes and drops clients. Its memory, threads and file descriptors, and the
server's memory and connections, are sampled. The first third is warm-up: caches fill up, and what
expires is not expiring yet. Over the rest each figure's slope is estimated by Theil and Sen (the
median of the slopes of all pairs, which no few outliers can bend), and what it comes to over that
time must stay within the bound: 3 % of the median, or 1 MiB for the process's memory and 512 KiB
for the server's where that is more, and less than one thread, descriptor or connection.
"""
