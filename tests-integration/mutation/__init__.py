"""Change the library in one place at a time, and see that a test notices.

``hatch run mutate [--target NAME …] [--file PART …] [--sample N] [--seed S] [--jobs J] [--quick]
[--json FILE] [--again FILE]``

Each mutant is a copy of the sources with one change, on which the tests that matter are run up to
the first failure: the quick ones first, and all of the package's if those notice nothing. Whoever
survives must stand in ``survivors.json`` with a reason; otherwise the run fails, and a test is
missing. Mutants of Lua are made here (`lua`); those of Python by Cosmic Ray's operators (`python`),
without its runner, which changes the working tree.
"""
