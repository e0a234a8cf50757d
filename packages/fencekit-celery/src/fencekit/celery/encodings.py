"""In which encoding a message is sent again: what it came in is not told to its task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kombu import serialization

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["encodings"]

_kombu: Final[Any] = serialization  # it has no types


def encodings(preferred: str, accepted: Iterable[str], arguments: Any) -> list[str]:
    """Names known to kombu, in the order of trying: first what keeps the arguments as they are.

    Args:
        preferred: the task's own.
        accepted: what the workers read: names, or content types.
        arguments: JSON would make texts of a dict's numbers and lists of tuples, for instance.
    """
    names = [_kombu.registry.type_to_name.get(one, one) for one in accepted]
    names = list(dict.fromkeys([preferred, *names]))
    if len(names) > 1:
        names.sort(key=lambda name: not _keeps(name, arguments))  # stable
    return names


def _keeps(name: str, arguments: Any) -> bool:
    try:
        kind, encoding, data = _kombu.dumps(arguments, name)
        again = _kombu.loads(data, kind, encoding, accept={kind}, force=True)
        return _same(arguments, again)
    except Exception:  # noqa: BLE001 - any serializer may raise anything
        return False


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        one, other = [*one.items()], [*other.items()]
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
