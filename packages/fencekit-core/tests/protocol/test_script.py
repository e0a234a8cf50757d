"""Script files that are not in the form are refused, with file and line."""

from __future__ import annotations

from hashlib import sha1

import pytest

from fencekit.protocol.script import Script, ScriptError

GOOD = """\
--- Do a thing.
--
-- KEYS[1]  lock   {name}:lock  string  who holds
-- ARGV[1]  owner  str          who asks
-- ARGV[2+] rest   bytes        whatever else
--
-- Safe to re-send: yes, it does nothing
-- Read only: yes
--
-- Returns  1
--
-- @include "bury"
local lock, owner = KEYS[1], ARGV[1]

-- why
return 1
"""


def test_a_header_says_what_a_script_takes() -> None:
    script = Script.parse("good", GOOD)
    assert [(key.name, key.pattern, key.kind) for key in script.keys] == [
        ("lock", "{name}:lock", "string")
    ]
    assert [(arg.name, arg.kind, arg.rest) for arg in script.args] == [
        ("owner", "str", False),
        ("rest", "bytes", True),
    ]
    assert [key.about for key in script.keys] == ["who holds"]
    assert [arg.about for arg in script.args] == ["who asks", "whatever else"]
    assert (script.retry_safe, script.read_only) == (True, True)


def test_the_source_is_the_body_with_its_includes_and_without_the_header() -> None:
    script = Script.parse("good", GOOD)
    text = script.source.decode()
    assert text.endswith("local lock, owner = KEYS[1], ARGV[1]\nreturn 1")
    assert "local function bury_attempt(gone, attempt)" in text
    assert "{name}:lock" not in text
    assert not [line for line in text.splitlines() if not line.strip() or line.startswith("--")]
    assert script.sha == sha1(script.source, usedforsecurity=False).hexdigest()


def test_a_package_without_an_include_of_that_name_has_cores() -> None:
    assert Script.parse("good", GOOD, package="fencekit.cli").source.count(b"bury_attempt") == 1


def test_flags_that_say_no() -> None:
    script = Script.parse("x", "--- X.\n-- Safe to re-send: no, it counts\nreturn 1\n")
    assert (script.retry_safe, script.read_only) == (False, False)


@pytest.mark.parametrize(
    ("line", "broken", "message"),
    [
        ("--- Do a thing.", "-- Do a thing.", "bad.lua:1: a script begins with '--- '"),
        ("-- KEYS[1] ", "-- KEYS[2] ", "bad.lua:3: index 2 where 1 was expected"),
        ("-- KEYS[1]  lock   {name}:lock  string", "-- KEYS[1]  lock", "bad.lua:3: not a line"),
        ("-- ARGV[2+]", "-- ARGV[3+]", "bad.lua:5: index 3 where 2 was expected"),
        ("-- ARGV[1]  owner  str", "-- ARGV[one]  owner  str", "bad.lua:4: not a line of a header"),
        ("-- Safe to re-send: yes", "-- Safe to re-send: maybe", "bad.lua:1: the header does not"),
        ('@include "bury"', '@include "burry"', 'bad.lua:12: there is no include "burry"'),
    ],
)
def test_errors_name_file_and_line(line: str, broken: str, message: str) -> None:
    assert line in GOOD
    with pytest.raises(ScriptError) as raised:
        Script.parse("bad", GOOD.replace(line, broken))
    assert str(raised.value).startswith(message)


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(ScriptError, match=r"^x\.lua:1: "):
        Script.parse("x", "")


def test_a_script_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        Script.load("fencekit", "lock_steal")
