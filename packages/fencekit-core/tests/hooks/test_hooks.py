"""Hooks hear of events, cannot break their caller, and are never asynchronous.

Shown to fail: with `except BaseException`, with no memory of what was logged, with one memory for
all callbacks, with a memory that is looked up and then written, and with a look at the callback
alone, past its class and what a `partial` wraps.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import threading
import typing
from unittest.mock import AsyncMock, Mock

import pytest

from fencekit import hooks as module
from fencekit.hooks import (
    ClaimBegun,
    ClaimDone,
    ClaimLost,
    ClaimOutcome,
    FenceAdvanced,
    FenceKitHooks,
    FenceRejected,
    LockAcquired,
    LockFailed,
    LockLost,
    LockReleased,
    LockWaited,
    install_hooks,
    with_installed,
)

if typing.TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

LOST = LockLost(resource="invoices", token=7, held_ms=12.5)
EVENTS = {
    "on_acquired": LockAcquired(resource="invoices", token=7, owner_id="w1", waited_ms=0.4),
    "on_failed": LockFailed(resource="invoices", owner_id="w1", waited_ms=0.4, holder=None),
    "on_released": LockReleased(resource="invoices", token=7, held_ms=12.5, verdict="released"),
    "on_lost": LOST,
    "on_waited": LockWaited(resource="invoices", waited_ms=80.0, acquired=True),
    "on_rejected": FenceRejected(resource="invoices", token=7, current=9),
    "on_advanced": FenceAdvanced(resource="invoices", token=9),
    "on_begin": ClaimBegun(key="charge:1", attempt=1, fence=7, reclaimed=False),
    "on_outcome": ClaimOutcome(key="charge:1", outcome="already_done"),
    "on_done": ClaimDone(key="charge:1", fence=7, ended="completed", ran_ms=31.0),
    "on_claim_lost": ClaimLost(key="charge:1", fence=7, ran_ms=31.0),
}
CALLBACKS = [f.name for f in dataclasses.fields(FenceKitHooks) if f.init]


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __call__(self, _event: object) -> None:
        raise ValueError("unhashable")


def failing(_event: object) -> None:
    raise ValueError("broken hook")


def also_failing(_event: object) -> None:
    raise ValueError("another broken hook")


@pytest.fixture
def nothing_installed() -> Iterator[None]:
    yield
    install_hooks(None)


def test_every_callback_has_an_event() -> None:
    assert list(EVENTS) == CALLBACKS


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_callback_hears_its_event(name: str) -> None:
    heard: list[object] = []
    hooks = FenceKitHooks(**{name: heard.append})
    assert [other for other in CALLBACKS if getattr(hooks, other) is not None] == [name]
    hooks.fire(getattr(hooks, name), EVENTS[name])
    assert heard == [EVENTS[name]]


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_an_event_is_frozen_slotted_and_says_what_each_attribute_is(event: object) -> None:
    names = [f.name for f in dataclasses.fields(event)]  # type: ignore[arg-type]
    assert not hasattr(event, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, names[0], "x")
    documented = inspect.getdoc(event) or ""
    for name in names:
        assert f"\n    {name}: " in documented
        assert name.endswith("_ms") == (typing.get_type_hints(type(event))[name] is float)
    # Results, errors and payloads never appear in logs or spans.
    assert not {"result", "error", "payload", "value", "args"} & set(names)


def test_what_is_public_is_what_a_callback_is_told() -> None:
    told = {type(event).__name__ for event in EVENTS.values()}
    assert set(module.__all__) == told | {"FenceKitHooks", "Hooks", "install_hooks"}


def test_a_raising_callback_is_logged_once_and_breaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = FenceKitHooks(on_lost=failing)
    assert hooks.on_lost is not None
    for _ in range(3):
        hooks.fire(hooks.on_lost, LOST)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("fencekit.hooks", logging.ERROR)
    assert "on_lost raised" in record.message
    assert "failing" in record.message
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "broken hook"


def test_each_callback_is_logged_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    hooks = FenceKitHooks(on_lost=failing, on_waited=also_failing, on_begin=Unhashable())
    for _ in range(2):
        for name in ("on_lost", "on_waited", "on_begin"):
            hooks.fire(getattr(hooks, name), EVENTS[name])
    assert [record.message.split()[0] for record in caplog.records] == [
        "on_lost",
        "on_waited",
        "on_begin",
    ]


def test_of_many_threads_one_logs(caplog: pytest.LogCaptureFixture) -> None:
    start = threading.Barrier(8)

    def raise_together(event: object) -> None:
        start.wait(timeout=10)
        failing(event)

    hooks = FenceKitHooks(on_lost=raise_together)
    threads = [
        threading.Thread(target=hooks.fire, args=(hooks.on_lost, LOST), daemon=True)
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_the_process_passes(error: type[BaseException]) -> None:
    hooks = FenceKitHooks(on_lost=Mock(side_effect=error))
    assert hooks.on_lost is not None
    with pytest.raises(error):
        hooks.fire(hooks.on_lost, LOST)


async def coroutine(_event: object) -> None: ...


async def generator(_event: object) -> AsyncIterator[int]:
    yield 1


class AsyncObject:
    async def __call__(self, _event: object) -> None: ...

    async def method(self, _event: object) -> None: ...


@pytest.mark.parametrize(
    "callback",
    [
        coroutine,
        generator,
        AsyncObject(),
        AsyncObject().method,
        functools.partial(coroutine),
        functools.partial(AsyncObject()),
        AsyncMock(),
    ],
    ids=["function", "generator", "object", "method", "partial", "partial-of-object", "mock"],
)
@pytest.mark.parametrize("name", ["on_acquired", "on_done"])
def test_an_async_callback_is_refused(name: str, callback: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must be a plain function"):
        FenceKitHooks(**{name: callback})


@pytest.mark.parametrize("value", ["print", 1, [print]], ids=repr)
def test_what_cannot_be_called_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"^on_lost must be callable, not (str|int|list)$"):
        FenceKitHooks(on_lost=value)  # type: ignore[arg-type]


def test_any_plain_callable_will_do() -> None:
    heard: list[object] = []
    for callback in (heard.append, functools.partial(heard.append), Mock(), print):
        FenceKitHooks(on_lost=callback)


def test_the_annotations_can_be_read() -> None:
    told = typing.get_type_hints(FenceKitHooks)
    for name, event in EVENTS.items():
        (callback,) = (kind for kind in typing.get_args(told[name]) if kind is not type(None))
        assert typing.get_args(callback) == ([type(event)], object)


def test_hooks_are_frozen_comparable_and_replaceable() -> None:
    hooks = FenceKitHooks(on_lost=failing)
    with pytest.raises(dataclasses.FrozenInstanceError):
        hooks.on_lost = None  # type: ignore[misc]
    assert hooks == FenceKitHooks(on_lost=failing)
    assert hash(hooks) == hash(FenceKitHooks(on_lost=failing))
    assert dataclasses.replace(hooks, on_waited=also_failing).on_lost is failing


@pytest.mark.parametrize("name", CALLBACKS)
def test_hooks_and_others_are_told_in_this_order(name: str) -> None:
    told: list[str] = []
    first = FenceKitHooks(**{name: lambda _: told.append("first")})
    second = FenceKitHooks(**{name: lambda _: told.append("second")})
    both = first.also(second)
    both.fire(getattr(both, name), EVENTS[name])
    assert told == ["first", "second"]
    assert [other for other in CALLBACKS if getattr(both, other) is not None] == [name]


def test_of_two_hooks_one_that_raises_keeps_nothing_from_the_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[object] = []
    both = FenceKitHooks(on_lost=failing).also(FenceKitHooks(on_lost=heard.append))
    assert both.on_lost is not None
    both.fire(both.on_lost, LOST)
    both.fire(both.on_lost, LOST)
    assert heard == [LOST, LOST]
    (record,) = caplog.records
    assert "on_lost raised" in record.message
    assert "failing" in record.message


def test_where_one_has_no_callback_the_other_is_called_without_a_detour() -> None:
    mine, theirs = FenceKitHooks(on_lost=failing), FenceKitHooks(on_waited=also_failing)
    both = mine.also(theirs)
    assert (both.on_lost, both.on_waited, both.on_done) == (failing, also_failing, None)


@pytest.mark.usefixtures("nothing_installed")
def test_installed_hooks_are_told_beside_an_objects_own() -> None:
    everywhere: list[object] = []
    own: list[object] = []
    assert with_installed(None) is None
    install_hooks(FenceKitHooks(on_lost=everywhere.append))
    for hooks in (None, FenceKitHooks(on_lost=own.append)):
        chosen = with_installed(hooks)
        assert chosen is not None
        assert chosen.on_lost is not None
        chosen.fire(chosen.on_lost, LOST)
    assert (everywhere, own) == ([LOST, LOST], [LOST])
    install_hooks(None)
    assert with_installed(None) is None


def test_what_is_no_hooks_cannot_be_installed() -> None:
    with pytest.raises(TypeError, match=r"^hooks must be a FenceKitHooks or None, not function$"):
        install_hooks(failing)  # type: ignore[arg-type]
