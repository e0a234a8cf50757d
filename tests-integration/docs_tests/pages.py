"""The READMEs and pages of this repository, and the program that the blocks of one page make.

How a block is treated is said where it stands:

- a ``python`` block runs, in the order of the page, in one namespace and one interpreter;
- one whose last line ends with ``# raises: Name`` must raise that error, or one of its kind;
- one whose first line is ``# name.py`` is saved under that name, for a later block to use;
- a ``console`` block after the line ``<!-- run -->`` is run by bash; what it leaves in
  the background ends with the page;
- ``<!-- not run: why -->`` before a block excuses it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Block", "blocks", "program", "shown"]

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("README.md", "packages/*/README.md", ".github/*.md", "docs/**/*.md")
    for page in ROOT.glob(pattern)
    if "_build" not in page.parts
)

_FENCE = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*?) -->\n)?"
    r"(?P<indent> *)(?P<ticks>`{3,}|~{3,}|:{3,})(?P<info>[^\n`]*)\n"
    r"(?P<body>.*?)^(?P=indent)(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)
_RAISES = re.compile(r"# raises: (\w+)\s*\Z")
_FILE = re.compile(r"\A# (\w+\.py)\n")
_NOT_RUN = re.compile(r"not run: (\S.*)")
# What the pages call their server; the test puts one of its own in its place.
_URL = "redis://localhost:6379/0"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        line: the number of its first line within the page, from 1.
        info: what stands behind the opening fence, e.g. ``python``.
        indent: how many spaces the fence is moved in.
        text: the block.
        note: the comment on the line before, or empty.
    """

    line: int
    info: str
    indent: int
    text: str
    note: str

    @property
    def is_python(self) -> bool:
        """Whether a reader takes it for Python, however that is spelled."""
        words = set(re.findall(r"\w+", self.info.lower()))
        return bool(words & {"python", "python3", "py", "pycon", "ipython", "doctest"})

    @property
    def is_console(self) -> bool:
        """Whether it is for a shell."""
        return self.info in {"console", "bash", "sh", "shell"}

    @property
    def excuse(self) -> str | None:
        """Why it is not run, or None."""
        found = _NOT_RUN.fullmatch(self.note)
        return found[1] if found else None

    @property
    def runs(self) -> bool:
        """Whether the program of its page has it."""
        if self.excuse is not None or self.indent:
            return False
        return self.info == "python" or (self.info == "console" and self.note == "run")

    @property
    def raises(self) -> str | None:
        """The name of the error that it ends with, or None."""
        found = _RAISES.search(self.text)
        return found[1] if found else None

    @property
    def file(self) -> str | None:
        """The name that it is saved under, or None."""
        found = _FILE.match(self.text) if self.info == "python" else None
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text()
    return [
        Block(
            text[: found.start("body")].count("\n") + 1,
            found["info"].strip(),
            len(found["indent"]),
            found["body"],
            found["note"] or "",
        )
        for found in _FENCE.finditer(text)
    ]


def program(page: Path, url: str) -> str:
    """One program of all the blocks of a page that run; its tracebacks name the page's lines."""
    lines = [
        "import pathlib, subprocess",
        "bash = ['bash', '-euo', 'pipefail', '-c']",
        "space = {'__name__': '__main__'}",
    ]
    for block in blocks(page):
        if not block.runs:
            continue
        text = block.text.replace(_URL, url)
        if block.is_console:
            lines.append(
                f"subprocess.run(['bash', '-euo', 'pipefail', '-c', {text!r}], check=True)"
            )
        elif block.file is not None:
            lines.append(f"pathlib.Path({block.file!r}).write_text({text!r})")
        else:
            lines += _python(page, block, text)
    return "\n".join(lines)


def _python(page: Path, block: Block, text: str) -> list[str]:
    source = "\n" * (block.line - 1) + text
    run = f"exec(compile({source!r}, {str(page)!r}, 'exec'), space)"
    if block.raises is None:
        return [run]
    return [
        "try:",
        f"    {run}",
        "except Exception as error:",
        "    names = [kind.__name__ for kind in type(error).__mro__]",
        f"    assert {block.raises!r} in names, repr(error)",
        "else:",
        f"    raise AssertionError({f'{page.name}:{block.line} did not raise'!r})",
    ]


def shown(page: Path) -> str:
    """The page's name as a test shows it."""
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name
