"""Every example of every README and page runs, or says in one line why it does not.

Shown failing on pages that are broken in each way that is looked for: see the last tests.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from docs_tests.pages import PAGES, ROOT, blocks, program, shown

if TYPE_CHECKING:
    from harness.servers import Server

# A newcomer follows these from the first line to the last: here the shell's blocks count too.
FOLLOWED = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))]
WITH_BLOCKS = [page for page in PAGES if any(block.runs for block in blocks(page))]


def run(page: Path, server: Server, folder: Path) -> tuple[int, str]:
    """Run a page in an empty folder; its status, and what it wrote to stderr."""
    log = folder / "stderr"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cwd = folder / "cwd"
    cwd.mkdir()
    with log.open("wb") as stderr:
        # A session of its own, so that what the page leaves in the background can be ended.
        process = subprocess.Popen(
            [sys.executable, "-c", program(page, server.url)],
            cwd=cwd,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return status, log.read_text(errors="replace")[-8000:]


def idle_python(page: Path) -> list[str]:
    """Python blocks that neither run nor say why."""
    return [
        f"{shown(page)}:{block.line}"
        for block in blocks(page)
        if block.is_python and not block.runs and block.excuse is None
    ]


def idle_console(page: Path) -> list[str]:
    """Blocks for a shell that neither run nor say why."""
    return [
        f"{shown(page)}:{block.line}"
        for block in blocks(page)
        if block.is_console and not block.runs and block.excuse is None
    ]


def idle_files(page: Path) -> list[str]:
    """Files that a page saves and no later block runs or imports."""
    found = blocks(page)
    return [
        f"{shown(page)}:{block.line}"
        for number, block in enumerate(found)
        if block.file is not None
        and block.runs
        and not any(
            re.search(rf"\b{block.file.removesuffix('.py')}\b", later.text)
            for later in found[number + 1 :]
            if later.runs
        )
    ]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=shown)
def test_the_examples_of_a_page_run(page: Path, server: Server, tmp_path: Path) -> None:
    status, stderr = run(page, server, tmp_path)
    assert status == 0, stderr


def test_every_python_block_runs_or_says_why_not() -> None:
    assert [place for page in PAGES for place in idle_python(page)] == []


def test_every_command_that_a_newcomer_types_runs_or_says_why_not() -> None:
    assert [place for page in FOLLOWED for place in idle_console(page)] == []


def test_every_file_that_a_page_saves_is_used() -> None:
    assert [place for page in PAGES for place in idle_files(page)] == []


BROKEN = {
    "python": "```python\nimport fencekit\n\nfencekit.no_such_name\n```\n",
    "no error": "```python\n1 + 1  # raises: ValueError\n```\n",
    "another error": "```python\n{}[1]  # raises: ValueError\n```\n",
    "console": "<!-- run -->\n```console\nfalse | true\ntrue\n```\n",
    "file": "```python\n# a.py\nno_such_name\n```\n<!-- run -->\n```console\npython a.py\n```\n",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_example_is_found(text: str, server: Server, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{text}")
    status, _ = run(page, server, tmp_path)
    assert status != 0


def test_an_error_is_told_with_the_line_of_the_page(server: Server, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{BROKEN['python']}")
    assert 'page.md", line 6' in run(page, server, tmp_path)[1]


@pytest.mark.parametrize(
    "text",
    [
        "```py\n1\n```\n",
        "```pycon\n>>> 1\n```\n",
        "- item\n\n  ```python\n  1\n  ```\n",
        "```{code-block} python\n1\n```\n",
        "<!-- not run -->\n```py\n1\n```\n",
    ],
)
def test_a_block_that_is_passed_over_is_found(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert idle_python(page) != []


def test_a_command_or_file_that_is_passed_over_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n# a.py\n1\n```\n\n```console\npython a.py\n```\n")
    assert idle_console(page) != []
    assert idle_files(page) != []
