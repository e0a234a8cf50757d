"""`python -m fencekit.cli` is the `fencekit` command."""

from fencekit.cli import main

if __name__ == "__main__":
    main()
