"""What a task was called with, by name, and what is read out of it for a key."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from celery import Task

__all__ = ["Parameters", "Pick", "Picked"]

Pick: TypeAlias = "str | Sequence[str] | Callable[..., Any]"
Picked: TypeAlias = "Callable[[Mapping[str, Any]], Any]"

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Parameters:
    """The parameters of a task's function.

    Attributes:
        signature: as `inspect.signature` gives it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.signature = inspect.signature(function)
        self._name = function.__qualname__
        parameters = self.signature.parameters.values()
        # Usual calls of usual functions are bound here, in a fifth of the signature's own time.
        self._names = frozenset(self.signature.parameters)
        self._usual = all(parameter.kind in _BY_NAME for parameter in parameters)
        self._by_place = tuple(
            parameter.name for parameter in parameters if parameter.kind is _BY_NAME[0]
        )
        self._defaults = {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.default is not inspect.Parameter.empty
        }
        nothing: dict[Any, Any] = {
            inspect.Parameter.VAR_POSITIONAL: (),
            inspect.Parameter.VAR_KEYWORD: {},
        }
        self._unsaid = self._defaults | {
            parameter.name: nothing[parameter.kind]
            for parameter in parameters
            if parameter.kind in nothing
        }

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, defaults included; a bound task itself is left out.

        Raises:
            TypeError: the function cannot be called so.
        """
        arguments = self._bind_usual(args, kwargs)
        if arguments is None:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = bound.arguments
            for name, value in arguments.items():  # where the first is one of ``*args``
                if isinstance(value, tuple) and value and isinstance(value[0], Task):
                    arguments[name] = value[1:]
                break
        first = next(iter(arguments), None)
        if first is not None and isinstance(arguments[first], Task):
            del arguments[first]
        return arguments

    def _bind_usual(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The arguments of a usual call by name; None for an unusual one, also for a wrong one."""
        if not self._usual or len(args) > len(self._by_place):
            return None
        arguments = dict(zip(self._by_place, args, strict=False))
        if kwargs:
            if not arguments.keys().isdisjoint(kwargs):
                return None
            arguments.update(kwargs)
        elif len(arguments) == len(self._names):
            return arguments
        for name, default in self._defaults.items():
            arguments.setdefault(name, default)
        return arguments if arguments.keys() == self._names else None

    def said(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that are not as they are by default.

        So a call means the same when the function has got another parameter, with a default: a
        message is run by a newer release than the one that began its work.
        """
        unsaid = self._unsaid
        if not unsaid:
            return dict(arguments)
        return {
            name: value
            for name, value in arguments.items()
            if name not in unsaid or not _same(value, unsaid[name])
        }

    def picker(self, pick: Pick, what: str) -> Picked:
        """What reads a value out of bound arguments; names become a mapping of name to value.

        A function is called with those of the task's arguments that it has parameters for. A
        fingerprint's may return anything, each other's must return a str.

        Raises:
            TypeError: neither names nor a function, or a function that cannot be called so.
            ValueError: no name, or one that is no parameter of the task.
        """
        if isinstance(pick, str):
            return self._by_names((pick,), what)
        if callable(pick):
            picked = self._by_function(pick, what)
            return picked if what == "fingerprint" else self._text(picked, what)
        if isinstance(pick, Sequence) and all(isinstance(name, str) for name in pick):
            return self._by_names(tuple(pick), what)
        msg = (
            f"{what} must be a parameter's name, several names, or a function, "
            f"not {type(pick).__name__}"
        )
        raise TypeError(msg)

    def _by_names(self, names: tuple[str, ...], what: str) -> Picked:
        if not names:
            raise ValueError(f"{what} must name at least one parameter of {self._name}")
        for name in names:
            self._check(name, what)
        return lambda arguments: {name: arguments[name] for name in names}

    def _by_function(self, function: Callable[..., Any], what: str) -> Picked:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{what} must be a plain function, and {function!r} is async")
        try:
            signature = inspect.signature(function)
        except ValueError as error:
            raise TypeError(f"{what}: what {function!r} takes is not known: wrap it") from error
        names = []
        for name, parameter in signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                return lambda arguments: function(**arguments)
            if parameter.kind not in _BY_NAME:
                msg = f"{what} is called with arguments by name, and {name!r} cannot be given so"
                raise TypeError(msg)
            if parameter.default is inspect.Parameter.empty or name in self.signature.parameters:
                self._check(name, what)
                names.append(name)
        return lambda arguments: function(**{name: arguments[name] for name in names})

    def _text(self, picked: Picked, what: str) -> Picked:
        def read(arguments: Mapping[str, Any]) -> str:
            value = picked(arguments)
            if not isinstance(value, str):
                kind = type(value).__name__
                raise TypeError(f"{what} of {self._name} must return a str, and returned a {kind}")
            return value

        return read

    def _check(self, name: str, what: str) -> None:
        if name not in self.signature.parameters:
            known = ", ".join(self.signature.parameters) or "none"
            raise ValueError(f"{what}: {name!r} is no parameter of {self._name}, which has {known}")
        if name == "self" == next(iter(self.signature.parameters)):
            raise ValueError(f"{what}: 'self' is the task itself, and no argument of {self._name}")


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
