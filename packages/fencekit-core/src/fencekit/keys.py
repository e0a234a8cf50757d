"""The only place where a Redis key or channel is spelled.

``{prefix}:{{name}}:{kind}``, with literal braces round the name, so that every key of one name
lives in one Cluster slot: ``fencekit:{invoices}:lock``.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = [
    "DEFAULT_PREFIX",
    "Names",
    "bare_channel",
    "cache_channel",
    "cache_entry",
    "cache_tag",
    "cache_ticket",
    "check_name",
    "check_owner_id",
    "check_prefix",
    "is_own_key",
    "names",
    "names_of_a_job",
    "process_channel",
    "utf8",
]

DEFAULT_PREFIX = "fencekit"
_NAME_BYTES = 512
_OWNER_BYTES = 128


_KINDS = frozenset({"lock", "fence", "gone", "idem", "queue", "tickets", "members", "unique"})
_SPELLED = (*sorted(_KINDS), "wake")


class Names:
    """The keys and channels of one name under one prefix, each spelled when it is first asked for.

    A job has a name of its own and one key, so spelling all of them took longer than what follows:
    only that one is spelled at once.
    """

    __slots__ = ("_stem", "name", "prefix", *_SPELLED)

    prefix: str
    name: str
    lock: str
    fence: str
    gone: str
    wake: str
    idem: str
    queue: str
    tickets: str
    members: str
    unique: str

    def __init__(self, prefix: str, name: str) -> None:
        self.prefix = prefix
        self.name = name
        self._stem = stem = f"{prefix}:{{{name}}}:"
        self.idem = stem + "idem"

    def __getattr__(self, kind: str) -> str:
        # Only for what is in no slot yet.
        if kind not in _SPELLED:
            raise AttributeError(kind)
        spelled = self._stem + kind
        setattr(self, kind, spelled)
        return spelled

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Names):
            return NotImplemented
        return (self.prefix, self.name) == (other.prefix, other.name)

    def __hash__(self) -> int:
        return hash((self.prefix, self.name))

    def __repr__(self) -> str:
        return f"Names({self.prefix!r}, {self.name!r})"


def names(prefix: str, name: str) -> Names:
    """Spell the keys of a name.

    Raises:
        TypeError: the name is not a str.
        ValueError: the name is empty, too long, has whitespace or control characters, or
            begins with ``}``.
    """
    try:
        return _spell(prefix, name)
    except TypeError:  # perhaps the cache's, about a list
        check_name(name)
        raise


def names_of_a_job(prefix: str, name: str) -> Names:
    """Spell the keys of a name that is seldom asked for again, so that nothing remembers it.

    Raises:
        TypeError, ValueError: as `names`.
    """
    check_name(name)
    # An enum that is a str equals its value and would be formatted as its name, or not, as the
    # Python version has it; keys are spelled alike everywhere.
    return Names(str.__str__(prefix), str.__str__(name))


_spell = lru_cache(maxsize=4096)(names_of_a_job)


def is_own_key(prefix: str, key: str) -> bool:
    """Whether a key is one of ours under this prefix, of whatever name."""
    stem, _, kind = key.rpartition("}:")
    return kind in _KINDS and stem.startswith(f"{prefix}:{{")


def process_channel(prefix: str, process_id: str) -> str:
    """The channel on which one process is woken, whatever the name."""
    return f"{prefix}:proc:{process_id}"


def bare_channel(key: str) -> str:
    """The channel on which the release of a bare lock wakes waiters."""
    return f"{DEFAULT_PREFIX}:bare:{key}"


def cache_entry(prefix: str, domain: str, key: str) -> str:
    """The key of a cache entry, or with an incomplete key what such keys begin with.

    Braces are encoded, so that an entry lives in the slot of its whole key, and a ticket or tag,
    which have braces, can never be taken for an entry.
    """
    if "%" in key or "{" in key or "}" in key:
        key = key.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
    return f"{prefix}:{domain}:{key}"


def cache_ticket(entry: str) -> str:
    """The key of the fill ticket of a cache entry, in the entry's own slot."""
    return f"{{{entry}}}:fill"


def cache_channel(entry: str) -> str:
    """The channel on which those are woken who wait for a cache entry to be filled."""
    return f"{DEFAULT_PREFIX}:cache:{entry}"


def cache_tag(prefix: str, domain: str, tag: str) -> str:
    """The key of a tag of a cache; all tags of one cache live in one slot."""
    return f"{{{prefix}:{domain}}}:tag:{tag}"


def check_name(name: str, what: str = "the name") -> None:
    """Refuse what cannot be a name.

    Raises:
        TypeError: the name is not a str.
        ValueError: the name is empty, too long, has whitespace or control characters, or
            begins with ``}`` (which would empty the Cluster hash tag).
    """
    _check_text(name, what, _NAME_BYTES)
    if name.startswith("}"):
        msg = f"{what} {name!r} begins with '}}', which would spread its keys over a cluster"
        raise ValueError(msg)


def check_prefix(prefix: str) -> str:
    """Return the prefix, or refuse it.

    Raises:
        TypeError: the prefix is not a str.
        ValueError: the prefix is empty, too long, or has whitespace, control characters or
            braces (a brace would move the hash tag away from the name).
    """
    _check_text(prefix, "the prefix", _OWNER_BYTES)
    if "{" in prefix or "}" in prefix:
        msg = f"the prefix {prefix!r} has a brace, which would move the Cluster hash tag"
        raise ValueError(msg)
    return prefix


def check_owner_id(owner_id: str) -> str:
    """Return the owner id, or refuse it.

    Raises:
        TypeError: the owner id is not a str.
        ValueError: the owner id is empty, longer than 128 bytes, or has a colon, whitespace
            or control characters.
    """
    _check_text(owner_id, "the owner id", _OWNER_BYTES)
    if ":" in owner_id:
        msg = f"the owner id {owner_id!r} has a ':', which separates the fields of a lock's value"
        raise ValueError(msg)
    return owner_id


def utf8(text: str, what: str) -> bytes:
    """The bytes of a text.

    Raises:
        ValueError: it has a lone surrogate.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        msg = f"{what} {text!r} cannot be written as UTF-8"
        raise ValueError(msg) from None


def _check_text(text: str, what: str, limit: int) -> None:
    if not isinstance(text, str):
        msg = f"{what} must be a str, not {type(text).__name__}"
        raise TypeError(msg)
    if not text:
        msg = f"{what} is empty"
        raise ValueError(msg)
    # isprintable is one pass in C and true for every usual name; it also refuses rarer but
    # legitimate characters, so only its "no" is looked into.
    if not text.isprintable() or " " in text:
        for char in text:
            if char.isspace() or ord(char) < ord(" ") or "\x7f" <= char <= "\x9f":
                msg = f"{what} {text!r} has whitespace or a control character"
                raise ValueError(msg)
    size = len(utf8(text, what))
    if size > limit:
        msg = f"{what} has {size} bytes of UTF-8; at most {limit} are allowed"
        raise ValueError(msg)
