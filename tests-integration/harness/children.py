"""Run a function in a process of its own that can be stopped, continued and killed.

The function is named by where it is defined, so it must be a module's own, and its arguments and
the lines exchanged are JSON:

    def hold(url):
        lock = take(url)
        tell("held", lock.token)
        hear()                      # blocks until the parent tells something

    with Child(hold, server.url) as child:
        _, token = child.expect("held")
        child.pause()
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from harness.processes import Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

__all__ = ["Child", "ChildEnded", "hear", "tell"]

_MARK = "\x1e"
# How long a child may take to load its module, seconds. It depends on what else the machine does
# (ten seconds were not enough where six test workers shared two cores), and says nothing of what
# is tested.
_START = 60.0


class ChildEnded(Exception):
    """The child ended instead of telling what was expected; carries its status and stderr."""


class Child(Process):
    """A child process that runs a function of this repository.

    Attributes:
        output: What it printed besides what it told, line by line.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *args: Any,
        env: dict[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        """Start the function.

        Args:
            function: A function, sync or async, at the top of its module.
            args: Its arguments, as JSON carries them.
            env: Environment variables in addition to ours.
            python: The interpreter.
        """
        source, name = function.__code__.co_filename, function.__qualname__
        path = os.pathsep.join(entry for entry in sys.path if entry)
        super().__init__(
            [python, "-m", "harness.children", source, name, json.dumps(args)],
            env={**os.environ, "PYTHONPATH": path, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.output: list[str] = []
        self._told: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._started = threading.Event()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def started(self) -> None:
        """Return when its function is about to run, or it has ended.

        Raises:
            TimeoutError: It has not loaded its module within a minute.
        """
        if not self._started.wait(_START):
            raise TimeoutError(f"the child did not start in {_START:g} s")

    def next(self, timeout: float = 10.0) -> list[Any]:
        """Return what the child tells next.

        Raises:
            ChildEnded: It ended.
            TimeoutError: Once started, it tells nothing within `timeout` seconds.
        """
        self.started()
        try:
            told = self._told.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"the child told nothing in {timeout:g} s") from None
        if told is None:
            self._told.put(None)
            status = self.popen.wait()
            self._readers[1].join(timeout=1)
            raise ChildEnded(f"status {status}\n{self.errors}")
        return told

    def expect(self, word: str, timeout: float = 10.0) -> list[Any]:
        """Return the next thing told, which must begin with that word.

        Raises:
            AssertionError: It begins otherwise.
            ChildEnded: The child ended.
            TimeoutError: Once started, it tells nothing within `timeout` seconds.
        """
        told = self.next(timeout)
        assert told[0] == word, f"expected {word!r}, was told {told!r}"
        return told

    def tell(self, *words: Any) -> None:
        """Send a line, which the child's `hear` returns."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(words) + "\n")
        self.popen.stdin.flush()

    @property
    def errors(self) -> str:
        """What it wrote to stderr."""
        return "".join(self._errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read_output(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            if line == _MARK + "\n":
                self._started.set()
            elif line.startswith(_MARK):
                self._told.put(json.loads(line[len(_MARK) :]))
            else:
                self.output.append(line)
        self._told.put(None)
        self._started.set()

    def _read_errors(self) -> None:
        assert self.popen.stderr is not None
        self._errors.extend(self.popen.stderr)


def tell(*words: Any) -> None:
    """In the child: send words to the parent, whose `expect` or `next` returns them."""
    # One write, so that lines of several threads do not mix.
    sys.stdout.write(f"{_MARK}{json.dumps(words)}\n")
    sys.stdout.flush()


def hear() -> list[Any]:
    """In the child: wait for the parent's `tell` and return its words; ends with the parent."""
    line = sys.stdin.readline()
    if not line:
        raise SystemExit
    words: list[Any] = json.loads(line)
    return words


def _main(source: str, name: str, args: str) -> None:
    spec = importlib.util.spec_from_file_location("__child__", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["__child__"] = module
    spec.loader.exec_module(module)
    sys.stdout.write(f"{_MARK}\n")
    sys.stdout.flush()
    result = getattr(module, name)(*json.loads(args))
    if asyncio.iscoroutine(result):
        asyncio.run(result)


if __name__ == "__main__":
    _main(*sys.argv[1:])
