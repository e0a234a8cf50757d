"""Results as they are kept for a replay: the bytes of the task's own serializer.

The first run returns what its memo says too. So a replay is the same value down to what a pickle
shares inside, and encodes to the same bytes: a chord that was told a result twice counts it once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from kombu import serialization

from fencekit.errors import IdempotencyResultMissing
from fencekit.protocol import memo as markers
from fencekit.protocol.memo import Memo

__all__ = ["decode", "encode"]

_log = logging.getLogger("fencekit.celery")

_kombu: Final[Any] = serialization  # it has no types

# A memo's encoding is "content type;content encoding"; a marker has no semicolon.
_SEPARATOR: Final = ";"
_JSON: Final = "application/json;utf-8"
# What a pydantic model says of itself.
_MODEL: Final = "application/vnd.fencekit.model+json;utf-8"
_SHORT_BITS: Final = 64


def encode(
    serializers: Sequence[str],
    key: str,
    result: Any,
    model: Callable[[], Any] = lambda: None,
) -> tuple[Memo, Any]:
    """What is kept of a result, and the result as a replay will give it. Never raises.

    What cannot be written leaves a marker and a warning, and is returned as it is.

    Args:
        serializers: names known to kombu; the first that can write it is used.
        key: for the log.
        result: what the task returned.
        model: says which model of pydantic the task returns, if it does.
    """
    if serializers[0] == "json" and (text := _plain(result)) is not None:
        return Memo(_JSON, text.encode()), result
    for serializer in serializers:
        try:
            kind, encoding, data = _kombu.dumps(result, serializer)
            raw = data.encode(encoding) if isinstance(data, str) else bytes(data)
            memo = Memo(f"{kind}{_SEPARATOR}{encoding}", raw)
            value = decode(serializers, key, memo)
        # The effect has happened, and nothing that is wrong with its result may undo its record.
        except Exception:  # noqa: BLE001, S112 - the next one may write it, and the last is told
            continue
        return memo, value
    if (text := _of_model(result, model)) is not None:
        # Celery makes data of it later, in a way that is known to the task alone.
        return Memo(_MODEL, text.encode()), result
    _log.warning(
        "the result for %r (a %s) is not kept: its serializer cannot write it; the work is "
        "recorded as done, and a replay raises IdempotencyResultMissing",
        key,
        type(result).__qualname__,
    )
    return Memo(markers.UNSERIALISABLE, b""), result


def _of_model(result: Any, model: Callable[[], Any]) -> str | None:
    """JSON of which the task's model is made again as it is; None of what is none, or cannot be."""
    with suppress(Exception):  # validators may raise anything
        kind = model() if hasattr(result, "model_dump_json") else None
        if kind is not None and type(result) is kind:
            for by_alias in (False, True):
                text: str = result.model_dump_json(round_trip=True, by_alias=by_alias)
                with suppress(ValueError):
                    if kind.model_validate_json(text) == result:
                        return text
    return None


def _plain(result: Any) -> str | None:
    """What kombu's JSON is of a result that comes back as the very same; None of any other."""
    if result is None:
        return "null"
    kind = type(result)
    # Beyond ASCII two halves of a character come back as one, and long integers have a limit.
    if kind is str and result.isascii():
        return encode_basestring_ascii(result)
    if kind is int and result.bit_length() <= _SHORT_BITS:
        return str(result)
    return None


def decode(
    serializers: Sequence[str],
    key: str,
    memo: Memo,
    model: Callable[[], Any] = lambda: None,
) -> Any:
    """Read a result back.

    Only what these serializers may have written is read, so that who can write to Redis cannot
    have a pickle loaded by a task that uses JSON.

    Args:
        serializers: as for `encode`.
        key: for errors.
        memo: what is kept.
        model: as for `encode`.

    Raises:
        IdempotencyResultMissing: a marker, damaged, or of another serializer.
    """
    kind, separator, encoding = memo.encoding.partition(_SEPARATOR)
    if not separator:
        # Core's own: a marker, or JSON that a guard has written for the same key.
        return markers.decode(key, memo.encoding, memo.data)
    if memo.encoding == _MODEL:
        return _decode_model(key, memo, model())
    if kind not in {_kombu.registry.name_to_type.get(name) for name in serializers}:
        reason = f"it is stored as {kind!r}, which this task does not read"
        raise IdempotencyResultMissing(key, reason=reason)
    try:
        return _kombu.loads(memo.data, kind, encoding, accept={kind}, force=True)
    except Exception:  # noqa: BLE001 - any loader may raise anything
        raise IdempotencyResultMissing(key, reason="its memo is damaged") from None


def _decode_model(key: str, memo: Memo, model: Any) -> Any:
    try:
        return model.model_validate_json(memo.data)
    except Exception:  # noqa: BLE001 - validators may raise anything
        reason = "it is a model's, and the task does not return that model any more"
        raise IdempotencyResultMissing(key, reason=reason) from None
