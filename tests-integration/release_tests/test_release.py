"""The command that prepares and tags releases, on a small repository of its own.

Each test was seen failing with its line of `release.py` taken out: the dirty tree, the branch, the
fragments left, the section of another version, the raise of the version.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE, FIFO = "fencekit-core", "fencekit-fifo"

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def git(repository: Path, *arguments: str) -> str:
    command = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments)
    return subprocess.run(
        command, cwd=repository, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command, and of two packages what a release reads and writes."""
    for name in ("NAME", "EMAIL"):
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", "a@example.org")
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", "a@example.org")
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    for dist in (CORE, FIFO):
        of, to = ROOT / "packages" / dist, tmp_path / "packages" / dist
        (to / "changes").mkdir(parents=True)
        for name in ("pyproject.toml", "CHANGELOG.md", "README.md", "LICENSE", "changes/README.md"):
            shutil.copy(of / name, to / name)
        module = "src/fencekit" + ("" if dist == CORE else "/fifo") + "/__init__.py"
        (to / module).parent.mkdir(parents=True)
        (to / module).write_text('"""A package."""\n\n__version__ = "0.1.0"\n')
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "start")
    return tmp_path


@pytest.fixture
def release(repository: Path) -> Command:
    """Run a command of release.py in that repository."""

    def run(*arguments: str, succeeds: bool = True) -> "subprocess.CompletedProcess[str]":
        ran = subprocess.run(
            [sys.executable, ".github/release.py", *arguments],
            cwd=repository,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode == 0) is succeeds, ran.stdout + ran.stderr
        return ran

    return run


def leave_fragments(repository: Path, dist: str = CORE, **texts: str) -> None:
    """Commit fragments: names with `_` for `.`."""
    for name, text in texts.items():
        path = repository / "packages" / dist / "changes" / f"{name.replace('_', '.')}.md"
        path.write_text(text)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "fragments")


def version_in(repository: Path, dist: str = CORE) -> str:
    inside = "src/fencekit" + ("" if dist == CORE else "/fifo")
    source = (repository / "packages" / dist / inside / "__init__.py").read_text()
    return source.split('__version__ = "')[1].split('"')[0]


def changelog(repository: Path, dist: str = CORE) -> str:
    return (repository / "packages" / dist / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    ("part", "version"),
    [("minor", "0.2.0"), ("patch", "0.1.1"), ("major", "1.0.0"), ("0.1.0.post1", "0.1.0.post1")],
)
def test_a_release_is_one_commit_of_version_and_changelog(
    repository: Path, release: Command, part: str, version: str
) -> None:
    leave_fragments(repository, **{"7_fixed": "Keep a lock.\nAlways.\n", "8_added": "Add a key.\n"})
    release("prepare", CORE, part)
    assert version_in(repository) == version
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "log", "-1", "--format=%s") == f"Release {CORE} {version}"
    changed = git(repository, "show", "--name-only", "--format=").split()
    assert sorted(Path(path).name for path in changed) == [
        "7.fixed.md",
        "8.added.md",
        "CHANGELOG.md",
        "__init__.py",
    ]
    assert version_in(repository, FIFO) == "0.1.0"
    said = changelog(repository)
    assert re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", said, re.MULTILINE)
    assert said.index("### Added") < said.index("Add a key. (#8)") < said.index("### Fixed")
    assert "Keep a lock." in said
    assert "Always. (#7)" in said


def test_the_next_section_stands_above_the_last(repository: Path, release: Command) -> None:
    leave_fragments(repository, **{"+one_added": "Add one.\n"})
    release("prepare", CORE, "minor")
    leave_fragments(repository, **{"+two_added": "Add two.\n"})
    release("prepare", CORE, "minor")
    said = changelog(repository)
    assert said.startswith(f"# Changelog of {CORE}\n")
    assert said.index("## [0.3.0]") < said.index("Add two.") < said.index("## [0.2.0]")
    assert said.count("Add one.") == 1


