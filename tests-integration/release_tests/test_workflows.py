"""What the workflows do that no linter can know, their own scripts run here.

Seen red: the comparison of names taken out (an extra file passed), that of checksums taken
out, a trigger `fencekit-core-v*`, a `contents: write`, a checkout in the publishing job.
"""

import hashlib
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
DISTRIBUTIONS = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))


def workflow(name: str) -> dict[Any, Any]:
    """Read a workflow; YAML 1.1 takes its key `on` for true."""
    read: dict[Any, Any] = yaml.safe_load((WORKFLOWS / name).read_text())
    return read


RELEASE = workflow("release.yml")


def step(job: str, name: str) -> dict[str, Any]:
    (found,) = (s for s in RELEASE["jobs"][job]["steps"] if s.get("name") == name)
    return dict(found)


COMPARISONS = {
    "before the upload": step("publish", "What is uploaded is what was built"),
    "after it": step("verify", "What is served is what was built"),
}


@pytest.fixture(params=COMPARISONS)
def compare(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each step that compares files with the checksums of the build."""
    return COMPARISONS[request.param]


@pytest.fixture
def built(tmp_path: Path) -> str:
    """Lay two files into dist/, and return their checksums as the build does."""
    (tmp_path / "dist").mkdir()
    lines = []
    for name in ("fencekit_core-1.0-py3-none-any.whl", "fencekit_core-1.0.tar.gz"):
        (tmp_path / "dist" / name).write_bytes(name.encode())
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}")
    # GITHUB_OUTPUT may hand on an empty last line.
    return "\n".join([*lines, ""])


def passes(compare: dict[str, Any], folder: Path, checksums: str) -> bool:
    """Run the step's script as GitHub does: bash, stopping at the first failure."""
    ran = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", compare["run"]],
        cwd=folder / compare["working-directory"],
        env={"CHECKSUMS": checksums, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    return ran.returncode == 0


def test_what_was_built_passes(compare: dict[str, Any], built: str, tmp_path: Path) -> None:
    assert passes(compare, tmp_path, built)


def test_a_changed_file_does_not_pass(compare: dict[str, Any], built: str, tmp_path: Path) -> None:
    with (tmp_path / "dist" / "fencekit_core-1.0.tar.gz").open("ab") as file:
        file.write(b"more")
    assert not passes(compare, tmp_path, built)


def test_a_missing_file_does_not_pass(compare: dict[str, Any], built: str, tmp_path: Path) -> None:
    (tmp_path / "dist" / "fencekit_core-1.0.tar.gz").unlink()
    assert not passes(compare, tmp_path, built)


@pytest.mark.parametrize("name", ["fencekit_core-1.0-py2-none-any.whl", ".hidden", "a/b.whl"])
def test_a_file_too_many_does_not_pass(
    compare: dict[str, Any], built: str, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "dist" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"more")
    assert not passes(compare, tmp_path, built)


def test_no_checksum_at_all_does_not_pass(
    compare: dict[str, Any], built: str, tmp_path: Path
) -> None:
    assert built
    assert not passes(compare, tmp_path, "")
    assert not passes(compare, tmp_path, "no checksum\n" + built)


@pytest.mark.parametrize("dist", DISTRIBUTIONS)
def test_each_distribution_is_released_by_its_tag(dist: str) -> None:
    (pattern,) = RELEASE[True]["push"]["tags"]
    assert fnmatch(f"{dist}-v0.1.0", pattern)
    assert not fnmatch("v0.1.0", pattern)


def test_every_distribution_is_built_on_every_change() -> None:
    matrix = workflow("ci.yml")["jobs"]["build"]["strategy"]["matrix"]["dist"]
    assert sorted(matrix) == DISTRIBUTIONS


def test_only_publishing_may_sign_and_it_runs_nothing_of_ours() -> None:
    for path in WORKFLOWS.glob("*.yml"):
        jobs = workflow(path.name)["jobs"]
        for name, job in jobs.items():
            if (path.name, name) == ("release.yml", "publish"):
                assert job["permissions"] == {"id-token": "write"}
                assert job["environment"].startswith("pypi-")
            else:
                assert set(job["permissions"].items()) <= {("contents", "read")}, name
    used = [s["uses"].partition("@")[0] for s in RELEASE["jobs"]["publish"]["steps"] if "uses" in s]
    assert used == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]


def test_publishing_attests_and_needs_the_check_and_the_build() -> None:
    job = RELEASE["jobs"]["publish"]
    assert set(job["needs"]) == {"check", "build"}
    assert job["steps"][-1]["with"]["attestations"] is True
    assert "password" not in job["steps"][-1]["with"]
