"""Each sentence in which a README guarantees or refuses something has its test, which exists.

Shown failing on a page and a README that are broken in each way that is looked for.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs_tests.pages import ROOT

PAGE = ROOT / "docs/reference/guarantees.md"
_ROW = re.compile(r'^\| "(.+)" \| (guaranteed|refused) \| (.+) \|$')
# Where a README guarantees and refuses: bullets of these sections, paragraphs that begin so.
_SECTIONS = ("What is guaranteed", "What is refused")
_PARAGRAPHS = ("**The guarantee:**", "**What it refuses:**")

Rows = dict[str, list[tuple[str, str, list[str]]]]


def rows(page: str) -> Rows:
    """Of each chapter: sentence, whether guaranteed or refused, and tests."""
    found: Rows = {}
    chapter = ""
    for line in page.splitlines():
        if line.startswith("## "):
            chapter = line[3:]
            found[chapter] = []
        elif row := _ROW.match(line):
            found[chapter].append((row[1], row[2], re.findall(r"`([^`]+\.py::\w+)`", row[3])))
    return found


def readme(chapter: str) -> str:
    path = "README.md" if chapter == "The README" else f"packages/{chapter}/README.md"
    return (ROOT / path).read_text()


def flat(text: str) -> str:
    return " ".join(text.split())


def promises(text: str) -> list[str]:
    """The bullets and paragraphs in which a README guarantees or refuses."""
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        if section.startswith(_SECTIONS):
            found += re.findall(r"^- .+(?:\n  .+)*", section, re.MULTILINE)
    found += [each for each in text.split("\n\n") if each.startswith(_PARAGRAPHS)]
    return [flat(each) for each in found]


def missing(test: str) -> str | None:
    """Why a test cannot be found; None if it can."""
    path, _, name = test.partition("::")
    room, _, rest = path.partition("/")
    own = ROOT / f"packages/fencekit-{room}/tests" / rest
    file = own if own.exists() else ROOT / "tests-integration" / path
    if not file.exists():
        return f"there is no {path}"
    if not re.search(rf"^\s*(?:async )?def {name}\(", file.read_text(), re.MULTILINE):
        return f"there is no {name} in {path}"
    return None


def complaints(page: str, readmes: dict[str, str]) -> list[str]:
    """What is wrong with the page."""
    found = []
    for chapter, sentences in rows(page).items():
        text = readmes[chapter]
        for sentence, _, tests in sentences:
            if flat(sentence) not in flat(text):
                found.append(f"{chapter} does not say: {sentence}")
            if not tests:
                found.append(f"nothing shows: {sentence}")
            found += [why for why in map(missing, tests) if why]
        found += [
            f"no row of {chapter} is of: {promise}"
            for promise in promises(text)
            if not any(flat(sentence) in promise for sentence, _, _ in sentences)
        ]
    return found


CHAPTERS = list(rows(PAGE.read_text()))
READMES = {chapter: readme(chapter) for chapter in CHAPTERS}


def test_every_guarantee_and_every_refusal_has_a_test_that_exists() -> None:
    assert complaints(PAGE.read_text(), READMES) == []


def test_every_readme_that_promises_has_a_chapter() -> None:
    for path in [ROOT / "README.md", *sorted((ROOT / "packages").glob("*/README.md"))]:
        chapter = "The README" if path.parent == ROOT else Path(path).parent.name
        assert chapter in CHAPTERS or not promises(path.read_text()), chapter


_OFFER = "test_fifo_a_waiter_that_dies_after_its_offer_costs_one_offer"
BROKEN = [
    ("does not say", "A lost message costs one beat", "A lost message costs nothing"),
    ("nothing shows", f"`fifo/cases/test_fifo_cases.py::{_OFFER}`", "everybody"),
    ("there is no test_gone in", "::test_one_holder`", "::test_gone`"),
    ("there is no core/gone.py", "core/drivers/test_keepers.py", "core/gone.py"),
    ("no row of", '| "A holder that is alive but stuck', "| A holder that is alive but stuck"),
]


@pytest.mark.parametrize(("what", "was", "instead"), BROKEN, ids=[each[0] for each in BROKEN])
def test_what_is_wrong_is_noticed(what: str, was: str, instead: str) -> None:
    page = PAGE.read_text()
    assert was in page
    assert any(what in each for each in complaints(page.replace(was, instead), READMES))


def test_a_promise_that_is_added_to_a_readme_is_noticed() -> None:
    was = "- **Giving up is clean.**"
    added = READMES["fencekit-fifo"].replace(was, f"- **It is always faster.** Really.\n{was}")
    readmes = READMES | {"fencekit-fifo": added}
    assert any("always faster" in each for each in complaints(PAGE.read_text(), readmes))
