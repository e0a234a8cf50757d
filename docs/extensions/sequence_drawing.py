"""Sequence diagrams out of plain lines: a directive shows them as SVG, GitHub as they are.

Three kinds of lines; participants stand in the order in which they first appear::

    worker A -> Redis: acquire, lease 30 s
    Redis -x worker A: the reply is lost
    worker A: frozen for a minute

Colours are those of the theme, so that a diagram follows light and dark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

__all__ = ["Step", "draw", "parse"]

_LINE = re.compile(r"(?P<source>[^:>]+?)(?: (?P<arrow>->|-x) (?P<target>[^:>]+?))?: (?P<text>.+)")
_GAP, _EDGE, _ROW, _TOP = 195, 75, 46, 62
# What fits between two lifelines, and onto one at the edge, in a font of 13 pixels.
_LONGEST, _LONGEST_NOTE = 30, 22
_INK = "var(--color-foreground-primary)"
_MUTED = "var(--color-foreground-border)"
_BRAND = "var(--color-brand-content)"
_BACK = "var(--color-background-secondary)"


@dataclass(frozen=True)
class Step:
    """One line of a diagram.

    Attributes:
        source: who sends, or to whom something happens.
        target: who receives; None for a note on the source.
        text: what is sent, or what happens.
        lost: whether it never arrives.
    """

    source: str
    target: str | None
    text: str
    lost: bool = False


def parse(lines: list[str]) -> list[Step]:
    """Read the lines of a diagram; empty ones are passed over.

    Raises:
        ValueError: a line of no known kind, one that would not fit, or none at all.
    """
    steps = []
    for line in filter(None, map(str.strip, lines)):
        found = _LINE.fullmatch(line)
        if found is None:
            msg = f"neither 'a -> b: text', 'a -x b: text' nor 'a: text': {line!r}"
            raise ValueError(msg)
        longest = _LONGEST if found["target"] else _LONGEST_NOTE
        if len(found["text"]) > longest:
            msg = f"longer than {longest} characters: {found['text']!r}"
            raise ValueError(msg)
        steps.append(Step(found["source"], found["target"], found["text"], found["arrow"] == "-x"))
    if not steps:
        msg = "a diagram needs at least one line"
        raise ValueError(msg)
    return steps


def draw(title: str, steps: list[Step]) -> str:
    """The diagram as HTML: SVG that scrolls where the page is narrow, and can be read out."""
    named = [name for step in steps for name in (step.source, step.target) if name is not None]
    across = {name: _EDGE + _GAP * place for place, name in enumerate(dict.fromkeys(named))}
    width, height = 2 * _EDGE + _GAP * (len(across) - 1), _TOP + _ROW * len(steps) + 10
    parts = []
    for name, x in across.items():
        parts.append(_line(x, 34, x, height, _MUTED))
        parts.append(_box(x, 18, 2 * _EDGE - 16, 30) + _text(x, 23, name, bold=True))
    for row, step in enumerate(steps):
        parts += _step(step, across, _TOP + _ROW * row)
    spoken = escape(f"{title}: {'; '.join(_spoken(step) for step in steps)}")
    style = f"width:{width}px;min-width:{width}px;font:13px var(--font-stack)"
    return (
        '<div class="sequence" style="overflow-x:auto;margin:1em 0">'
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{spoken}" style="{style}">'
        f"{''.join(parts)}</svg></div>"
    )


def _spoken(step: Step) -> str:
    if step.target is None:
        return f"{step.source}: {step.text}"
    return f"{step.source} to {step.target}{', lost' if step.lost else ''}: {step.text}"


def _step(step: Step, across: dict[str, int], y: int) -> list[str]:
    start = across[step.source]
    if step.target is None:
        width = min(2 * _EDGE - 2, 20 + 7 * len(step.text))
        return [_box(start, y + 14, width, 26), _text(start, y + 18, step.text, italic=True)]
    end = across[step.target]
    way = 1 if end > start else -1
    tip = start + (end - start) * 3 // 4 if step.lost else end - 2 * way
    parts = [_line(start, y + 20, tip, y + 20, _BRAND, dashed=step.lost)]
    if step.lost:
        parts.append(_text(tip, y + 25, "✕", colour="var(--color-admonition-title--danger, #c33)"))
    else:
        parts.append(f'<path d="M{tip} {y + 20}l{-9 * way} -5v10z" fill="{_BRAND}"/>')
    return [*parts, _text((start + end) // 2, y + 12, step.text)]


def _line(x1: int, y1: int, x2: int, y2: int, colour: str, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"{dash}/>'


def _box(x: int, y: int, width: int, height: int) -> str:
    return (
        f'<rect x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" rx="5"'
        f' fill="{_BACK}" stroke="{_MUTED}"/>'
    )


def _text(
    x: int, y: int, text: str, *, bold: bool = False, italic: bool = False, colour: str = _INK
) -> str:
    style = ' font-weight="600"' if bold else ' font-style="italic"' if italic else ""
    if not style:
        # A message may cross a lifeline: a rim in the colour of the page.
        style = ' paint-order="stroke" stroke="var(--color-background-primary)" stroke-width="4"'
    return (
        f'<text x="{x}" y="{y}" text-anchor="middle" fill="{colour}"{style}>{escape(text)}</text>'
    )
