"""What every user of the distribution relies on before its first feature."""

from pathlib import Path

import fencekit.fifo


def test_ships_type_information() -> None:
    assert fencekit.fifo.__file__ is not None
    assert Path(fencekit.fifo.__file__).with_name("py.typed").is_file()


def test_says_what_it_is_for() -> None:
    assert fencekit.fifo.__doc__
