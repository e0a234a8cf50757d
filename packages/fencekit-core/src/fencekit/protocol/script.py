"""Lua scripts as data: loaded, included, and described by a header that tests hold them to.

Each file begins with a header in ``--`` comments::

    --- One sentence: the effect.
    --
    -- KEYS[1]  lock     {name}:lock    string  what it holds; when it expires
    -- ARGV[1]  owner    str            who holds
    -- ARGV[2]  ttl_ms   int            lease, milliseconds
    -- ARGV[3+] fields   str            the rest, when a script takes a list
    --
    -- Safe to re-send: yes             or: no, and why
    -- Read only: yes                   only where it is
    --
    -- Returns  {1, token}  granted
    --
    -- @include "fence"

An include is spliced in where its line stands. Errors name the file and the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha1
from pkgutil import get_data

__all__ = ["Param", "Script", "ScriptError"]

_KEY = re.compile(r"^-- KEYS\[(\d+)\]\s+(\w+)\s+(\S+)\s+(\w+)\s+(.+)$")
_ARG = re.compile(r"^-- ARGV\[(\d+)(\+?)\]\s+(\w+)\s+(\w+)\s+(.+)$")
_FLAG = re.compile(r"^-- (Safe to re-send|Read only): (yes|no)\b")
_INCLUDE = re.compile(r'^-- @include "([a-z_]+)"$')


class ScriptError(Exception):
    """A script file is not in the form that this module describes."""


@dataclass(frozen=True)
class Param:
    """One key or argument of a script, as its header declares it.

    Attributes:
        name: the local name the body binds.
        kind: for a key its type (string, hash, …), for an argument str, int or bytes.
        pattern: for a key its pattern, e.g. ``{name}:lock``; empty for an argument.
        about: the rest of the line.
        rest: whether it stands for all the arguments from its index on.
    """

    name: str
    kind: str
    pattern: str
    about: str
    rest: bool = False


@dataclass(frozen=True, eq=False)
class Script:
    """A Lua script, ready to be sent. Compared and hashed by identity: every command looks it up.

    Attributes:
        name: the file's stem, e.g. ``lock_acquire``.
        source: the Lua, includes spliced in, header comments removed.
        sha: the SHA-1 that EVALSHA takes.
        keys: the declared KEYS.
        args: the declared ARGV.
        retry_safe: whether a second copy of the command changes nothing the first did not.
        read_only: whether it writes nothing.

    Where ``sha`` is empty it is no script but a command of the server's own, `name`, which takes
    keys and arguments in that order.
    """

    name: str
    source: bytes
    sha: str
    keys: tuple[Param, ...]
    args: tuple[Param, ...]
    retry_safe: bool
    read_only: bool

    @classmethod
    def command(cls, name: str, *, read_only: bool) -> Script:
        """A command of the server's own that may be sent again, such as GET."""
        return cls(name, b"", "", (), (), retry_safe=True, read_only=read_only)

    @classmethod
    def load(cls, package: str, name: str) -> Script:
        """Read ``lua/<name>.lua`` of a package.

        Includes are looked for in the package's own ``lua/include/`` first, then in core's.

        Raises:
            ScriptError: the header or an include is malformed; the message names file and line.
            FileNotFoundError: there is no such file.
        """
        return cls.parse(name, _read(package, f"lua/{name}.lua"), package=package)

    @classmethod
    def parse(cls, name: str, text: str, *, package: str = "fencekit") -> Script:
        """Build a script from its text.

        Raises:
            ScriptError: the header or an include is malformed; the message names file and line.
            FileNotFoundError: an include does not exist.
        """
        keys: list[Param] = []
        args: list[Param] = []
        flags: dict[str, bool] = {}
        body: list[str] = []
        if not text.startswith("--- "):
            msg = f"{name}.lua:1: a script begins with '--- ' and one sentence"
            raise ScriptError(msg)
        for number, line in enumerate(text.splitlines(), start=1):
            where = f"{name}.lua:{number}"
            if include := _INCLUDE.match(line):
                body.extend(_include(package, include[1], where))
            elif line.startswith("-- KEYS["):
                found = _match(_KEY, line, where)
                _expect_index(int(found[1]), len(keys), where)
                keys.append(Param(found[2], found[4], found[3], found[5]))
            elif line.startswith("-- ARGV["):
                found = _match(_ARG, line, where)
                _expect_index(int(found[1]), len(args), where)
                args.append(Param(found[3], found[4], "", found[5], rest=bool(found[2])))
            elif flag := _FLAG.match(line):
                flags[flag[1]] = flag[2] == "yes"
            elif not line.startswith("--") and line.strip():
                body.append(line)
        if "Safe to re-send" not in flags:
            msg = f"{name}.lua:1: the header does not say 'Safe to re-send: yes' or 'no'"
            raise ScriptError(msg)
        source = "\n".join(body).encode()
        return cls(
            name=name,
            source=source,
            # SHA-1 is what EVALSHA is defined by; nothing is secured with it.
            sha=sha1(source, usedforsecurity=False).hexdigest(),
            keys=tuple(keys),
            args=tuple(args),
            retry_safe=flags["Safe to re-send"],
            read_only=flags.get("Read only", False),
        )


def _read(package: str, path: str) -> str:
    data = get_data(package, path)
    if data is None:  # pragma: no cover - only loaders without get_data
        msg = f"{package} cannot read its own {path}"
        raise FileNotFoundError(msg)
    return data.decode()


def _include(package: str, name: str, where: str) -> list[str]:
    path = f"lua/include/{name}.lua"
    for home in dict.fromkeys((package, "fencekit")):
        try:
            text = _read(home, path)
        except FileNotFoundError:
            continue
        return [line for line in text.splitlines() if line.strip() and not line.startswith("--")]
    msg = f'{where}: there is no include "{name}" ({path})'
    raise ScriptError(msg)


def _match(pattern: re.Pattern[str], line: str, where: str) -> re.Match[str]:
    found = pattern.match(line)
    if found is None:
        msg = f"{where}: not a line of a header: {line!r}"
        raise ScriptError(msg)
    return found


def _expect_index(index: int, known: int, where: str) -> None:
    if index != known + 1:
        msg = f"{where}: index {index} where {known + 1} was expected"
        raise ScriptError(msg)
