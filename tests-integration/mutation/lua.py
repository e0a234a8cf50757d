"""Mutants of a Lua script: each differs in one line, or in the order of two."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["mutants"]

# What is replaced outside of strings and comments, and by what.
_SIGNS = {
    "==": "~=",
    "~=": "==",
    "<=": "<",
    ">=": ">",
    "<": "<=",
    ">": ">=",
    "+": "-",
    "-": "+",
    "and": "or",
    "or": "and",
    "true": "false",
    "false": "true",
    "math.max": "math.min",
    "math.min": "math.max",
    "redis.pcall": "redis.call",
}
_TOKEN = re.compile(
    r"(?P<string>'[^']*'|\"[^\"]*\")|(?P<concat>\.\.)|(?P<sign>==|~=|<=|>=|[<>+]|(?<=[\w)] )-(?= )"
    r"|\b(?:and|or|true|false|math\.max|math\.min|redis\.pcall)\b)|(?P<number>(?<![\w.])\d+(?![\w.]))"
)
_CONDITION = re.compile(r"^(\s*(?:if|elseif|while)\s+)(.+?)(\s+(?:then|do)\b.*)$")
_STATEMENT = re.compile(r"^\s*(?:redis\.p?call\(|pcall\(|[a-z_]+\(|[a-z_]+(?:, [a-z_]+)* = )")
_WRITE = re.compile(r"^\s*redis\.p?call\('(?!H?M?GET|TIME|PTTL|ZSCORE|X(?:RANGE|LEN))")


def mutants(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield line number from 1, what was there, what is there instead, and the whole text."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.lstrip().startswith("--") or not line.strip():
            continue
        for changed in dict.fromkeys(_changes(line)):
            yield _with(lines, at, [changed])
        after = lines[at + 1] if at + 1 < len(lines) else ""
        if (
            _alone(line)
            and _alone(after)
            and _WRITE.match(line)
            and _WRITE.match(after)
            and _indent(line) == _indent(after)
        ):
            yield _with(lines, at, [after, line])


def _changes(line: str) -> Iterator[str]:
    """One line in its other forms; empty for none at all."""
    # A single comparison is negated by its sign, below.
    condition = _CONDITION.match(line)
    if condition and (" and " in condition[2] or " or " in condition[2] or "=" not in condition[2]):
        yield f"{condition[1]}not ({condition[2]}){condition[3]}"
    if _STATEMENT.match(line) and _alone(line) and not line.lstrip().startswith("local"):
        yield ""
    code = line.partition(" --")[0]
    for token in _TOKEN.finditer(code):
        start, end = token.span()
        if token["sign"]:
            instead = _SIGNS[token["sign"]]
        elif token["number"] and not _is_index(code, start, end):
            instead = str(int(token["number"]) + 1)
        else:
            continue
        yield line[:start] + instead + line[end:]


def _is_index(line: str, start: int, end: int) -> bool:
    """Whether the number binds KEYS or ARGV, which the tests of headers compare as text."""
    return line[:start].endswith(("KEYS[", "ARGV[")) and line[end : end + 1] == "]"


def _alone(line: str) -> bool:
    """Whether a line is a whole statement."""
    code = re.sub(r"'[^']*'", "''", line)
    balanced = all(code.count(a) == code.count(b) for a, b in ("()", "{}"))
    return balanced and not re.search(r"(?:,|\.\.|=|\b(?:and|or|then|do|function))\s*$", code)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _with(lines: list[str], at: int, instead: list[str]) -> tuple[int, str, str, str]:
    was = lines[at : at + len(instead)]
    text = "\n".join([*lines[:at], *instead, *lines[at + len(instead) :], ""])
    return at + 1, " / ".join(each.strip() for each in was), _said(instead), text


def _said(lines: list[str]) -> str:
    return " / ".join(each.strip() for each in lines) or "(removed)"
