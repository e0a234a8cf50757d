"""What the distribution says of itself: it is typed, and of its metadata's version."""

from importlib.metadata import version
from pathlib import Path

import fencekit.django


def test_version_is_that_of_the_distribution() -> None:
    assert fencekit.django.__version__ == version("fencekit-django")


def test_ships_type_information() -> None:
    assert fencekit.django.__file__ is not None
    assert Path(fencekit.django.__file__).with_name("py.typed").is_file()
