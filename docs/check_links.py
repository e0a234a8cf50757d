"""Look over the built pages: each link within them leads somewhere, nothing comes from elsewhere.

``python docs/check_links.py docs/_build/html`` prints what is wrong, and fails if anything is.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["complaints"]

# What a browser fetches by itself when it shows the page.
_LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class _Page(HTMLParser):
    """The ids of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what one tag says."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        for name, value in given.items():
            if (tag, name) in _LOADED or (tag, name, given.get("rel")) == (
                "link",
                "href",
                "stylesheet",
            ):
                self.loaded.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def complaints(root: Path) -> list[str]:
    """What is wrong with the pages in a folder, each with the page that it is on."""
    root = root.resolve()
    pages = {path: _Page(path.read_text()) for path in sorted(root.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        where = path.relative_to(root)
        found += [f"{where} loads {each}" for each in page.loaded if _elsewhere(each)]
        for each in (*page.links, *page.loaded):
            if why := _dead(each, path, pages):
                found.append(f"{where}: {each}: {why}")
    return found


def _elsewhere(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme not in ("", "data") or bool(parts.netloc)


def _dead(address: str, page: Path, pages: dict[Path, _Page]) -> str | None:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return "there is no such file"
    fragment = unquote(parts.fragment)
    if fragment and target in pages and fragment not in pages[target].ids:
        return "there is no such place on that page"
    return None


if __name__ == "__main__":
    wrong = complaints(Path(sys.argv[1]))
    sys.stderr.writelines(f"{each}\n" for each in wrong)
    sys.exit(bool(wrong))
