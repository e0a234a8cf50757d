"""What PyPI and its users' tools say of the five wheels and sdists in dist/: `hatch run packages`.

Shown red once each: a README whose reStructuredText is broken (twine), a module beside `fencekit`
and one missing from the wheel (check-wheel-contents), a wheel built from other sources (rebuilt).
"""

import subprocess
import sys
from pathlib import Path

import pytest

from distributions import DISTRIBUTIONS, ROOT, sdist_of, wheel_of

each_distribution = pytest.mark.parametrize("dist", DISTRIBUTIONS)


def run(*command: str | Path) -> str:
    """Return what the command printed; a failure shows it."""
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, check=False
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@each_distribution
def test_pypi_would_take_and_show_both_files(dist: str) -> None:
    files = (wheel_of(dist), sdist_of(dist))
    said = run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files)
    assert said.count("PASSED") == 2


@each_distribution
def test_wheel_has_the_contents_that_a_wheel_should(dist: str) -> None:
    folder = ROOT / "packages" / dist
    said = run(
        *(sys.executable, "-m", "check_wheel_contents"),
        *("--config", folder / "pyproject.toml"),
        *("--src-dir", folder / "src", "--package-omit", "__pycache__,*.pyc"),
        *("--toplevel", "fencekit"),
        wheel_of(dist),
    )
    assert said.endswith(": OK\n")


@each_distribution
def test_building_once_more_gives_the_same_bytes(dist: str, tmp_path: Path) -> None:
    run(
        *("uv", "build", "--quiet", "--no-build-isolation", "--out-dir", tmp_path),
        ROOT / "packages" / dist,
    )
    for built in (wheel_of(dist), sdist_of(dist)):
        assert (tmp_path / built.name).read_bytes() == built.read_bytes()
