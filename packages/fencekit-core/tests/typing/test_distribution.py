"""What every user of the distribution relies on before its first feature."""

from pathlib import Path

import fencekit


def test_ships_type_information() -> None:
    assert fencekit.__file__ is not None
    assert Path(fencekit.__file__).with_name("py.typed").is_file()
