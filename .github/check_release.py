"""Refuse a release that is not ready: `check_release.py fencekit-core fencekit-core-v1.2.3`.

The tag, the version in pyproject.toml and the newest heading of the changelog must agree, and no
fragment may be left in changes/.
"""

import re
import sys
from pathlib import Path

PACKAGES = Path(__file__).parents[1] / "packages"


def problems(dist: str, tag: str) -> list[str]:
    """Say everything that stands in the way of releasing `dist` under `tag`."""
    folder = PACKAGES / dist
    found: list[str] = []
    declared = re.search(
        r'^version = "(.+)"$', (folder / "pyproject.toml").read_text(), re.MULTILINE
    )
    version = declared[1] if declared else "not found"
    if tag != f"{dist}-v{version}":
        found.append(f"the tag is {tag}, but pyproject.toml says version {version}")
    heading = re.search(r"^## \[(\S+)\]", (folder / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None or heading[1] != version:
        found.append(f"the newest heading of CHANGELOG.md is not for {version}")
    found += [
        f"changes/{left.name} has not been collected"
        for left in sorted((folder / "changes").iterdir())
        if left.name != "README.md"
    ]
    return found


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004 - the command, a distribution, a tag
        sys.exit(__doc__)
    if refused := problems(*sys.argv[1:]):
        sys.exit("\n".join(refused))
