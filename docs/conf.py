"""How Sphinx builds these pages: `hatch run docs`."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "fencekit"
author = "fencekit contributors"
copyright = f"2026, {author}"
release = version_of("fencekit-core")
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "lua_scripts",
    "sequence",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
# A link to a heading (page.md#a-heading) is checked as far down as this.
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
# What the arguments of a class mean stands with its __init__.
autoclass_content = "both"

html_theme = "furo"
html_title = f"fencekit {release}"
