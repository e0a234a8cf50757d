"""Move the fragments of a distribution's changes/ into its CHANGELOG.md, under a new version.

python .github/collect_changes.py fencekit-core 0.2.0 --date 2026-12-31
"""

import argparse
import re
import sys
from datetime import date
from pathlib import Path

PACKAGES = Path(__file__).parents[1] / "packages"
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
FRAGMENT = re.compile(rf"(?P<name>[^.]+)\.(?P<kind>{'|'.join(KINDS)})\.md")


def section(version: str, released: date, fragments: list[Path]) -> str:
    """Write the changelog's section for a version out of its fragments."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in sorted(fragments):
        parts = FRAGMENT.fullmatch(path.name)
        if parts is None:
            msg = f"{path}: a fragment is named ISSUE.KIND.md, KIND being one of {', '.join(KINDS)}"
            raise ValueError(msg)
        text = " ".join(path.read_text().split())
        if not parts["name"].startswith("+"):
            text += f" (#{parts['name']})"
        by_kind[parts["kind"]].append(f"- {text}\n")
    return f"## [{version}] - {released}\n" + "".join(
        f"\n### {kind.capitalize()}\n\n{''.join(lines)}" for kind, lines in by_kind.items() if lines
    )


def collect(folder: Path, version: str, released: date) -> None:
    """Put the new section above the older ones, and delete the fragments."""
    fragments = [path for path in (folder / "changes").iterdir() if path.name != "README.md"]
    if not fragments:
        msg = f"{folder / 'changes'} holds no fragment: there is nothing to release"
        raise ValueError(msg)
    changelog = folder / "CHANGELOG.md"
    head, mark, older = changelog.read_text().partition("\n## ")
    new = section(version, released, fragments)
    changelog.write_text(f"{head.rstrip()}\n\n{new}" + (f"{mark}{older}" if mark else ""))
    for path in fragments:
        path.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dist")
    parser.add_argument("version")
    parser.add_argument("--date", type=date.fromisoformat, required=True)
    given = parser.parse_args()
    try:
        collect(PACKAGES / given.dist, given.version, given.date)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
