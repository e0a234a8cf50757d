"""Every Python block of every README and page runs.

The blocks of one page run in order, in one namespace and one fresh interpreter, against a server of
their own that stands in for ``redis://localhost:6379``. A block that shows an error on purpose says
so with a ``# raises: Name`` comment in its last line.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.servers import Server

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("README.md", "packages/*/README.md", "docs/**/*.md")
    for page in ROOT.glob(pattern)
    if "_build" not in page.parts
)
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RAISES = re.compile(r"# raises: (\w+)\s*\Z")


def blocks(page: Path) -> list[tuple[int, str]]:
    """The Python blocks of a page, each with the number of its first line."""
    text = page.read_text()
    return [(text[: found.start(1)].count("\n") + 1, found[1]) for found in _BLOCK.finditer(text)]


def program(page: Path, url: str) -> str:
    """One program of all the blocks of a page, whose tracebacks name the page's lines."""
    lines: list[str] = []
    for number, block in blocks(page):
        raises = _RAISES.search(block)
        source = f"{chr(10) * (number - 1)}{block.replace('redis://localhost:6379/0', url)}"
        run = f"exec(compile({source!r}, {str(page)!r}, 'exec'), space)"
        if raises is None:
            lines.append(run)
        else:
            lines += [
                "try:",
                f"    {run}",
                "except Exception as error:",
                f"    assert type(error).__name__ == {raises[1]!r}, repr(error)",
                "else:",
                f"    raise AssertionError({f'{page.name}:{number} did not raise'!r})",
            ]
    return "\n".join(["space = {'__name__': '__main__'}", *lines])


WITH_BLOCKS = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, server: Server, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", program(page, server.url)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_a_broken_example_is_found(server: Server, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nimport fencekit\n\nfencekit.no_such_name\n```\n")
    result = subprocess.run(
        [sys.executable, "-c", program(page, server.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode != 0
    assert 'page.md", line 6' in result.stderr
