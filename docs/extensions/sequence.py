"""A directive for sequence diagrams, ``{sequence} title``: see ``sequence_drawing``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from sequence_drawing import draw, parse

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class Sequence(Directive):
    """Inline SVG for HTML, and the lines themselves for every other format."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        """Build the diagram."""
        try:
            steps = parse(list(self.content))
        except ValueError as error:
            raise self.error(str(error)) from error
        return [nodes.raw("", draw(self.arguments[0], steps), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("sequence", Sequence)
    return {"parallel_read_safe": True}
