"""A Django project with accounts and transfers: for the tests of fencekit-django and its docs.

    settings      which databases, told by environment variables; SQLite alone without them
    routing       the database that a thread or task uses, so that one program serves all of them
    accounts      what a user of fencekit-django would write
    curios        models of unusual shapes, which nobody should need to write

Run it with `python -m ledger migrate`, `python -m ledger runserver`.
"""
