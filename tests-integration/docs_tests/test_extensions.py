"""What the pages are built and looked over with: sequence diagrams, and the check of links.

Shown failing on diagrams and pages that are broken in each way that is looked for.
"""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

from docs_tests.pages import ROOT, blocks


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclass looks for itself there.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, spec.name, module)
        spec.loader.exec_module(module)
    return module


drawing = loaded("docs/extensions/sequence_drawing.py")
links = loaded("docs/check_links.py")

LINES = ["A -> Redis: acquire", "", "Redis -x A: granted", "A: <frozen>"]


def test_a_diagram_is_drawn_as_one_image_that_is_read_out() -> None:
    html = drawing.draw("A & B", drawing.parse(LINES))
    image = ET.fromstring(html)[0]  # noqa: S314 - our own text
    assert image.get("aria-label") == (
        "A & B: A to Redis: acquire; Redis to A, lost: granted; A: <frozen>"
    )
    texts = [each.text for each in image.iter("text")]
    assert texts == ["A", "Redis", "acquire", "✕", "granted", "<frozen>"]


def test_a_diagram_takes_its_colours_from_the_theme() -> None:
    html = drawing.draw("A", drawing.parse(LINES))
    assert html.count("fill=") == html.count('fill="var(')


@pytest.mark.parametrize("lines", [[], ["A => B: text"], ["A ->: text"], ["A: " + "x" * 23]])
def test_lines_that_make_no_diagram_are_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        drawing.parse(lines)


def test_there_are_diagrams_of_the_four_accidents() -> None:
    page = ROOT / "docs/explanation/crash-semantics.md"
    found = [block for block in blocks(page) if block.info.startswith("{sequence}")]
    assert len(found) == 4
    for block in found:
        drawing.draw("", drawing.parse(block.text.splitlines()))


GOOD = '<h1 id="top">One</h1><a href="two.html#b c">two</a><a href="#top">up</a><a href="https://x.y/">x</a>'


def site(folder: Path, one: str) -> list[str]:
    (folder / "one.html").write_text(one)
    (folder / "two.html").write_text('<p id="b c">Two</p><img src="data:,">')
    found: list[str] = links.complaints(folder)
    return found


def test_links_that_lead_somewhere_are_fine(tmp_path: Path) -> None:
    assert site(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    "broken",
    [
        '<a href="three.html">3</a>',
        '<a href="two.html#c">2</a>',
        '<a href="#bottom">down</a>',
        '<img src="gone.png">',
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/x.css">',
    ],
)
def test_a_dead_link_and_a_foreign_script_are_found(broken: str, tmp_path: Path) -> None:
    assert len(site(tmp_path, GOOD + broken)) == 1
