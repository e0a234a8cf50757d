"""What must never be printed, and taking it out of what is."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote, urlsplit

__all__ = ["Secrets"]

_STARS = "***"


class Secrets:
    """The secrets of a URL, to be taken out of messages and tracebacks.

    Its representation says nothing, since tracebacks of some tools show variables.
    """

    def __init__(self, url: str) -> None:
        self._words = sorted(_words(url), key=len, reverse=True)

    def hide(self, text: str) -> str:
        """The text with stars in the place of each secret."""
        for word in self._words:
            text = text.replace(word, _STARS)
        return text

    def __repr__(self) -> str:
        return "<Secrets>"


def _words(url: str) -> set[str]:
    """The URL itself and each password in it, as written and as meant.

    Also of a URL that cannot be parsed: what stands before its last ``@``.
    """
    found = {url}
    userinfo = url.partition("://")[2].rpartition("@")[0]
    password = userinfo.partition(":")[2] or userinfo
    if ":" in userinfo:
        found.add(userinfo)
    found |= {password, *password.split("/"), *password.split("?"), *password.split("#")}
    try:
        query = urlsplit(url).query
    except ValueError:
        query = url.partition("?")[2]
    found |= {value for name, value in parse_qsl(query) if "password" in name.lower()}
    found |= {unquote(word) for word in found} | {quote(word, safe="") for word in found}
    found |= {repr(word)[1:-1] for word in found}
    return {word for word in found if word}
