"""An at-least-once job runner in miniature, with real processes that are killed and frozen.

    deliveries    what a payment provider sends, read from JSON Lines and checked
    generate      makes the file that ships with the project
    broker        hands every delivery out until it is acknowledged, like any queue worth its name
    faults        who is killed or frozen, and exactly where
    messages      what the runner and its workers tell each other
    worker        a worker process: takes a job, says where it is, tells how it ended
    fenced        the job done with fencekit
    plain         the same job done without
    bank          what makes a job slow
    ledger        where the effects go: a SQLite file whose rows carry a fence
    runner        feeds the workers, kills and freezes them, and keeps count
    hands         a worker as the runner sees it
    story         what happened to a worker that was frozen
    audit         reads the ledger afterwards and judges it
    report        progress, table, timelines and verdict

`fenced` is the one to read first: it is what a user of fencekit writes. Run it all with
`hatch run demo`, and without the library with `hatch run demo --no-fencekit`.
"""