def test_the_first_release_keeps_the_version_it_has(repository: Path, release: Command) -> None:
    leave_fragments(repository, FIFO, **{"3_added": "Take turns.\n"})
    release("prepare", FIFO)
    assert version_in(repository, FIFO) == "0.1.0"
    assert "## [0.1.0]" in changelog(repository, FIFO)
    leave_fragments(repository, FIFO, **{"4_added": "Take more turns.\n"})
    assert "0.1.0 is released" in release("prepare", FIFO, succeeds=False).stderr


def test_what_is_released_can_be_tagged_and_what_is_tagged_published(
    repository: Path, release: Command
) -> None:
    leave_fragments(repository, **{"8_added": "Add a key.\n"})
    release("prepare", CORE, "minor")
    assert f"git push origin {CORE}-v0.2.0" in release("tag", CORE).stdout
    assert git(repository, "cat-file", "-t", f"{CORE}-v0.2.0") == "tag"
    assert release("check", f"{CORE}-v0.2.0").stdout == f"dist={CORE}\nversion=0.2.0\n"
    assert "already exists" in release("tag", CORE, succeeds=False).stderr


def test_nothing_is_released_from_a_dirty_tree(repository: Path, release: Command) -> None:
    leave_fragments(repository, **{"8_added": "Add a key.\n"})
    (repository / "note").write_text("forgotten\n")
    assert "note" in release("prepare", CORE, "minor", succeeds=False).stderr
    assert version_in(repository) == "0.1.0"
    (repository / "note").unlink()
    release("prepare", CORE, "minor")
    (repository / "note").write_text("forgotten\n")
    assert "note" in release("tag", CORE, succeeds=False).stderr


def test_nothing_is_released_without_a_fragment(repository: Path, release: Command) -> None:
    assert "nothing to release" in release("prepare", CORE, "minor", succeeds=False).stderr
    assert version_in(repository) == "0.1.0"


def test_a_version_never_goes_down(repository: Path, release: Command) -> None:
    leave_fragments(repository, **{"8_added": "Add a key.\n"})
    assert "0.0.9" in release("prepare", CORE, "0.0.9", succeeds=False).stderr
    assert version_in(repository) == "0.1.0"


def test_a_distribution_that_is_none_is_refused(release: Command) -> None:
    for command in (
        ("prepare", "fencekit", "minor"),
        ("tag", "../core"),
        ("check", "fencekit-x-v1"),
    ):
        assert "fencekit-core, fencekit-fifo" in release(*command, succeeds=False).stderr
    assert "no tag like" in release("check", "v1.0.0", succeeds=False).stderr


def test_only_main_is_tagged(repository: Path, release: Command) -> None:
    leave_fragments(repository, **{"8_added": "Add a key.\n"})
    release("prepare", CORE, "minor")
    git(repository, "switch", "--quiet", "--create", "other")
    assert "only main" in release("tag", CORE, succeeds=False).stderr
    git(repository, "switch", "--quiet", "--detach", "main")
    assert "only main" in release("tag", CORE, succeeds=False).stderr


def test_a_tag_that_says_something_else_is_refused(repository: Path, release: Command) -> None:
    assert "newest section" in release("tag", CORE, succeeds=False).stderr
    leave_fragments(repository, **{"8_added": "Add a key.\n"})
    release("prepare", CORE, "minor")
    said = release("check", f"{CORE}-v0.3.0", succeeds=False).stderr
    assert "the tag is for 0.3.0, but fencekit-core says 0.2.0" in said
    leave_fragments(repository, **{"9_added": "Add another.\n"})
    said = release("check", f"{CORE}-v0.2.0", succeeds=False).stderr
    assert "changes/9.added.md has not been collected" in said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("8_new", "Add a key.\n"),
        ("notes", "Add a key.\n"),
        ("8_added", ""),
        ("8_added", "add a key\n"),
    ],
    ids=["of no kind", "no fragment's name", "empty", "no sentence"],
)
def test_a_fragment_that_says_nothing_to_users_is_refused(
    repository: Path, release: Command, name: str, text: str
) -> None:
    release("fragments")
    leave_fragments(repository, FIFO, **{name: text})
    assert name.replace("_", ".") in release("fragments", succeeds=False).stderr
    assert version_in(repository, FIFO) == "0.1.0"
