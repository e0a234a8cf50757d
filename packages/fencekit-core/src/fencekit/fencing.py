"""The gate: writes that carry a fencing token are refused once a newer one is known.

::

    gate = FenceGate(redis)
    gate.set_if_fresh(handle.token, "invoices:status", "running")  # FencedOutError if replaced

Granting a lock advances its fence, so a stale holder is refused from the moment its successor is
granted, not only after the successor's first write. Without a record only the token of the lock
that is held is accepted: the gate fails closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeAlias

from fencekit.drivers.aio import AsyncDriver
from fencekit.drivers.client import slot_of
from fencekit.drivers.sync import SyncDriver
from fencekit.durations import milliseconds
from fencekit.errors import FencedOutError
from fencekit.hooks import FenceAdvanced, FenceKitHooks, FenceRejected, with_installed
from fencekit.keys import DEFAULT_PREFIX, check_prefix, is_own_key, names, utf8
from fencekit.protocol import fence as protocol
from fencekit.protocol.fence import Judgement, Passed, Stale
from fencekit.protocol.operation import Operation
from fencekit.protocol.token import FenceToken, check_token

__all__ = ["AsyncFenceGate", "FenceGate"]

Value: TypeAlias = str | bytes | int | float


class _Gate:
    """What both colours of gate check, ask for, and make of the answers."""

    _is_cluster: bool

    def __init__(
        self,
        *,
        prefix: str,
        remote: bool,
        fence_retention: timedelta,
        hooks: FenceKitHooks | None,
    ) -> None:
        self.prefix = check_prefix(prefix)
        self._remote = bool(remote)
        self._retention_ms = milliseconds(fence_retention, "fence_retention")
        self._hooks = with_installed(hooks)

    def _check(self, token: FenceToken, *, advance: bool) -> Operation[Judgement]:
        return protocol.check(
            self.prefix,
            check_token(token),
            self._retention_ms,
            remote=self._remote,
            advance=advance,
        )

    def _set(
        self, token: FenceToken, key: str, value: Value, ttl: timedelta | None
    ) -> Operation[Judgement]:
        self._check_target(token, key)
        return protocol.set_value(
            self.prefix,
            token,
            self._retention_ms,
            key=key,
            value=_encoded(value, "the value"),
            ttl_ms=0 if ttl is None else milliseconds(ttl, "ttl"),
            remote=self._remote,
        )

    def _delete(self, token: FenceToken, key: str) -> Operation[Judgement]:
        self._check_target(token, key)
        return protocol.delete(self.prefix, token, self._retention_ms, key=key, remote=self._remote)

    def _hset(
        self, token: FenceToken, key: str, mapping: Mapping[str, Value]
    ) -> Operation[Judgement]:
        self._check_target(token, key)
        if not isinstance(mapping, Mapping):
            msg = f"the mapping must be a mapping, not {type(mapping).__name__}"
            raise TypeError(msg)
        if not mapping:
            msg = "the mapping is empty: there is nothing to write"
            raise ValueError(msg)
        fields: dict[str, str | bytes] = {}
        for name, value in mapping.items():
            if not isinstance(name, str):
                msg = f"a field must be a str, not {type(name).__name__}"
                raise TypeError(msg)
            utf8(name, "the field")
            fields[name] = _encoded(value, f"the value of {name!r}")
        return protocol.hset(
            self.prefix, token, self._retention_ms, key=key, mapping=fields, remote=self._remote
        )

    def _check_target(self, token: FenceToken, key: str) -> None:
        check_token(token)
        if not isinstance(key, str):
            msg = f"the key must be a str, not {type(key).__name__}"
            raise TypeError(msg)
        if not key:
            msg = "the key is empty"
            raise ValueError(msg)
        utf8(key, "the key")
        if is_own_key(self.prefix, key):
            msg = f"{key!r} is one of fencekit's own keys; write to a key of yours"
            raise ValueError(msg)
        if self._is_cluster:
            own = names(self.prefix, token.resource)
            if slot_of(key) != slot_of(own.fence):
                msg = (
                    f"on a cluster {key!r} does not live beside the fence of "
                    f"{token.resource!r}: name it so that it contains {{{token.resource}}}, e.g. "
                    f"'{{{token.resource}}}:{key}'"
                )
                raise ValueError(msg)

    def _settle(self, token: FenceToken, judgement: Judgement, *, advances: bool = True) -> Passed:
        hooks = self._hooks
        if isinstance(judgement, Stale):
            if hooks is not None and hooks.on_rejected is not None:
                hooks.fire(
                    hooks.on_rejected,
                    FenceRejected(
                        resource=token.resource, token=int(token), current=judgement.current
                    ),
                )
            raise FencedOutError(token.resource, token=token, current=judgement.current)
        if advances and hooks is not None and hooks.on_advanced is not None:
            hooks.fire(hooks.on_advanced, FenceAdvanced(resource=token.resource, token=int(token)))
        return judgement

    def _current(self, resource: str) -> Operation[int | None]:
        return protocol.current(self.prefix, resource, remote=self._remote)


def _encoded(value: Value, what: str) -> str | bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return utf8(value, what)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value) if isinstance(value, float) else str(int(value))
    msg = f"{what} must be a str, bytes, int or float, not {type(value).__name__}"
    raise TypeError(msg)


class FenceGate(_Gate):
    """Writes to Redis that a replaced worker cannot make."""

    def __init__(
        self,
        redis: Any,
        *,
        prefix: str = DEFAULT_PREFIX,
        remote: bool = False,
        fence_retention: timedelta = timedelta(days=30),
        hooks: FenceKitHooks | None = None,
    ) -> None:
        """Make a gate on a server.

        Args:
            redis: a sync client of redis-py or valkey-py.
            prefix: the prefix of the locks whose tokens are shown.
            remote: the locks live on another server; this gate keeps the highest token it is
                shown instead of the record of the grants.
            fence_retention: how long a record that this gate makes outlives its last use.
            hooks: callbacks for events.

        Raises:
            TypeError: an async client, or no client; a duration that is no timedelta.
            ValueError: a prefix or duration that makes no sense.
        """
        super().__init__(prefix=prefix, remote=remote, fence_retention=fence_retention, hooks=hooks)
        self._driver = SyncDriver.of(redis)
        self._is_cluster = self._driver.is_cluster
        self._redis = redis  # the driver lives as long as its client does

    def set_if_fresh(
        self, token: FenceToken, key: str, value: Value, *, ttl: timedelta | None = None
    ) -> None:
        """Set a key, unless a newer token is known. ``ttl`` is how long the key lives.

        Raises:
            FencedOutError: a newer token is known; the key is untouched.
            StoreUnavailable, StoreRefused: nothing was written.
            OutcomeUnknown: no answer; writing the same again is safe.
            TypeError, ValueError: not a token, a key that may not be written, a value that cannot
                be stored; nothing was sent.
        """
        self._settle(token, self._driver.execute(self._set(token, key, value, ttl)))

    def delete_if_fresh(self, token: FenceToken, key: str) -> bool:
        """Delete a key, unless a newer token is known; returns whether there was one.

        Raises:
            FencedOutError: a newer token is known; the key is untouched.
            StoreUnavailable, StoreRefused, OutcomeUnknown, TypeError, ValueError: as for
                `set_if_fresh`.
        """
        return self._settle(token, self._driver.execute(self._delete(token, key))).count > 0

    def hset_if_fresh(self, token: FenceToken, key: str, mapping: Mapping[str, Value]) -> None:
        """Set fields of a hash, unless a newer token is known.

        Raises:
            FencedOutError: a newer token is known; the key is untouched.
            StoreUnavailable, StoreRefused, OutcomeUnknown, TypeError, ValueError: as for
                `set_if_fresh`.
        """
        self._settle(token, self._driver.execute(self._hset(token, key, mapping)))

    def check(self, token: FenceToken) -> None:
        """Ask whether a token may still write. Somebody newer may come right after the answer.

        Raises:
            FencedOutError: a newer token is known.
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError: not a token.
        """
        judgement = self._driver.execute(self._check(token, advance=False))
        self._settle(token, judgement, advances=False)

    def check_and_advance(self, token: FenceToken) -> None:
        """Ask whether a token may still write, and shut every older one out.

        Raises:
            FencedOutError: a newer token is known.
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError: not a token.
        """
        self._settle(token, self._driver.execute(self._check(token, advance=True)))

    def current_max(self, resource: str) -> int | None:
        """The highest token known for a lock's name, or None.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: the resource cannot be a name.
        """
        return self._driver.execute(self._current(resource))


class AsyncFenceGate(_Gate):
    """The async twin of `FenceGate`: same methods, same arguments, same meanings."""

    def __init__(
        self,
        redis: Any,
        *,
        prefix: str = DEFAULT_PREFIX,
        remote: bool = False,
        fence_retention: timedelta = timedelta(days=30),
        hooks: FenceKitHooks | None = None,
    ) -> None:
        """Make a gate on a server; see `FenceGate`.

        Args:
            redis: an async client of redis-py or valkey-py.
            prefix: the prefix of the locks whose tokens are shown.
            remote: the locks live on another server.
            fence_retention: how long a record that this gate makes outlives its last use.
            hooks: callbacks for events; called in the loop.

        Raises:
            TypeError: a sync client, or no client; a duration that is no timedelta.
            ValueError: a prefix or duration that makes no sense.
        """
        super().__init__(prefix=prefix, remote=remote, fence_retention=fence_retention, hooks=hooks)
        self._driver = AsyncDriver.of(redis)
        self._is_cluster = self._driver.is_cluster
        self._redis = redis  # the driver lives as long as its client does

    async def set_if_fresh(
        self, token: FenceToken, key: str, value: Value, *, ttl: timedelta | None = None
    ) -> None:
        """Set a key, unless a newer token is known; see `FenceGate.set_if_fresh`.

        Raises:
            FencedOutError: a newer token is known; the key is untouched.
            StoreUnavailable, StoreRefused, OutcomeUnknown, TypeError, ValueError: as there.
        """
        self._settle(token, await self._driver.execute(self._set(token, key, value, ttl)))

    async def delete_if_fresh(self, token: FenceToken, key: str) -> bool:
        """Delete a key, unless a newer token is known; see `FenceGate.delete_if_fresh`.

        Raises:
            FencedOutError: a newer token is known; the key is untouched.
            StoreUnavailable, StoreRefused, OutcomeUnknown, TypeError, ValueError: as there.
        """
        return self._settle(token, await self._driver.execute(self._delete(token, key))).count > 0

    async def hset_if_fresh(
        self, token: FenceToken, key: str, mapping: Mapping[str, Value]
    ) -> None:
        """Set fields of a hash, unless a newer token is known; see `FenceGate.hset_if_fresh`.

        Raises:
            FencedOutError: a newer token is known; the key is untouched.
            StoreUnavailable, StoreRefused, OutcomeUnknown, TypeError, ValueError: as there.
        """
        self._settle(token, await self._driver.execute(self._hset(token, key, mapping)))

    async def check(self, token: FenceToken) -> None:
        """Ask whether a token may still write; see `FenceGate.check`.

        Raises:
            FencedOutError: a newer token is known.
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError: not a token.
        """
        judgement = await self._driver.execute(self._check(token, advance=False))
        self._settle(token, judgement, advances=False)

    async def check_and_advance(self, token: FenceToken) -> None:
        """Ask whether a token may still write, and shut every older one out.

        Raises:
            FencedOutError: a newer token is known.
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError: not a token.
        """
        self._settle(token, await self._driver.execute(self._check(token, advance=True)))

    async def current_max(self, resource: str) -> int | None:
        """The highest token known for a lock's name, or None.

        Raises:
            StoreUnavailable, StoreRefused, OutcomeUnknown: no answer.
            TypeError, ValueError: the resource cannot be a name.
        """
        return await self._driver.execute(self._current(resource))
