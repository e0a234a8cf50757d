"""A directive that documents Lua scripts from their headers: ``{lua-scripts} fencekit``.

The header is data that a test holds to the body and to the Python that calls it, so this page
cannot drift from either.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive

from fencekit.protocol.script import Param, Script

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_RETURNS = re.compile(r"^-- Returns  (.*?)^--$", re.MULTILINE | re.DOTALL)


class LuaScripts(Directive):
    """A section for each script of a package."""

    required_arguments = 1
    has_content = False
    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        """Build the sections."""
        package = self.arguments[0]
        folder = files(package).joinpath("lua")
        names = sorted(
            entry.name.removesuffix(".lua")
            for entry in folder.iterdir()
            if entry.name.endswith(".lua")
        )
        return [
            _section(package, name, folder.joinpath(f"{name}.lua").read_text()) for name in names
        ]


def _section(package: str, name: str, text: str) -> nodes.Node:
    script = Script.load(package, name)
    section = nodes.section(ids=[f"{package.replace('.', '-')}-{name.replace('_', '-')}"])
    section += nodes.title(text=name)
    section += nodes.paragraph(text=text.splitlines()[0].removeprefix("--- "))
    section += _list("KEYS", script.keys)
    section += _list("ARGV", script.args)
    returns = _RETURNS.search(text)
    if returns is not None:
        lines = [
            line.removeprefix("--").removeprefix("          ") for line in returns[1].splitlines()
        ]
        section += nodes.paragraph(text="Returns")
        section += nodes.literal_block(text="\n".join(line.strip() for line in lines))
    flags = ["safe to re-send" if script.retry_safe else "not re-sent"]
    if script.read_only:
        flags.append("read only")
    section += nodes.paragraph(text=f"{', '.join(flags).capitalize()}.")
    return section


def _list(title: str, params: tuple[Param, ...]) -> list[nodes.Node]:
    if not params:
        return []
    items = nodes.bullet_list()
    for number, param in enumerate(params, start=1):
        index = f"{number}+" if param.rest else f"{number}"
        paragraph = nodes.paragraph()
        paragraph += nodes.literal(text=f"{title}[{index}] {param.name}")
        kind = f"{param.pattern} ({param.kind})" if param.pattern else param.kind
        paragraph += nodes.Text(f" {kind}: {param.about}")
        items += nodes.list_item("", paragraph)
    return [items]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("lua-scripts", LuaScripts)
    return {"parallel_read_safe": True}
