"""Release one distribution: prepare it, land the commit, tag it.

python .github/release.py fragments                       # what waits in changes/ is well formed
python .github/release.py prepare fencekit-core minor     # version, changelog, one commit
python .github/release.py tag fencekit-core               # the tag that has it published
python .github/release.py check fencekit-core-v0.2.0      # what the workflow asks of a tag

`hatch run releases:prepare` and its like have what this needs: hatchling raises versions, towncrier
writes changelogs. `check` needs the standard library alone.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / "packages"
TAG = re.compile(r"(?P<dist>fencekit-[a-z]+)-v(?P<version>\d\S*)")


class NotReadyError(Exception):
    """What stands in the way of a release, one reason a line."""


def folder_of(dist: str) -> Path:
    """Find the folder of a distribution.

    Raises:
        NotReadyError: there is none of this name.
    """
    known = sorted(path.parent.name for path in PACKAGES.glob("*/pyproject.toml"))
    if dist not in known:
        msg = f"{dist!r} is none of {', '.join(known)}"
        raise NotReadyError(msg)
    return PACKAGES / dist


def version_file(dist: str) -> Path:
    """Find the module that says the version of a distribution, for itself and for hatchling."""
    package = folder_of(dist) / "src" / "fencekit"
    return (package if dist == "fencekit-core" else package / dist[9:]) / "__init__.py"


def version_of(dist: str) -> str:
    """Read the version that a distribution has in this tree."""
    said = re.search(r'^__version__ = "(.+)"$', version_file(dist).read_text(), re.MULTILINE)
    if said is None:
        msg = f"{version_file(dist)} says no version"
        raise NotReadyError(msg)
    return said[1]


def fragments_of(dist: str) -> list[Path]:
    """List what waits in changes/."""
    waiting = (folder_of(dist) / "changes").iterdir()
    return sorted(path for path in waiting if path.name != "README.md")


def released(dist: str) -> list[str]:
    """List the versions that the changelog has a section for, the newest first."""
    changelog = (folder_of(dist) / "CHANGELOG.md").read_text()
    return re.findall(r"^## \[(\S+)\]", changelog, re.MULTILINE)


def problems(dist: str, version: str) -> list[str]:
    """Say everything that stands in the way of publishing this version from this tree."""
    found: list[str] = []
    if version_of(dist) != version:
        found.append(f"the tag is for {version}, but {dist} says {version_of(dist)}")
    if [version] != released(dist)[:1]:
        found.append(f"the newest section of {dist}'s CHANGELOG.md is not for {version}")
    found += [f"changes/{left.name} has not been collected" for left in fragments_of(dist)]
    return found


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """Run a command and return what it printed.

    Raises:
        NotReadyError: it failed; the reason is what it complained of.
    """
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if ran.returncode:
        raise NotReadyError(f"{ran.stdout}{ran.stderr}".strip())
    return ran.stdout


def towncrier(dist: str, version: str, *options: str) -> str:
    """Have the fragments of a distribution made into a section of its changelog."""
    config = str(ROOT / ".github" / "towncrier.toml")
    return run(
        *(sys.executable, "-m", "towncrier", "build", "--config", config),
        *("--dir", str(folder_of(dist)), "--name", dist, "--version", version, *options),
    )


def refuse_a_dirty_tree() -> None:
    """Raise when a commit or a tag would not be what lies here."""
    if changed := run("git", "status", "--porcelain"):
        msg = f"commit or remove these first:\n{changed.rstrip()}"
        raise NotReadyError(msg)


def fragments() -> None:
    """Refuse a fragment that the next release could not use."""
    wrong = []
    for package in sorted(PACKAGES.iterdir()):
        # Towncrier refuses a name; that a text is one or more sentences is for us to see.
        towncrier(package.name, "0", "--draft")
        for path in fragments_of(package.name):
            text = path.read_text().strip()
            if not (text[:1].isupper() and text.endswith(".")):
                where = path.relative_to(ROOT)
                wrong.append(f"{where}: sentences for a user, the first starting with a verb")
    if wrong:
        raise NotReadyError("\n".join(wrong))


def prepare(dist: str, part: str | None) -> None:
    """Raise the version, collect the changelog and commit both.

    Without a part the version stays as it is: the first release of a distribution.
    """
    refuse_a_dirty_tree()
    if not fragments_of(dist):
        msg = f"{dist} has no fragment in changes/: there is nothing to release"
        raise NotReadyError(msg)
    fragments()
    if part is None and version_of(dist) in released(dist):
        msg = f"{dist} {version_of(dist)} is released: say major, minor, patch or a version"
        raise NotReadyError(msg)
    if part is not None:
        run(sys.executable, "-m", "hatchling", "version", part, folder=folder_of(dist))
    version = version_of(dist)
    towncrier(dist, version, "--yes")
    run("git", "add", "--", version_file(dist))
    run("git", "commit", "-m", f"Release {dist} {version}", "--", folder_of(dist))
    print(f"{dist} {version} is committed. Land it, then: hatch run releases:tag {dist}")


def tag(dist: str) -> None:
    """Tag the commit at hand, if it is ready to be published."""
    refuse_a_dirty_tree()
    version = version_of(dist)
    if refused := problems(dist, version):
        raise NotReadyError("\n".join(refused))
    branch = run("git", "branch", "--show-current").strip()
    if branch != "main":
        msg = f"only main is released, and this is {branch or 'no branch'}"
        raise NotReadyError(msg)
    run("git", "tag", "--annotate", f"{dist}-v{version}", "--message", f"{dist} {version}")
    print(f"Publish it with: git push origin {dist}-v{version}")


def check(name: str) -> None:
    """Print what a tag releases, as outputs of a workflow's step, or refuse it."""
    said = TAG.fullmatch(name)
    if said is None:
        msg = f"{name!r} is no tag like fencekit-core-v1.2.3"
        raise NotReadyError(msg)
    if refused := problems(said["dist"], said["version"]):
        raise NotReadyError("\n".join(refused))
    print(f"dist={said['dist']}\nversion={said['version']}")


def main(arguments: list[str]) -> str | None:
    """Do what the command line says; return why not, or None."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fragments")
    preparing = commands.add_parser("prepare")
    preparing.add_argument("dist")
    preparing.add_argument("part", nargs="?", help="major, minor, patch, rc, or a version")
    commands.add_parser("tag").add_argument("dist")
    commands.add_parser("check").add_argument("tag")
    given = parser.parse_args(arguments)
    try:
        if given.command == "fragments":
            fragments()
        elif given.command == "prepare":
            prepare(given.dist, given.part)
        elif given.command == "tag":
            tag(given.dist)
        else:
            check(given.tag)
    except NotReadyError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
